"""What an application gets: one message, or a batch of one sender's consecutive messages."""

from ringcast._core.batch import Batch, Message

__all__ = ["Batch", "Message"]
