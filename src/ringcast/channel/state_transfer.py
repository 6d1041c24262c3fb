"""State transfer at a channel: which threads call the application for its state.

The callbacks' thread calls on_state_request between two messages, right before on_view,
and a thread of its own sends the chunks: so the application goes on meanwhile. At the
member that comes, the callbacks' thread calls on_state, which iterates over the chunks
as they come. The rules are in protocols/membership/state.py.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from queue import SimpleQueue

from ringcast.channel.driver import Driver
from ringcast.channel.sending import Sending
from ringcast.channel.state import State
from ringcast.channel.threads import Threads
from ringcast.endpoint import Endpoint
from ringcast.errors import ClosedError, ConfigError, NotMemberError, StateLostError
from ringcast.flags import STATE
from ringcast.logs import log
from ringcast.protocols.membership.messages import HAS, NEEDS
from ringcast.protocols.membership.state import StateTransfer, broken, parts
from ringcast.stack import Giving, Instant, StateNews

# The thread that gives a state rests for so many times the processor time that it uses:
# the application and its messages go first. The more the other member has to hold back,
# the less it rests: senders that had to wait for the state would lose more.
REST = 9

OnStateRequest = Callable[[], Iterable[bytes]]
OnState = Callable[[Iterator[bytes]], object]


def take_part(endpoint: Endpoint, on_message: object, on_state_request: OnStateRequest | None,
              on_state: OnState | None) -> None:
    """Let an endpoint take part in state transfer, as its callbacks say. ConfigError if
    they do not fit the channel's other arguments."""
    if on_state_request is None and on_state is None:
        return
    if not endpoint.multicast.receiving:
        raise ConfigError("a member that takes no messages has no state; leave out deliver=False, "
                          "or on_state_request and on_state")
    if endpoint.members.observes:
        raise ConfigError("an observer may miss messages, so a state would not go on with what "
                          "follows; leave out slow, or on_state_request and on_state")
    if endpoint.multicast.keeping.durable:
        raise ConfigError("a durable member goes on where it stood, and takes no state; leave out "
                          "durable, or on_state_request and on_state")
    if on_state_request is not None and on_message is None:
        raise ConfigError("on_state_request needs on_message: a state is taken between two "
                          "messages, where an iterator cannot be stopped; pass on_message")
    transfer = endpoint.transfer
    transfer.state = HAS if on_state is None else NEEDS
    transfer.can_give = on_state_request is not None


class StateCallbacks:
    """Calls the application for its state. `fail(fault)` stops the channel, and
    `count_error()` counts an exception of a callback.

    Threads: `give` and `receive` are for the callbacks' thread; any thread may call the
    others.
    """

    def __init__(self, state: State, driver: Driver, sending: Sending, threads: Threads,
                 fail: Callable[[str], None], on_state_request: OnStateRequest | None,
                 on_state: OnState | None) -> None:
        self._state, self._driver, self._sending = state, driver, sending
        self._threads, self._fail = threads, fail
        self._on_state_request, self._on_state = on_state_request, on_state
        self._local = driver.endpoint.local
        self._config = driver.endpoint.config
        self._givings: dict[object, Giving] = {}        # the latest to each member
        self.num_errors = 0
        self.reset()

    def reset(self) -> None:
        """Make what threads share: at first, and again in a forked child."""
        self._news: SimpleQueue[StateNews | None] = SimpleQueue()      # None is the end

    @property
    def is_needed(self) -> bool:
        """Return whether the application has one of the callbacks."""
        return (self._on_state_request, self._on_state) != (None, None)

    @property
    def takes_state(self) -> bool:
        """Return whether the application is given a state before its first message."""
        return self._on_state is not None

    @property
    def _transfer(self) -> StateTransfer:
        return self._driver.endpoint.transfer

    # ---------------------------------------------------------------------------------- the giver

    def give(self, giving: Giving) -> None:
        """Call on_state_request, and send what it returns to a member."""
        assert self._on_state_request is not None, "only members with it can give"
        self._givings[giving.dest] = giving
        try:
            chunks = iter(self._on_state_request())
        except BaseException:
            self._log_failure("on_state_request failed")
            chunks = None
        self._threads.make(lambda: self._send(giving, chunks), "giver").start()

    def _send(self, giving: Giving, chunks: Iterator[bytes] | None) -> None:
        """Send the chunks: the target of a thread. Without any, say that we failed."""
        endpoint, transfer, dest = self._driver.endpoint, self._transfer, giving.dest
        is_given, before = chunks is not None, time.thread_time()
        transfer.givings.add(giving)
        passed = transfer.passed_bytes
        made = parts(giving.place, chunks or iter(()), endpoint.multicast.send_window.largest,
                     self._config.max_message_size, giving.begins)
        try:
            while is_given and self._givings.get(dest) is giving:
                try:
                    part = next(made, None)
                except BaseException:
                    self._log_failure("the chunks of on_state_request failed")
                    is_given = False
                    break
                if part is None:
                    break
                self._sending.send_part(part, dest, STATE)
                used, before = time.thread_time() - before, time.thread_time()
                time.sleep(REST * used * transfer.leisure(passed))
            self._driver.run_in_turn(lambda now: transfer.note_given(is_given))
            if not is_given:
                self._sending.send_part(broken(giving.place), dest, STATE)
        except (NotMemberError, ClosedError) as error:
            log.info("%s: the state for %s is not needed any more: %s", self._local, dest, error)
        finally:
            transfer.givings.discard(giving)
            made.close()
            if self._givings.get(dest) is giving:
                del self._givings[dest]

    def _log_failure(self, what: str) -> None:
        self.num_errors += 1
        log.exception("%s: %s; another member is asked for its state", self._local, what)

    # --------------------------------------------------------------------------------- the joiner

    def put(self, news: StateNews) -> None:
        """Add what came of the state that this member is given."""
        self._news.put(news)

    def end(self) -> None:
        """End on_state, because the channel closes."""
        self._news.put(None)

    def receive(self, nothing: object) -> None:
        """Call on_state until the application has the state of one giver: the first
        call of the callbacks' thread."""
        assert self._on_state is not None, "only members with it take a state"
        news: StateNews | None = None
        while (news := news or self._news.get()) is not None and self._transfer.state == NEEDS:
            if not news.chunks and not news.is_whole:
                news = None                             # an attempt begins
                continue
            attempt = Attempt(news, self._news.get, self._finish)
            try:
                self._on_state(iter(attempt.chunks().__next__, attempt))
                attempt.drain()
            except BaseException:
                if attempt.next is None:                # on_state failed, or the channel closes
                    if not self._state.closing:
                        self.num_errors += 1
                        self._stop()
                    return
            news = attempt.next
            if news is None and (self._state.closing or self._driver.run_in_turn(
                    partial(self._accept, attempt.number))):
                return

    def _stop(self) -> None:
        """Stop the channel, because on_state failed."""
        try:
            log.exception("%s: on_state failed, so this channel closes", self._local)
        finally:
            self._fail("on_state failed, see the log; open a new channel")

    def _accept(self, attempt: int, now: Instant) -> bool:
        return self._transfer.accept(attempt)

    def _finish(self, news: StateNews) -> None:
        if news.batch is not None:
            self._driver.finish([news.batch])


class Attempt:
    """The state that one giver gives. It begins with `first`; `get()` waits for more,
    and `finish(news)` is called when the application has taken the chunks of one
    StateNews. If the giver is lost, `next` is the first of another one."""

    def __init__(self, first: StateNews, get: Callable[[], StateNews | None],
                 finish: Callable[[StateNews], None]) -> None:
        self.number = first.attempt
        self.next: StateNews | None = None
        self._first, self._get, self._finish = first, get, finish
        self._iterator = self._iterate()

    def chunks(self) -> Iterator[bytes]:
        """Return the chunks. The iterator waits for them; it raises StateLostError if
        the giver is lost, and ClosedError if the channel closes."""
        return self._iterator

    def drain(self) -> None:
        """Take the chunks that the application did not take."""
        for _ in self._iterator:
            pass

    def _iterate(self) -> Iterator[bytes]:
        news = self._first
        while True:
            yield from news.chunks
            self._finish(news)
            if news.is_whole:
                return
            later = self._get()
            if later is None:
                raise ClosedError("the channel is closed before its state has come")
            if later.attempt != self.number:
                self.next = later
                raise StateLostError("the member that gave its state was lost, or failed; drop "
                                     "what came: another one is asked")
            news = later
