"""Own messages that nobody will be given, as the application has sent them."""

from ringcast._core.batch import Batch
from ringcast._core.stamps import Stamps
from ringcast.address import Address
from ringcast.flags import FRAGMENT, Flag
from ringcast.protocols.frag import rejoin
from ringcast.protocols.seqnos import MODULUS


def as_sent(runs: list[Batch], stamps: Stamps, local: Address, dest: Address | None,
            view_id: int) -> list[Batch]:
    """Return the messages of `local` to `dest` (None: to everybody) that these runs of
    one window hold. Fragments are put together, under the seqno of the last one; what
    remains of a message whose first fragments are not here has the flag INCOMPLETE.
    Other messages may stand between the fragments of one."""
    batches = []
    parts: dict[int, list[bytes]] = {}
    for run in runs:
        if run.bits & FRAGMENT:
            flags = run.bits & ~FRAGMENT
            batches += [Batch(local, (run.first + place) % MODULUS, [payload], view_id, dest,
                              flags | Flag.INCOMPLETE if is_rest else flags)
                        for place, payload, is_rest in rejoin(run.payloads, parts)]
        else:
            batches.append(run.addressed(local, dest, view_id, None,
                                         stamps.take(run.first, len(run))))
    return batches
