"""What a member says of itself, where somebody may read it: texts, errors, logs, traces
and its status file. No key may be in it."""

import traceback

import pytest
from channels import DEFAULTS, QUICK

from ringcast import Channel, RingcastError


def failures(*calls):
    """The texts of the errors that these calls raise, with all that caused them."""
    for call in calls:
        with pytest.raises(RingcastError) as caught:
            call()
        yield "".join(traceback.format_exception(caught.value))


def failed_joins(group, name, **access):
    """Calls that do not join a group: too few come, the name is taken, there is no such
    interface."""
    options = QUICK | DEFAULTS | access
    return [lambda: Channel(group, name=f"{name}/2", min_members=9, **options).connect(0.1),
            lambda: Channel(group, name=name, min_members=2, **options).connect(10),
            lambda: Channel(group, name=f"{name}/3", min_members=9,
                            **options | {"interface": "192.0.2.1"}).connect(0.1)]


def said_by(channel):
    """What a member says of itself while it lives, in its status file, too."""
    transport = channel._transport
    said = [repr(each) for each in (
        channel, channel.status(), channel.config, channel.view, vars(channel), transport,
        vars(transport), transport._seal, transport._seal.keys, transport._seal.keyring)]
    return [*said, channel._publishing._file.path.read_bytes().decode("latin-1")]


def traced(folder):
    """What members that have closed have written into a folder."""
    written = [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    assert written
    return written


def keys_of(seal):
    """All keys that a member has of the group, of its views and of its process."""
    keys, ring = seal.keys, seal.keyring
    views = [held.key for held in ring._held.values()], [view.root for view in seal._views.values()]
    assert all(views)
    roots = [each.root for each in (*seal.senders.values(), seal._without_view, seal._in_view)]
    return [keys._senders, keys.hello, keys.link, keys._views, seal._entropy, ring._entropy,
            ring._private.private_bytes_raw(), *views[0], *views[1], *filter(None, roots)]


def assert_no_key(said, keys):
    """None of the texts has one of the keys, in any form."""
    assert len(said) > 10
    for text in said:
        for key in keys:
            assert key.hex() not in text and key.decode("latin-1") not in text
            assert repr(key)[2:-1] not in text
