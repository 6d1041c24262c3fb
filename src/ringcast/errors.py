"""The errors of ringcast. Each message is a sentence that says what happened and what
to do.

Only a mistake of the caller, the local machine, or a timeout raises; what a peer sends
never does (decision 24). Each class also derives from the built-in exception that a
caller would expect.
"""


class RingcastError(Exception):
    """Base of all errors raised by ringcast."""


class ConfigError(RingcastError, ValueError):
    """An option that does not exist, or a value outside its range."""


class MessageTooLargeError(RingcastError, ValueError):
    """A payload above max_message_size, or one with NO_RELIABILITY that does not fit
    one datagram; nothing was sent."""


class ClosedError(RingcastError):
    """The channel, window, transport or journal is closed; nothing was sent."""


class SendTimeoutError(RingcastError, TimeoutError):
    """There was no room in the send window within the timeout; the message was not
    sent. `num_sent` is how many messages of a send_many() were sent: the first ones."""

    num_sent = 0


class NotMemberError(RingcastError, LookupError):
    """The receiver of a message is not in the view; nothing was sent."""


class NoQuorumError(RingcastError):
    """This member is cut off from the majority of its group, or not in it yet, and only
    the primary part may send (partition="primary"); nothing was sent."""


class JoinTimeoutError(RingcastError, TimeoutError):
    """The group did not form, or did not let this member in, within the timeout."""


class AnswerTimeoutError(RingcastError, TimeoutError):
    """Not all members of the view answered a question within the timeout."""


class StateLostError(RingcastError):
    """The member that gave its state was lost before it had given all of it: drop what
    came. on_state is called again, with another member's state from the begin."""


class TransportError(RingcastError, OSError):
    """The operating system refused a socket, an address or a route; `errno` is its
    number of the reason."""

    def __str__(self) -> str:
        return self.strerror or super().__str__()


class JournalError(RingcastError):
    """A journal cannot be read or written: it is damaged, full, locked, or of another
    version."""


class OutboxError(RingcastError):
    """An outbox cannot be read or written, or has another publisher."""


class AckTimeoutError(OutboxError, TimeoutError):
    """Not every member acknowledged what is in an outbox within the timeout, or nobody
    publishes it."""


class TraceError(RingcastError):
    """A trace does not exist, or nothing of it can be read."""
