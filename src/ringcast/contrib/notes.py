"""Notes: what the processes of a site tell each other."""

import msgspec


class Note(msgspec.Struct, array_like=True):
    """Tells other processes something: `kind` is send, group, add, discard, flush, want
    or given; `name` is that of a channel or group."""

    kind: str
    name: str = ""
    channel: str = ""           # add, discard
    message: bytes = b""        # send, group
    # given; flush: not this process, which has done it; send: not 0 if it comes back
    to: int = 0
    count: int = 0              # want
    number: int = 0             # want, given


encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Note).decode
