"""The process that is fuzzed: python harness.py TARGET COMMAND [arguments of
libFuzzer]. fuzz.py starts it with the right build. COMMAND starts it again."""

import sys

import atheris

LAYERS = ["ringcast.protocols", "ringcast.stack", "ringcast.transport", "ringcast.kinds",
          "ringcast.statusfile", "ringcast.journal", "ringcast.trace", "ringcast.audit.files",
          "ringcast.discovery"]

if __name__ == "__main__":
    _, target, *words = sys.argv
    if target != "decoder":
        with atheris.instrument_imports(include=LAYERS):
            from targets import TARGETS
    else:
        from targets import TARGETS
    atheris.Setup(words, TARGETS[target])
    atheris.Fuzz()
