"""Asking: a thread of the application waits until all members have answered."""

from functools import partial

from ringcast.address import Address
from ringcast.channel.driver import Driver
from ringcast.channel.pauses import Steps
from ringcast.channel.reentry import deadline_after
from ringcast.channel.state import State
from ringcast.errors import AnswerTimeoutError, ClosedError
from ringcast.protocols.membership.ends import Question

Found = dict[Address, tuple[int, int]]  # of each member, behind which seqno and up to which


class Asking:
    """Asks where the streams of departed members ended (protocols/membership/ends.py).

    Threads: any thread may call.
    """

    def __init__(self, state: State, driver: Driver) -> None:
        self._state, self._driver = state, driver

    def finished_of(self, incarnation: int, seconds: float | None) -> Steps[Found]:
        """See Channel.finished_of."""
        self._state.check_open()
        driver, ends = self._driver, self._driver.endpoint.ends
        if driver.endpoint.view is None:
            raise ClosedError("this channel is not connected, so nobody can answer; call connect() "
                              "first")
        question = Question(incarnation)
        found: Found | None = None

        def is_answered() -> bool:
            nonlocal found              # for a member that comes now has not answered
            found = driver.read(partial(self._found, question))
            return found is not None

        try:
            driver.run_in_turn(partial(ends.ask, question))
            driver.request_turn()
            yield from self._state.settling(deadline_after(seconds), is_answered)
            self._state.check_open()
        finally:
            ends.stop_asking(question)
        if found is None:
            raise AnswerTimeoutError(f"not all members said within {seconds:g} s how far they have "
                                     f"the stream of {incarnation:016x}; give them more time")
        return found

    def _found(self, question: Question) -> Found | None:
        """Return what was answered; None if anybody has not answered."""
        endpoint = self._driver.endpoint
        answers, members = endpoint.ends.answers(question), endpoint.multicast.members
        return None if answers is None else {
            members[member]: (taken.after, taken.last) for member, taken in answers.items()
            if taken is not None}
