"""What a run checks about the ends of streams: a member asks all others about each
incarnation that is gone, and everybody answers what its application has."""

from typing import TYPE_CHECKING

from ringcast.protocols.membership.ends import Question
from ringcast.protocols.multicast.ended import Taken
from ringcast.protocols.seqnos import precedes

if TYPE_CHECKING:
    from ringcast.sim.cluster import Cluster
    from ringcast.sim.member import Member

STEP = 1            # millisecond, between two looks for answers


def check_ends(cluster: "Cluster", patience: int) -> None:
    """Let the youngest member ask for the ends of all streams, and check the answers,
    which must come within `patience` nanoseconds."""
    living = cluster.living()
    if not living:
        return
    asker = cluster.incarnations[living[0].views[-1].members[-1].incarnation]
    ends = asker.endpoint.ends
    gone = {Question(member.incarnation): member for member in cluster.incarnations.values()
            if not member.alive}
    for question in gone:
        ends.ask(question, asker.now)
        asker.request_turn()
    end = cluster.now + patience
    while any(ends.answers(question) is None for question in gone):
        if cluster.now >= end:
            cluster.checkers.violated("ends", f"{asker.name} has no answer about all that are gone")
        cluster.run(STEP)
    for question, member in gone.items():
        for answering, taken in (ends.answers(question) or {}).items():
            _check_answer(cluster.incarnations[answering], member, taken)
        ends.stop_asking(question)


def _check_answer(member: "Member", sender: "Member", taken: Taken | None) -> None:
    """Check that a member has told what its application has finished."""
    finished = member.consumer.finished.get(sender.incarnation)
    if member.observes:
        is_true = taken is None                 # it may have missed something
    elif taken is None:
        is_true = finished == member.resume.get(sender.address)     # or nothing, and none
    elif precedes(taken.after, whole := sender.log.end_before(taken.last)):
        is_true = finished == whole
    else:
        is_true = finished is None or not precedes(taken.after, finished)
    if not is_true:
        sender.cluster.checkers.violated("ends", f"{member.name} says that it has {taken} of "
                                                 f"{sender.address}, and has it up to {finished}")
