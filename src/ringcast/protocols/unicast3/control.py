"""The kinds of UNICAST3's datagrams, and what they carry. Each carries the conn-id that
it is about (decision 19)."""

import msgspec

from ringcast._core import wire
from ringcast.kinds import Kind
from ringcast.protocols.seqnos import Range, Seqno

ConnId = int     # of one connection of its sender: 64 bits, only grows, by serial arithmetic; never
                 # 0
Timestamp = int  # of what a receiver says: the same kind of number


class Ack(msgspec.Struct, array_like=True):
    conn_id: ConnId
    seqno: Seqno | None  # highest finished by the application; None: it has no window for this
                         # connection
    timestamp: Timestamp
    budget: int     # bytes that may be unacknowledged towards this member; 0: it takes no messages


class XmitReq(msgspec.Struct, array_like=True):
    conn_id: ConnId
    ranges: list[Range]                 # missing, inclusive, oldest first
    timestamp: Timestamp


class SendFirstSeqno(msgspec.Struct, array_like=True):
    conn_id: ConnId                     # of the message that came without a window for it
    timestamp: Timestamp


class Close(msgspec.Struct, array_like=True):
    conn_id: ConnId


PREFIX = wire.HEADER_SIZE + 8   # what stands in front of the messages: the header, and the conn-id

MESSAGE = Kind(8, "message", messages_at=PREFIX)                 # messages of a connection
FIRST = Kind(9, "first", messages_at=PREFIX)                     # the same, beginning with what I
                                                                 # call the first
ACK = Kind(10, "uack", Ack, about="seqno")                       # what I have finished
XMIT_REQ = Kind(11, "uxmit_req", XmitReq, about="ranges")        # what I miss
# I have no window for this
SEND_FIRST_SEQNO = Kind(12, "send_first_seqno", SendFirstSeqno, about="conn_id", traced=False)
CLOSE = Kind(13, "close", Close, about="conn_id", traced=False)  # this connection is closed
