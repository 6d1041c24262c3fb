"""What an application gets: a message, or a batch of one sender's consecutive messages;
what an observer was not given; and the flags that it may send them with."""

from ringcast._core.batch import Batch, Message, Skipped
from ringcast.flags import Flag

__all__ = ["Batch", "Flag", "Message", "Skipped"]
