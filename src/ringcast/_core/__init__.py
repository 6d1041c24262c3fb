"""The compiled core: what happens once per message. Sources are in
`ext/ringcast/_core`; each module has a `.pyi` here."""
