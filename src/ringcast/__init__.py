"""ringcast: reliable, ordered group messaging for Python.

Every member of a group gets every other member's messages once, in the order in which they were sent, whatever the network loses,
repeats or reorders. `Channel` is what a program uses; the windows underneath it are public too.
"""

from ringcast._core.ack_table import AckTable
from ringcast._core.ring_buffer import RingBuffer
from ringcast._core.wire import MAX_PAYLOAD
from ringcast.address import Address
from ringcast.channel import Channel
from ringcast.digest import Digest
from ringcast.errors import (
    ClosedError,
    ConfigError,
    JoinTimeoutError,
    JournalError,
    MessageTooLargeError,
    RingcastError,
    SendTimeoutError,
    TransportError,
)
from ringcast.message import Batch, Message
from ringcast.view import View

__version__ = "0.1.0"

__all__ = [
    "MAX_PAYLOAD",
    "AckTable",
    "Address",
    "Batch",
    "Channel",
    "ClosedError",
    "ConfigError",
    "Digest",
    "JoinTimeoutError",
    "JournalError",
    "Message",
    "MessageTooLargeError",
    "RingBuffer",
    "RingcastError",
    "SendTimeoutError",
    "TransportError",
    "View",
]
