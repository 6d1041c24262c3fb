"""The layers that a named stack has between messages to one member and the list of members."""

from ringcast.address import Address
from ringcast.config import Config
from ringcast.digest import Digest
from ringcast.protocols.budget import ReceiveBudget
from ringcast.protocols.multicast.base import Multicast
from ringcast.protocols.multicast.mcast import Mcast
from ringcast.protocols.multicast.nakack2 import Nakack2
from ringcast.protocols.multicast.stable import Stable
from ringcast.protocols.seqnos import Seqno
from ringcast.stack import Layer


def multicast_layers(stack: str, local: Address, config: Config, budget: ReceiveBudget, *, resume: Digest | None = None,
                     receiving: bool = True, offset: Seqno = 0, stint: int = 0,
                     lossless: bool = False) -> tuple[Multicast, list[Layer]]:
    """The layer for messages to everybody, and the list of layers that it needs, itself included; arguments as Multicast has."""
    if stack.startswith("nakack2"):
        nakack = Nakack2(local, config, budget, resume=resume, receiving=receiving, offset=offset, stint=stint,
                         lossless=lossless)
        return nakack, [Stable(local, config, nakack), nakack]
    mcast = Mcast(local, config, budget, resume=resume, receiving=receiving, offset=offset, stint=stint)
    return mcast, [mcast]


def is_lossless(stack: str) -> bool:
    """Whether its transport loses nothing but when a connection breaks."""
    return stack.endswith("-tcp")
