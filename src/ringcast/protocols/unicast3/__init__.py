"""UNICAST3: reliable messages from one member to another (UNICAST3.txt,
UNICAST3-SYNC.txt), corrected by decisions 16 to 19.

A sender numbers the messages of each connection, marks the first one, and keeps them
until the receiver acknowledges them; acks are cumulative and delayed. What got lost in
between, the receiver asks for. If the last messages were lost, the sender's highest
message comes again, and the receiver sees what it lacks. An idle connection is closed
and forgotten, and opens anew when there is something to send.

| file | rule |
|---|---|
| `layer.py` | which packet goes to which part; timers |
| `sender.py`, `sending.py` | the sending end of one connection; of all |
| `receiver.py`, `receiving.py` | the receiving end of one connection; of all |
| `acks.py` | when a receiver acknowledges, and the credit that it grants |
| `delivery.py` | from the windows to the application, and back as finished |
| `loopback.py` | messages to ourselves |
| `states.py` | OPEN, CLOSING, CLOSED: which state follows which |
| `lifecycle.py` | when: views, reaping, leaving |
| `sync.py` | SEND_FIRST_SEQNO, and the numbers that only grow |
| `memory.py` | what is remembered of closed connections; messages that come too early |
| `control.py` | kinds of datagrams, and bodies of control datagrams |
| `context.py` | what all these share; counters |
"""

from ringcast.protocols.unicast3.layer import Unicast3

__all__ = ["Unicast3"]
