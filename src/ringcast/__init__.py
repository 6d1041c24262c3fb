"""ringcast: reliable, ordered group messaging for Python.

Every member of a group gets every message of every other member once, in the order in
which it was sent, even if the network loses, duplicates or reorders datagrams. Programs
use `Channel`; the windows below it are public, too.
"""

from importlib import import_module

TYPE_CHECKING = False       # type checkers know it; to load typing takes as long as all before it
if TYPE_CHECKING:
    from typing import Any

    from ringcast._core.ack_table import AckTable
    from ringcast._core.ring_buffer import RingBuffer
    from ringcast._core.seqno_table import SeqnoTable
    from ringcast._core.wire import MAX_PAYLOAD
    from ringcast.address import Address, Succession
    from ringcast.channel import Channel
    from ringcast.digest import Digest
    from ringcast.errors import (
        AckTimeoutError,
        AnswerTimeoutError,
        ClosedError,
        ConfigError,
        JoinTimeoutError,
        JournalError,
        MessageTooLargeError,
        NoQuorumError,
        NotMemberError,
        OutboxError,
        RingcastError,
        SendTimeoutError,
        StateLostError,
        TraceError,
        TransportError,
    )
    from ringcast.flags import Flag
    from ringcast.message import Batch, Message, Skipped
    from ringcast.options import Options
    from ringcast.view import View

__version__ = "0.1.0"

# The module of each public name. It is imported when the name is first used, because
# Spark's workers import ringcast.spark on machines that may have no compiled core.
HOMES = {
    "MAX_PAYLOAD": "_core.wire",
    "AckTable": "_core.ack_table",
    "AckTimeoutError": "errors",
    "Address": "address",
    "AnswerTimeoutError": "errors",
    "Batch": "message",
    "Channel": "channel",
    "ClosedError": "errors",
    "ConfigError": "errors",
    "Digest": "digest",
    "Flag": "flags",
    "JoinTimeoutError": "errors",
    "JournalError": "errors",
    "Message": "message",
    "MessageTooLargeError": "errors",
    "NoQuorumError": "errors",
    "NotMemberError": "errors",
    "Options": "options",
    "OutboxError": "errors",
    "RingBuffer": "_core.ring_buffer",
    "RingcastError": "errors",
    "SendTimeoutError": "errors",
    "SeqnoTable": "_core.seqno_table",
    "Skipped": "message",
    "StateLostError": "errors",
    "Succession": "address",
    "TraceError": "errors",
    "TransportError": "errors",
    "View": "view",
}

__all__ = [
    "MAX_PAYLOAD",
    "AckTable",
    "AckTimeoutError",
    "Address",
    "AnswerTimeoutError",
    "Batch",
    "Channel",
    "ClosedError",
    "ConfigError",
    "Digest",
    "Flag",
    "JoinTimeoutError",
    "JournalError",
    "Message",
    "MessageTooLargeError",
    "NoQuorumError",
    "NotMemberError",
    "Options",
    "OutboxError",
    "RingBuffer",
    "RingcastError",
    "SendTimeoutError",
    "SeqnoTable",
    "Skipped",
    "StateLostError",
    "Succession",
    "TraceError",
    "TransportError",
    "View",
]


def __getattr__(name: str) -> "Any":
    if name not in HOMES:
        raise AttributeError(f"module 'ringcast' has no attribute {name!r}")
    value = getattr(import_module(f"ringcast.{HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *HOMES])
