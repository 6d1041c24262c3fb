"""Sealing and opening: every datagram is encrypted and authenticated as a whole, with a
clear header that is authenticated too.

    header   magic u16 | version u8 | channel u8 | epoch u32 | sender u64 | number u64
                                                                24 bytes, little endian
    then     the sealed datagram, 16 bytes longer than the datagram

**A number seals once.** Each sender counts its datagrams in each *channel*: what
controls the group, messages to everybody, what goes to one member, and what is
*hurried*, which over TCP has a connection of its own. The four overtake each other on
their way, so each has a number and a replay window of its own.
Channel and number are the nonce. After MOST_SEALED datagrams a new epoch begins, with a
new key and numbers from 1 on. The key comes from the salt of this process
(keys.py), so no other process repeats a number under it.

**What is sealed with what.** Kinds that members say also to those who are not in their
view (`outside`) are sealed with a key of the group's secret; where keys are trusted,
with one that the process draws, and that its HELLOs bring to those who have proved
theirs. All others are sealed with a key of the view (keyring.py), and open only so: who
has no view takes no part in it. The upper half of a number says with the key of which
view, and 0, with none. When a view is installed, the key of the view before seals
nothing any more, and opens for OLD_KEY, since what it has sealed may still be on its
way.

**Who is heard.** A datagram opens only if its sender has answered our challenge
(hello.py). What comes from somebody else is counted and dropped, and its sender is
asked, but not often: anybody can send such datagrams. When a sender has answered, the
layers above are told as of a new connection: what it sent before may be lost. With the
key of a view only its members are heard. Each of them is one process there, the first
of which something has opened: who has the secret may prove itself under its number too.

Of more than MOST_SENDERS that have answered, some are forgotten, and have to answer
again: never one of our view. So nobody makes us forget what its members have proved,
however many processes it begins.

**Whose key is not trusted any more** is forgotten, and not heard again (`retrust`).
What it knows of us seals nothing any more: we draw another key, and bring it to all
others.

A state machine like every layer: time, keys and randomness come in.
"""

from collections.abc import Collection, Sequence
from struct import Struct
from typing import TYPE_CHECKING

import msgspec
from cryptography.exceptions import InvalidTag

from ringcast._core.seal import MAGIC, VERSION, Epoch, SealCore
from ringcast.address import EVERYONE
from ringcast.config import BULK_CHANNEL, HURRIED_CHANNEL, IDENTITY_SIZE, SEAL
from ringcast.protocols.allowance import Allowance
from ringcast.protocols.security.hello import (
    CHALLENGE_SIZE,
    MOST_ANSWERS,
    MOST_ASKED,
    MOST_SIGNED_ANSWERS,
    Hello,
    read_hello,
    write_hello,
)
from ringcast.protocols.security.identity import Proved, Trusted
from ringcast.protocols.security.keys import SALT_SIZE, TAG_SIZE, Cipher, Keys, derive
from ringcast.stack import HeldKeys
from ringcast.status import SealStatus

if TYPE_CHECKING:
    from ringcast.protocols.security.keyring import Keyring

HELLO, CONTROL, BULK, SINGLE, HURRIED = 0, 1, BULK_CHANNEL, 3, HURRIED_CHANNEL  # channels
CHANNELS = (CONTROL, BULK, SINGLE, HURRIED)
KIND = 3                                # offset of the kind in a datagram that is not sealed yet

HEADER = Struct("<HBBIQQ")
HEADER_SIZE = HEADER.size
OVERHEAD = SEAL                         # bytes by which a sealed datagram is longer
assert OVERHEAD == HEADER_SIZE + TAG_SIZE

MOST_SEALED = 1 << 22                   # datagrams of one channel in one epoch
LAST_EPOCH = (1 << 32) - 1
MOST_AHEAD = 8                          # epochs of a member, of which we may have heard nothing
COUNT = (1 << 32) - 1                   # the bits of a number that count
OLD_KEY = 5_000_000_000                 # nanoseconds for which the key of a former view opens
FOREVER = 1 << 63
MOST_VIEWS = 64                         # whose keys open
MOST_SENDERS = 1024                     # that have answered, and are remembered
ENTROPY = SALT_SIZE + 32                # random bytes that a Seal needs

PAUSE = 10_000_000                      # nanoseconds between two times of asking strangers ...
LONG_PAUSE = 250_000_000                # ... and after everybody was asked
BURST = 512                             # HELLOs answered at once, and then one ...
REFILL = 2_000_000                      # ... in so many nanoseconds


class Sender:
    """A member that has answered our challenge. Of its epochs the present one opens,
    the one before, and the next one, which begins when a datagram of it has opened. In
    a view, where no HELLO tells an epoch, the first one begins so too."""

    __slots__ = ("challenge", "epochs", "is_in_view", "number", "root", "salt")

    def __init__(self, salt: bytes, number: int, epoch: Epoch | None,
                 root: bytes | None = None, challenge: bytes = b"") -> None:
        self.salt, self.number, self.root = salt, number, root
        self.is_in_view, self.challenge = epoch is None, challenge
        self.epochs = {} if epoch is None else {number: epoch}

    def begin(self, number: int, under: Epoch) -> None:
        """Note that a datagram of a later epoch has opened."""
        self.number, self.epochs[number] = number, under
        self.epochs = {each: epoch for each, epoch in self.epochs.items() if each >= number - 1}


class Outgoing:
    """A key that seals: what needs no view, or in the view whose numbers have this
    `tag`."""

    __slots__ = ("cipher", "epoch", "numbers", "root", "tag")

    def __init__(self, cipher: Cipher, root: bytes | None = None, tag: int = 0) -> None:
        self.cipher, self.root, self.tag = cipher, root, tag
        self.epoch, self.numbers = 0, dict.fromkeys(CHANNELS, 0)


class ViewSeal:
    """A view whose key opens, until an instant, and what its `members` have sealed with
    it. The key is new with the view, so all numbers are. `senders` are the members of
    whom something has opened: nobody else has a place there, and each has one."""

    __slots__ = ("members", "root", "senders", "tag", "until")

    def __init__(self, root: bytes, members: Collection[int]) -> None:
        self.root, self.members, self.until = root, members, FOREVER
        self.tag = max(1, int.from_bytes(derive(root, b"tag")[:4], "little")) << 32
        self.senders: dict[int, Sender] = {}

    def sender(self, sender: int, salt: bytes) -> Sender | None:
        """Return what is known of the process with this salt in this view, or may begin
        to be known; None if it is no member."""
        found = self.senders.get(sender)
        if found is None and sender in self.members:
            return Sender(salt, -1, None, self.root)
        return found if found is not None and found.salt == salt else None


class Seal(SealCore):
    """Seals what `member` sends, and opens what comes to it.

    `entropy` are ENTROPY random bytes that no other process has. `bulk` are the kinds
    of datagrams that carry messages, `hurried` those that pass them, and `outside`
    those that need no view. `keyring` has our identity, in a group that trusts keys.

    `seal` and `open` are in _core/seal.pyx, with all that is done for each datagram.
    One thread at a time calls `seal`, and one everything else; the two may be at work
    at once. But nobody may call `seal` during `hellos`, `rekey`, `retrust` and
    `end_old`; `rekey` may be called by any thread.
    """

    def __init__(self, keys: Keys, member: int, entropy: bytes, bulk: Collection[int] = (),
                 hurried: Collection[int] = (), outside: Collection[int] = (),
                 keyring: "Keyring | None" = None) -> None:
        assert len(entropy) == ENTROPY
        super().__init__(member, SealStatus(), bulk, hurried, outside)
        self.keys, self.keyring = keys, keyring
        self.identity = keyring.identity if keyring is not None else None
        self.salt, self._entropy = entropy[:SALT_SIZE], entropy[SALT_SIZE:]
        self._drawn, self._draws = b"", 0               # what makes our root, where we have one
        root = self._draw_root() if self.identity is not None else None
        self._without_view = Outgoing(keys.cipher(self.salt, member, 0, root), root)
        self._views: dict[int, ViewSeal] = {}           # whose keys open, by id
        self._by_tag: dict[int, ViewSeal] = {}          # and by tag, for `open`
        self._members: Collection[int] = ()             # of the view, as long as it is present
        self.old_until = FOREVER                       # when the first key of them opens no more
        self._challenges = 0                            # drawn so far
        self._draw_challenge()
        self._asked: dict[int, None] = {EVERYONE: None}     # to be asked at once
        self._strangers: dict[int, None] = {}           # to be asked when it is time
        self._answers: dict[int, bytes] = {}            # challenges to be answered, by incarnation
        self._publics: dict[int, bytes] = {}            # and what seals for those
        self.was_asked = False                          # in `open`, by one who has not answered yet
        self._ask_after = 0
        self._may_answer = Allowance(BURST, REFILL)
        # By process for which two keys have signed: which is believed, and the other.
        self.disputed: dict[int, tuple[bytes, bytes]] = {}
        self._linked: dict[int, None] = {}

    def __repr__(self) -> str:
        return f"Seal({self.member:016x})"

    # ---------------------------------------------------------------------------------- sealing

    most_sealed = MOST_SEALED           # with one key, in each channel
    invalid_tag = InvalidTag            # what a cipher raises about what does not open

    def _begin_epoch(self, under: Outgoing) -> None:
        """Take a new key, and number datagrams from 1 again."""
        if under.epoch >= LAST_EPOCH:           # 2**54 datagrams: centuries
            raise OverflowError("this process has used all epochs of its key; start it again")
        under.epoch += 1
        under.cipher = self.keys.cipher(self.salt, self.member, under.epoch, under.root)
        under.numbers = dict.fromkeys(CHANNELS, 0)

    # ------------------------------------------------------------------------------- keys of views

    def rekey(self, held: HeldKeys, now: int) -> None:
        """Open from now on what is sealed with these keys, and seal with that of the
        present view. Others that we held open for a while."""
        for view_id, key in held.keys.items():
            if view_id not in self._views:
                self._views[view_id] = ViewSeal(self.keys.of_view(view_id, key),
                                                held.members[view_id])
        for view_id, view in self._views.items():
            if view_id not in held.keys:
                view.until = min(view.until, now + OLD_KEY)
        while len(self._views) > MOST_VIEWS:
            del self._views[min(each for each in self._views if each != held.present)]
        self._members = held.members.get(held.present, ())
        present = self._views.get(held.present)
        if present is not None and (self._in_view is None or self._in_view.tag != present.tag):
            cipher = self.keys.cipher(self.salt, self.member, 0, present.root)
            self._in_view = Outgoing(cipher, present.root, present.tag)
        self._keep_views(self._views)

    def end_old(self, now: int) -> None:
        """Forget the keys of former views when it is time."""
        if now >= self.old_until:
            self._keep_views({view_id: view for view_id, view in self._views.items()
                              if view.until > now})

    def _keep_views(self, views: dict[int, ViewSeal]) -> None:
        self._views, self._by_tag = views, {view.tag: view for view in views.values()}
        self.old_until = min((view.until for view in views.values()), default=FOREVER)

    # ---------------------------------------------------------------------------------- opening

    def _begin_opening(self, known: Sender, sender: int, epoch: int) -> Epoch | None:
        """Return the key of an epoch of a sender that it has not begun yet for us; None
        if it is not the next one. In a view it may be a later one, since no HELLO tells
        it; but a member hears others so often that it does not miss many."""
        if not 0 < epoch - known.number <= (MOST_AHEAD if known.is_in_view else 1):
            return None
        under = Epoch(self.keys.cipher(known.salt, sender, epoch, known.root), [0] * len(CHANNELS))
        known.epochs[epoch] = under     # lest somebody makes us derive it again and again
        return under

    def _note_stranger(self, sender: int) -> None:
        """Ask soon who somebody is that has not answered, and sends."""
        if sender != self.member and len(self._strangers) <= MOST_ASKED:
            self._strangers[sender] = None

    # ----------------------------------------------------------------------------------- HELLO

    def linked(self, members: Sequence[int]) -> None:
        """Note new connections to members. Those that have not answered yet are asked,
        and their connections count when they have."""
        for member in members:
            (self._linked if member in self.senders else self._asked)[member] = None

    def lost(self) -> None:
        """Note that datagrams may be lost that had come: all connections are as new."""
        self._linked.update(dict.fromkeys(self.senders))

    def take_linked(self) -> list[int]:
        """Return the members that have a new connection, or have just answered."""
        linked, self._linked = self._linked, {}
        return list(linked)

    def _on_hello(self, datagram: bytes, sender: int, epoch: int, now: int) -> None:
        hello = read_hello(self.keys.hello, datagram, HEADER_SIZE, self.identity is not None)
        if hello is None:
            self.counters.hellos_refused += 1
            return
        if sender == self.member:
            return
        is_answer = hello.answers.get(self.member) == self.challenge and (
            self._is_news(sender, epoch, hello))
        is_question = EVERYONE in hello.asked or self.member in hello.asked
        if (is_answer or is_question) and not self._is_believed(sender, hello, now):
            self.counters.hellos_refused += 1
            return
        self.counters.hellos_received += 1
        is_new = is_answer and self._learn(sender, epoch, hello)
        if is_question and (is_new or self._may_answer.take(now)):
            self._answer(sender, hello.challenge, hello.public)

    def _is_believed(self, sender: int, hello: Hello, now: int) -> bool:
        """Return whether somebody whom we trust has signed a HELLO, where it has to be;
        and not in the name of a process that has proved another key. That is noted:
        nobody draws the number of another one's process by chance."""
        if self.identity is None:
            return True
        is_believed = self.identity.believes(hello.said, hello.proof, now)
        if is_believed and not self.identity.may_be(sender, hello.proof):
            self.disputed[sender] = (self.identity.proved[sender].key, hello.proof[:IDENTITY_SIZE])
            is_believed = False
        return is_believed

    def _is_news(self, sender: int, epoch: int, hello: Hello) -> bool:
        """Return whether we do not open yet what a sender seals now."""
        known = self.senders.get(sender)
        return known is None or known.salt != hello.salt or epoch > known.number

    def _answer(self, sender: int, challenge: bytes, public: bytes) -> None:
        """Answer a challenge soon, and ask who has not answered ours."""
        self._answers[sender], self._publics[sender] = challenge, public
        if sender not in self.senders:
            self._asked[sender], self.was_asked = None, True

    def _learn(self, sender: int, epoch: int, hello: Hello) -> bool:
        """Open from now on what a sender seals that has answered our challenge. Return
        False if we cannot.

        A sender may take the place of another process of its incarnation, or if there
        are too many, of somebody else. Then we draw a new challenge: what those have
        answered counts no more, or they could be put in the new one's place again.
        """
        root = None
        if self.identity is not None and self.keyring is not None:
            drawn = self.keyring.unseal(hello.roots[self.member],
                                        _info_of_root(sender, self.member, epoch))
            if drawn is None:
                return False
            root = self.keys.of_process(drawn)
        known = self.senders.get(sender)
        is_other = known is not None and known.salt != hello.salt
        if is_other or (known is None and len(self.senders) >= MOST_SENDERS):
            self._forget(sender if is_other else self._first_to_go())
            self._draw_challenge()
        cipher = self.keys.cipher(hello.salt, sender, epoch, root)
        self.senders[sender] = Sender(hello.salt, epoch, Epoch(cipher, hello.numbers), root,
                                      hello.challenge)
        if self.identity is not None:
            self.identity.proved[sender] = Proved(hello.proof[:IDENTITY_SIZE], hello.public)
        self._linked[sender] = None
        self._strangers.pop(sender, None)
        self._asked.pop(sender, None)
        return True

    def _first_to_go(self) -> int:
        """Return who makes room: of those who are not in our view the first that
        answered. A view has fewer members than we remember."""
        return next((sender for sender in self.senders if sender not in self._members),
                    next(iter(self.senders)))

    def _forget(self, sender: int) -> None:
        """Forget a sender, and what it has proved."""
        del self.senders[sender]
        if self.identity is not None:
            self.identity.proved.pop(sender, None)

    def retrust(self, trusted: Trusted) -> None:
        """Trust these keys from now on. Whose key is not trusted any more, or not under
        a name that it had, is forgotten; and our next key without a view is known to
        the others alone."""
        identity = self.identity
        assert identity is not None
        before, identity.trusted = identity.trusted, trusted
        kept = {key for key, names in before.items() if names <= identity.names(key)}
        gone = [sender for sender in self.senders if identity.proved[sender].key not in kept]
        if not kept >= before.keys():
            self._draw_challenge()
            self._replace_root()
            self._answers, self._publics = {}, {}       # perhaps to one of them
            for sender in gone:
                self._forget(sender)
            for sender, known in self.senders.items():  # they may have drawn another challenge, too
                self._answer(sender, known.challenge, identity.proved[sender].public)
                self._asked[sender] = None

    def _draw_root(self) -> bytes:
        """Draw what others need to open what we seal without a view. Return the root
        that it makes."""
        self._draws += 1
        self._drawn = derive(self._entropy, b"root" + self._draws.to_bytes(8, "little"))
        return self.keys.of_process(self._drawn)

    def _replace_root(self) -> None:
        """Seal with another root what needs no view. The epoch is not the next one, so
        those who know only the former root ask us for this one."""
        under = self._without_view
        under.root = self._draw_root()
        under.epoch += 1
        self._begin_epoch(under)

    def _draw_challenge(self) -> None:
        """Draw a challenge that nobody can know before."""
        self._challenges += 1
        info = b"challenge" + self._challenges.to_bytes(8, "little")
        self.challenge = derive(self._entropy, info)[:CHALLENGE_SIZE]

    @property
    def has_to_say(self) -> bool:
        """Return whether somebody is to be asked or answered, perhaps only later."""
        return bool(self._asked or self._answers or self._strangers)

    def hellos(self, now: int) -> list[bytes]:
        """Return the HELLOs to send to everybody now, before anything else."""
        asked, self._asked = list(self._asked), {}
        if self._strangers and now >= self._ask_after:
            are_few = len(self._strangers) <= MOST_ASKED
            asked += self._strangers if are_few else [EVERYONE]
            self._ask_after = now + (PAUSE if are_few else LONG_PAUSE)
            self._strangers = {}
        answers, self._answers = list(self._answers.items()), {}
        most = MOST_ANSWERS if self.identity is None else MOST_SIGNED_ANSWERS
        count = max(-(-len(asked) // MOST_ASKED), -(-len(answers) // most))
        hellos = [self._hello(asked[each * MOST_ASKED:][:MOST_ASKED],
                              dict(answers[each * most:][:most])) for each in range(count)]
        self._publics = {}
        return hellos

    def _hello(self, asked: list[int], answers: dict[int, bytes]) -> bytes:
        self.counters.hellos_sent += 1
        under, public, roots = self._without_view, b"", {}
        if self.identity is not None and self.keyring is not None:
            public = self.keyring.public
            for each in list(answers):
                root = self.keyring.seal_for(self._drawn, self._publics[each],
                                             _info_of_root(self.member, each, under.epoch))
                if root is None:                        # its public key is none
                    del answers[each]
                else:
                    roots[each] = root
        header = HEADER.pack(MAGIC, VERSION, HELLO, under.epoch, self.member, 0)
        return write_hello(self.keys.hello, header, Hello(
            self.salt, self.challenge, tuple(under.numbers.values()), asked, answers, public,
            roots), self.identity)

    def status(self) -> SealStatus:
        """Return the counters."""
        return msgspec.structs.replace(self.counters, num_verified=len(self.senders))


def _info_of_root(sender: int, receiver: int, epoch: int) -> bytes:
    """Return what a root that a HELLO brings is bound to."""
    return b"ringcast 1 root %d %d %d" % (sender, receiver, epoch)
