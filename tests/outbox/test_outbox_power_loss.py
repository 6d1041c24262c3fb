"""A power loss takes nothing from an outbox that a caller was promised."""

from journals import column
from outboxes import GROUP, put
from powerloss import PowerLoss

from ringcast.config import configure
from ringcast.outbox.owned import OwnedOutbox
from ringcast.outbox.store import BATCHES, PARTS, Outbox, number_of


class Promises:
    """What an outbox promised its callers, and the check that what is left keeps it."""

    def __init__(self):
        self.committed = {}                     # {number of a batch: its payloads}
        self.finished = 0
        self.checks = 0

    def check(self, root):
        self.checks += 1
        outbox = Outbox(root / "deep" / "o")
        if not outbox.path.exists():
            assert not self.committed
            return
        ledger = outbox.ledger()
        assert not self.committed or outbox.meta() is not None
        assert (ledger.finished if ledger else 0) >= self.finished
        for path in outbox.batches.iterdir() if outbox.batches.exists() else ():
            if (number := number_of(path.name)) is not None:
                gone = [part.name for part in outbox.manifest(number).parts
                        if not (outbox.parts / part.name).exists()]
                assert not gone, f"a manifest names the parts {gone}, which are gone"
        for number, payloads in self.committed.items():
            if ledger.finished < number:
                manifest = outbox.manifest(number)
                assert manifest is not None, f"batch {number} is gone"
                assert [payload for part in manifest.parts
                        for payload in column(outbox.read_part(part), "payload")] == payloads


def test_nothing_that_was_committed_or_finished_is_gone_after_a_power_loss(tmp_path, monkeypatch):
    promises = Promises()
    (tmp_path / "disk").mkdir()
    power = PowerLoss(tmp_path / "disk", tmp_path / "scratch", monkeypatch, promises.check)
    path, config = tmp_path / "disk" / "deep" / "o", configure({})

    def commit(batch):
        number = put(Outbox(path), "q", batch, [b"%d a" % batch], [b"%d b" % batch])
        promises.committed[number] = [b"%d a" % batch, b"%d b" % batch]
        return number

    def finish(held, number):
        held.own_ledger.finished = number
        held.commit_ledger()
        promises.finished = number
        held.remove(number)

    with OwnedOutbox(path, GROUP, config) as held:
        commit(0)
        commit(1)
        finish(held, 1)
        commit(2)
    with OwnedOutbox(path, GROUP, config) as held:
        finish(held, 2)
        finish(held, 3)
        held.sweep(-1)
    power.check_states()
    assert promises.checks > 50 and promises.finished == 3
    assert not list((path / PARTS).iterdir()) and not list((path / BATCHES).iterdir())
