"""The seal: below all protocols, every datagram is encrypted and authenticated, and
what does not open is dropped before anybody reads it.

    keys.py         the keys that a group's secret becomes
    identity.py     keys that are trusted instead of a secret, or beside it
    hello.py        HELLO, by which members prove that they are there now
    seal.py         sealing and opening; what each datagram needs is in _core/seal.pyx
    keyring.py      the keys of views
"""
