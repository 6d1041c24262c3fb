"""What an application gets: a message, or a batch of one sender's consecutive messages;
and the flags that it may send them with."""

from ringcast._core.batch import Batch, Message
from ringcast.flags import Flag

__all__ = ["Batch", "Flag", "Message"]
