"""The publisher: a member that sends the batches of an outbox to its group, exactly
once, whenever its process is killed.

The rows of an outbox are one stream (stream.py), and the ledger has one point of it
that is acknowledged. A publisher that goes on is a new member, but it sends on in the
same stream: the members are a succession (ringcast.Succession). First it asks the
members that take the rows how far they have what its predecessors sent, which may be
further than the ledger. Then it goes on behind that. If a taker does not know, because
it came later or came back itself, the publisher goes on from the ledger; members that
have the rows get them again under the same seqnos, and a recorder drops them.

It goes on in the same way, without a new process, when the members that take the rows
have gone (takers.py), or when it was excluded itself.

One thread sends, and blocks while the group's windows are full. Another thread watches
the acks, writes the ledger, and only then removes finished batches.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Unpack

from ringcast import (
    AnswerTimeoutError,
    Channel,
    ClosedError,
    ConfigError,
    Options,
    OutboxError,
    RingcastError,
    Succession,
    View,
)
from ringcast.config import Config, configure
from ringcast.outbox import KEEP_PARTS
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.store import Status
from ringcast.outbox.stream import Mark, Stream
from ringcast.outbox.takers import Finished, Takers
from ringcast.secret import Secret
from ringcast.stacks import fitted
from ringcast.trust import Trust

# Times are in seconds.
POLL_INTERVAL = 0.005       # between two checks for acks and for new batches
LEDGER_INTERVAL = 0.5       # between two writes of the ledger within a batch
STALL_TIMEOUT = 1.0         # without an ack, until the status names the slowest member
ANSWER_TIMEOUT = 1.0        # for what members say of a former stream; then they are asked again
SWEEP_INTERVAL = 60.0       # between two searches for parts that no batch names
STOP_TIMEOUT = 0.5          # that a publisher that is stopped waits for acks

Join = Callable[[Succession, Callable[[View], bool]], Channel]


def channel_factory(group: str, *, name: str, stack: str, secret: Secret | None = None,
                    trust: Trust | None = None, **options: Unpack[Options]) -> tuple[Config, Join]:
    """Return what an OwnedOutbox and a Publisher need, for a member with these
    arguments of Channel: its configuration, and a function that opens its channel.

    frag_timeout is half a day unless given: a publisher has nothing to do but wait
    until there is room for the next fragment of a large row.
    """
    options = Options(frag_timeout=86_400_000) | options
    is_sealed = secret is not None or trust is not None
    config = fitted(configure(options, stack), stack, group, is_sealed)
    return config, lambda succession, until: Channel(
        group, name=name, stack=stack, deliver=False, succession=succession, until=until,
        secret=secret, trust=trust, **options)


class Publisher:
    """Sends what is in `outbox` to the group, as the member `name`.

    `join` opens a channel for a succession, with an `until` (deliver=False, not
    connected yet). `expect` are the names of members that must have every row: nothing
    is sent before they are there, and no row is finished without their acks. Without
    any, at least one other member must take the rows. Raises ConfigError if `name`
    itself is expected. `keep_parts` is in seconds, see OwnedOutbox.sweep. `on_progress`
    is called after each write of the ledger, with the number of rows that were
    acknowledged in this run. Set `stop`, from any other thread than that of run(), to
    end run(): it waits a moment for the acks of what was sent.
    (A signal handler that sets an Event may wait for ever for what it interrupted.)
    """

    def __init__(self, outbox: OwnedOutbox, name: str, join: Join, stop: threading.Event, *,
                 expect: Sequence[str] = (), keep_parts: float = KEEP_PARTS,
                 on_progress: Callable[[int], object] | None = None) -> None:
        if name in expect:
            raise ConfigError(f"{name!r} is the publisher itself, which takes no rows: expect the "
                              "members that must have them, such as recorders.")
        self.outbox, self.ledger = outbox, outbox.own_ledger
        self.name, self.expect = name, expect
        self.channel: Channel | None = None     # the present one
        self.keep_parts = keep_parts
        self.on_progress = on_progress
        self.acknowledged = 0                   # rows, in this run
        self._join = join
        self._is_ledger_behind = False          # behind the acks
        self._committed_at = self._acked_at = self._swept_at = time.monotonic()
        self._status: Status | None = None
        self._stop = stop

    def run(self) -> None:
        """Publish until `stop` is set. Raises RingcastError if it cannot go on."""
        try:
            while not self._stop.is_set():
                self._run_once()
        except BaseException as error:
            with suppress(Exception):                   # the first error says more
                self._set_status(Status(f"has stopped: {error or type(error).__name__}"))
            raise
        self._set_status(Status("was stopped"))

    def _run_once(self) -> None:
        """Join, and publish through one channel until its takers have gone."""
        self._set_status(Status("is joining the group"))
        takers = Takers(self.name, self.expect)
        self.channel = self._join(Succession(self.ledger.origin, self.ledger.seqno),
                                  takers.are_over_with)
        stream = Stream(self.outbox, self.channel, takers)
        try:
            self._check(self.channel.config)
            if (self._connect(takers) and self._await_takers(takers)
                    and self._is_at_its_place(stream)):
                self._publish(stream)
        finally:
            stream.close(0.0 if stream.unfinished else STOP_TIMEOUT)

    def _check(self, config: Config) -> None:
        if (config.max_bundle_size, config.max_datagram) != (self.ledger.bundle,
                                                             self.ledger.datagram):
            raise OutboxError("The channel has another max_bundle_size or max_datagram than the "
                              "outbox was opened with: pass the same to both.")

    # ---------------------------------------------------------------------------- joining

    def _connect(self, takers: Takers) -> bool:
        """Connect. Return whether that was done before `stop` was set."""
        assert self.channel is not None
        joined = threading.Event()
        watcher = threading.Thread(target=self._close_on_stop, args=(joined,), daemon=True)
        watcher.start()
        try:
            self.channel.connect()
        except RingcastError:
            if not self._stop.is_set() and not takers.are_gone:
                raise
        finally:
            joined.set()
            watcher.join()
        return not self._is_over(takers)

    def _close_on_stop(self, joined: threading.Event) -> None:
        assert self.channel is not None
        while not joined.wait(10 * POLL_INTERVAL):
            if self._stop.is_set():
                self.channel.close(0)
                return

    def _await_takers(self, takers: Takers) -> bool:
        """Wait until all takers are there. Return whether they are, and stay."""
        while not takers.chosen and not self._is_over(takers):
            missing = ", ".join(takers.missing) or "another member"
            self._set_status(Status(f"waits for {missing} to join the group"))
            self._stop.wait(POLL_INTERVAL)
        return not self._is_over(takers)

    def _is_over(self, takers: Takers) -> bool:
        """Return whether this channel is of no more use. Raise if no other would be."""
        assert self.channel is not None
        if self._stop.is_set() or takers.are_gone:
            return True
        if self.channel.fault is not None:
            raise ClosedError(self.channel.fault)
        return False

    def _is_at_its_place(self, stream: Stream) -> bool:
        """Return whether the channel begins where the takers have nothing more. If they
        have more, they have finished it: note that. The next channel begins there."""
        streams: list[Finished] = []
        for former in self.ledger.former:
            if (finished := self._finished_of(former, stream)) is None:
                return False
            streams.append(finished)
        reached = stream.marks_up_to(stream.takers.have(self.ledger.seqno, streams))
        if stream.takers.are_gone or not reached:
            return not stream.takers.are_gone           # nobody can have more than there is
        self._take(reached)
        if self._is_ledger_behind:
            self._commit()
        return False

    def _finished_of(self, former: int, stream: Stream) -> Finished | None:
        """Ask until all members have answered. Return None if the channel is of no more
        use."""
        while not self._is_over(stream.takers):
            try:
                return stream.channel.finished_of(former, ANSWER_TIMEOUT)
            except AnswerTimeoutError:
                self._set_status(Status("waits for members to finish what was sent before"))
            except ClosedError:
                continue                                # _is_over says why
        return None

    # ------------------------------------------------------------------------- publishing

    def _publish(self, stream: Stream) -> None:
        """Publish until `stop` is set, or the takers have gone."""
        self._acked_at = time.monotonic()
        stream.start()
        while not self._is_over(stream.takers):
            self._poll(stream)
            self._stop.wait(POLL_INTERVAL)
        deadline = time.monotonic() + STOP_TIMEOUT      # for the batches that were begun
        while stream.unfinished and not stream.takers.are_gone and time.monotonic() < deadline:
            self._take_acks(stream)
            time.sleep(POLL_INTERVAL)
        if self._is_ledger_behind:
            self._commit()

    def _poll(self, stream: Stream) -> None:
        if stream.failure is not None:
            raise stream.failure
        if stream.feed() and not stream.waits:
            self._acked_at = time.monotonic()
        self._take_acks(stream)
        now = time.monotonic()
        if stream.waits and now - self._acked_at > STALL_TIMEOUT:
            self._set_status(Status("waits for acks", stream.channel.slowest))
        else:
            self._set_status(Status("is publishing"))
        if now - self._swept_at > min(SWEEP_INTERVAL, self.keep_parts):
            self._swept_at = now
            self.outbox.sweep(self.keep_parts)

    def _take_acks(self, stream: Stream) -> None:
        """Note in the ledger what the takers have acknowledged. Write the ledger at
        once if a batch is finished, else from time to time."""
        reached = stream.acknowledged()
        if reached:
            self._acked_at = time.monotonic()
            self._take(reached)
        if self._is_ledger_behind and time.monotonic() - self._committed_at > LEDGER_INTERVAL:
            self._commit()

    def _take(self, reached: list[Mark]) -> None:
        """Note in the ledger that these points are acknowledged. Remove the batches
        that are finished."""
        ledger = self.ledger
        for mark in reached:
            self.acknowledged += mark.rows - ledger.rows
            ledger.rows, ledger.seqno = mark.rows, mark.seqno
            if mark.is_end:
                ledger.finished, ledger.rows = mark.number, 0
                query = mark.manifest.query
                if query is not None:
                    ledger.queries[query] = max(mark.manifest.batch, ledger.queries.get(query, -1))
        self._is_ledger_behind = True
        if finished := [mark.number for mark in reached if mark.is_end]:
            self._commit()
            for number in finished:
                self.outbox.remove(number)

    def _commit(self) -> None:
        self._committed_at, self._is_ledger_behind = time.monotonic(), False
        self.outbox.commit_ledger()
        if self.on_progress is not None:
            self.on_progress(self.acknowledged)

    def _set_status(self, status: Status) -> None:
        if status != self._status:
            self._status = status
            self.outbox.write_status(status)
