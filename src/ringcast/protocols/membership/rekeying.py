"""Views with keys, in a group with a secret: each view has a key of its own
(security/keyring.py), which PREPARE brings to its members.

A member promises a view only if it holds its key, and installs it only with the members
for whom the key was made. So the coordinator installs no view before all members hold
the key. If a view stands for `rekey_interval`, the coordinator makes another one of the
same members.

Where keys are trusted, a member promises and installs a view only if each who is new in
it has proved its name and its public key to this member. A member must go whose key
has lost the name in its seat: nobody who is new takes a view with it.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ringcast.config import Config
from ringcast.protocols.membership.messages import Install, Prepare, Seat
from ringcast.stack import Instant

if TYPE_CHECKING:
    from ringcast.protocols.membership.layer import Membership
    from ringcast.protocols.security.keyring import Keyring


class Rekeying:
    """The keys of the views of `layer`. Without a keyring, views have none."""

    def __init__(self, layer: "Membership", config: Config, keyring: "Keyring | None") -> None:
        self.layer, self.keyring = layer, keyring
        self.interval = int(config.rekey_interval * 1_000_000_000)
        self.installed_at: Instant = 0

    @property
    def public(self) -> bytes:
        """Return the public key with which others seal keys for us."""
        return self.keyring.public if self.keyring is not None else b""

    def make(self, view_id: int, seats: list[Seat]) -> tuple[dict[int, bytes], dict[int, bytes]]:
        """Make the key of a view that we prepare. Return it sealed for each member, and
        what shows that we may."""
        return self.keyring.make(view_id, seats) if self.keyring is not None else ({}, {})

    def take(self, sender: int, prepare: Prepare) -> bool:
        """Hold the key of a view that is prepared. Return False if we must not promise
        the view."""
        if self.keyring is None:
            return True
        chain = prepare.chain if sender in self.layer.members else None
        if prepare.seat(sender) is None or not self.keyring.take(
                sender, prepare.id, prepare.seats, prepare.keys, chain):
            return False
        self.layer.stack.effects.keys = self.keyring.held()
        return True

    def believes(self, sender: int, name: str, public: bytes | None = None) -> bool:
        """Return whether somebody may have this name, and this public key."""
        identity = self.keyring.identity if self.keyring is not None else None
        return identity is None or identity.fits(sender, name, public)

    def misnamed(self, members: Iterable[int]) -> list[int]:
        """Return the other members of the view whose keys may not have their names any
        more. A key that loses a name is forgotten, and has to be proved again: so it is
        enough to ask this when a member has answered, and of all in a new view."""
        if self.keyring is None or (identity := self.keyring.identity) is None:
            return []
        others = set(members) & self.layer.members.keys() - {self.layer.local.incarnation}
        return [each for each in sorted(others)
                if identity.has_lost(each, self.layer.members[each].name)]

    def strangers(self, seats: list[Seat]) -> list[int]:
        """Return those who are new to us, and have not proved what their seats say."""
        known = self.layer.members.get
        new = [seat for seat in seats if (old := known(seat.incarnation)) is None
               or (old.name, old.public) != (seat.name, seat.public)]
        return self.keyring.strangers(new) if self.keyring is not None else []

    def fits(self, install: Install) -> bool:
        """Return whether we hold the key of a view, and its members are those for whom
        it was made, and no strangers."""
        return self.keyring is None or (self.keyring.fits(install.id, install.seats)
                                        and not self.strangers(install.seats))

    def install(self, view_id: int, now: Instant) -> None:
        """Seal with the key of this view from now on."""
        self.installed_at = now
        if self.keyring is not None:
            self.keyring.install(view_id)
            self.layer.stack.effects.keys = self.keyring.held()

    def due(self) -> Instant | None:
        """Return when the members of this view are to get another key."""
        if self.keyring is None or not self.interval or len(self.layer.members) < 2:
            return None
        return self.installed_at + self.interval
