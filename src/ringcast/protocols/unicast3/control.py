"""The bodies of UNICAST3's control datagrams. Each carries the conn-id that it is about (decision 19)."""

import msgspec

from ringcast.protocols.seqnos import Range, Seqno

ConnId = int                            # of one connection of its sender: 64 bits, only grows, by serial arithmetic; never 0
Timestamp = int                         # of what a receiver says: the same kind of number


class Ack(msgspec.Struct, array_like=True):
    conn_id: ConnId
    seqno: Seqno | None                 # highest finished by the application; None: it has no window for this connection
    timestamp: Timestamp
    budget: int                         # bytes that may be unacknowledged towards this member; 0: it takes no messages


class XmitReq(msgspec.Struct, array_like=True):
    conn_id: ConnId
    ranges: list[Range]                 # missing, inclusive, oldest first
    timestamp: Timestamp


class SendFirstSeqno(msgspec.Struct, array_like=True):
    conn_id: ConnId                     # of the message that came without a window for it
    timestamp: Timestamp


class Close(msgspec.Struct, array_like=True):
    conn_id: ConnId


ACK = msgspec.msgpack.Decoder(Ack)
XMIT_REQ = msgspec.msgpack.Decoder(XmitReq)
SEND_FIRST_SEQNO = msgspec.msgpack.Decoder(SendFirstSeqno)
CLOSE = msgspec.msgpack.Decoder(Close)
