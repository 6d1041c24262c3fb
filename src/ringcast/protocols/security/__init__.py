"""The seal: below all protocols, every datagram is encrypted and authenticated, and
what does not open is dropped before anybody reads it.

    keys.py     the keys that a group's secret becomes
    hello.py    HELLO, by which members prove to each other that they are there now
    replay.py   no datagram is opened twice
    seal.py     sealing and opening
"""
