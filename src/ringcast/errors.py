"""What ringcast raises. Every message is one sentence that says what happened and what
to do.

Only a caller's own mistake, the local machine or the passing of a stated time raises;
what a remote peer sends never does (decision 24). Each class also derives from the
built-in exception that a caller would look for.
"""


class RingcastError(Exception):
    """Base of all errors raised by ringcast."""


class ConfigError(RingcastError, ValueError):
    """An option that does not exist, or a value outside its range."""


class MessageTooLargeError(RingcastError, ValueError):
    """A payload above max_message_size, or one without reliability that does not fit a
    datagram; nothing was sent."""


class ClosedError(RingcastError):
    """The channel (or window, or journal) is closed; nothing was sent."""


class SendTimeoutError(RingcastError, TimeoutError):
    """No room in the send window within the timeout; no seqno was taken."""


class NotMemberError(RingcastError, LookupError):
    """The member that a message is for is not in the view; nothing was sent."""


class JoinTimeoutError(RingcastError, TimeoutError):
    """Members of the given list did not appear within the timeout."""


class TransportError(RingcastError, OSError):
    """The operating system refused a socket, an address or a route; `errno` is its own
    number for why."""

    def __str__(self) -> str:
        return self.strerror or super().__str__()


class JournalError(RingcastError):
    """A journal that cannot be read or written as it stands: damaged, full, locked, or
    of another version."""


class OutboxError(RingcastError):
    """An outbox that cannot be read or written as it stands, or that has another
    publisher."""


class AckTimeoutError(OutboxError, TimeoutError):
    """What was put into an outbox was not acknowledged by every member within the
    timeout, or nobody publishes it."""


class TraceError(RingcastError):
    """A trace that is not there, or of which nothing can be read."""
