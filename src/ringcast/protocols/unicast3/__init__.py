"""UNICAST3: reliable messages from one member to another (UNICAST3.txt,
UNICAST3-SYNC.txt), with the mends of decisions 16 to 19.

A sender numbers the messages of each connection, the first of which says that it is the
first, and keeps them until the receiver's cumulative, delayed ack. What got lost in
between is asked for by the receiver; what got lost at the end shows when the sender's
highest message comes again. An idle connection is closed and forgotten, and opens anew
when there is something to send.

| file | rule |
|---|---|
| `layer.py` | what arrives, what is sent, the retransmit task |
| `sender.py`, `receiver.py` | the two ends of a connection: SenderEntry, ReceiverEntry |
| `states.py` | OPEN, CLOSING, CLOSED |
| `sync.py` | SEND_FIRST_SEQNO, and the timestamps that tell late acks |
| `memory.py` | what is remembered of closed connections, and what came too early |
| `control.py` | the bodies of control datagrams |
"""

from ringcast.protocols.unicast3.layer import Unicast3

__all__ = ["Unicast3"]
