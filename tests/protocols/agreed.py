"""A view as its members have agreed on it, for layers that are tested without the
membership layer."""

from ringcast.protocols.multicast.flush import Agreed


def agreed_view(multicast, view, cuts=None, now=0, **agreed):
    """Install a view in a multicast layer. By default each stream is cut where it
    stands here, and that of a new member at 0; `cuts` has others by sender, and
    `agreed` what else the members have agreed on."""
    members = {member.incarnation for member in view.members}
    cuts = dict.fromkeys(members, 0) | multicast.prepare(now) | (cuts or {})
    together = members & (multicast.members.keys() | {multicast.local.incarnation})
    multicast.agree(Agreed(cuts, **({"holders": {}, "together": frozenset(together)} | agreed)))
    multicast.view(view, now)
    multicast.settle()
