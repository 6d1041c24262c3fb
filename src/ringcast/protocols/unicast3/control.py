"""The kinds of UNICAST3's datagrams, and what they carry.

Each names the connection that it belongs to by its conn-id (decision 19). Datagrams
with messages carry it in front of the messages, as eight bytes; control datagrams carry
it as the first field of their body. A sender gives each of its connections a new
conn-id. A receiver numbers all that it says with timestamps, so that its sender can
tell an answer that was overtaken (`sync.py`).
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from ringcast._core import wire
from ringcast.kinds import Kind
from ringcast.protocols.retransmission import Ranges
from ringcast.protocols.seqnos import Seqno, is_seqno

# Both have 64 bits, only grow, compare by serial arithmetic, and are never 0.
ConnId = int                            # of one connection of its sender
Timestamp = int                         # of one datagram of a receiver


class Ack(msgspec.Struct, array_like=True):
    conn_id: ConnId
    seqno: Seqno | None                 # the highest that the application has finished; None: the
                                        # receiver has no window for this connection
    timestamp: Timestamp
    budget: int                         # the credit: bytes that may be unacknowledged; 0: the
                                        # receiver takes no messages
    # Bytes of a large message that came and is not whole (Stream.parts).
    parts: Annotated[int, Meta(ge=0)] = 0

    @property
    def is_sound(self) -> bool:
        """Return whether the numbers can be what they are meant to be."""
        is_possible = self.budget == 0 if self.seqno is None else is_seqno(self.seqno)
        return is_possible and is_seqno(self.timestamp) and self.budget >= 0


class XmitReq(msgspec.Struct, array_like=True):
    conn_id: ConnId
    ranges: Ranges                      # missing, inclusive, oldest first
    timestamp: Timestamp


class SendFirstSeqno(msgspec.Struct, array_like=True):
    conn_id: ConnId                     # of messages that came and have no window
    timestamp: Timestamp


class Close(msgspec.Struct, array_like=True):
    conn_id: ConnId


PREFIX = wire.HEADER_SIZE + 8           # bytes in front of the messages: the header, the conn-id

MESSAGE = Kind(8, "message", messages_at=PREFIX)                 # messages of a connection
FIRST = Kind(9, "first", messages_at=PREFIX)                     # the same, from the first one on
ACK = Kind(10, "uack", Ack, about="seqno")                       # what I have finished
XMIT_REQ = Kind(11, "uxmit_req", XmitReq, about="ranges")        # what I miss
# I have no window for this:
SEND_FIRST_SEQNO = Kind(12, "send_first_seqno", SendFirstSeqno, about="conn_id", traced=False)
CLOSE = Kind(13, "close", Close, about="conn_id", traced=False)  # this connection is closed
