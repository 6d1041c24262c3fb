"""Calls that may have to wait, written once for threads and for asyncio.

Such a call is a generator. It yields a Pause where it must wait, and is given whether
what it waits for has come before the deadline. `run` makes a thread wait; ringcast.aio
makes a task wait. If the wait ends by an exception, the generator is closed, so it must
undo what it has begun in a `finally`.
"""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import NamedTuple, TypeAlias, TypeVar

from ringcast.channel.reentry import LockFreeCondition

Result = TypeVar("Result")


class Pause(NamedTuple):
    """Wait until `ready()`, which may change when `changed` is notified, at most until
    `deadline()`, by time.monotonic(); None is never. `sent` is how many messages of the
    call were sent before. Calls with the same `line` wait for what one may take from
    the other; tasks go on in their order."""

    changed: LockFreeCondition
    ready: Callable[[], bool]
    deadline: Callable[[], float | None]
    sent: int = 0
    line: object = None


Steps: TypeAlias = Generator[Pause, bool, Result]


def run(steps: Steps[Result]) -> Result:
    """Run a call to its end; this thread waits where it must."""
    with closing(steps):
        try:
            pause = next(steps)
            while True:
                pause = steps.send(pause.changed.wait_for(pause.ready, pause.deadline))
        except StopIteration as end:
            result: Result = end.value
            return result
