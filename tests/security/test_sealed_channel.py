"""Groups with a secret, over real transports."""

import logging
import os
from random import Random

import pytest
from channels import DEFAULTS, STACKS, Collector, joined, new_group, use_stack
from processes import wait_for
from saying import assert_no_key, failed_joins, failures, keys_of, said_by, traced
from sealed_commands import check_commands

from ringcast import Channel, ClosedError, JoinTimeoutError
from ringcast.secret import write_secret
from ringcast.stacks import STACKS as STACK_SPECS
from ringcast.status import by_name

SECRET = Random("channels").randbytes(32)
OTHER = Random("others").randbytes(32)


@pytest.fixture(params=STACKS)
def stack(request, monkeypatch):
    use_stack(monkeypatch, request.param)
    return request.param


def secret():
    return SECRET


@pytest.mark.parametrize("cipher", ["aes-256-gcm", "chacha20-poly1305"])
def test_a_group_with_a_secret_delivers_what_it_is_sent(stack, cipher):
    """Also messages to one member, and messages larger than a datagram."""
    got = {name: Collector(202) for name in "AB"}
    with joined("AB", {name: {"on_message": got[name]} for name in "AB"}, secret=secret,
                cipher=cipher) as channels:
        for channel in channels:
            channel.send_many([b"%d" % number for number in range(100)])
            channel.send(bytes(200_000))
        channels[0].send(b"for B", "B")
        channels[1].send(b"for A", "A")
        for each in got.values():
            each.wait()
        for channel in channels:
            status = channel.status()
            assert status.seal.num_verified == 1 and status.seal.hellos_refused == 0
            assert status.wire.malformed == status.seal.datagrams_unopened == 0
        if STACK_SPECS[stack].is_lossless:
            wait_for(lambda: all(by_name(each.status())["control_links"] == 1
                                 for each in channels))


@pytest.mark.parametrize("other", [None, lambda: OTHER], ids=["no secret", "another secret"])
def test_who_has_not_the_secret_is_never_in_a_group_with_those_who_have(stack, other):
    """Each thinks that it is alone."""
    group, options = new_group(), {"form_margin": 300, **DEFAULTS}
    with Channel(group, name="A", secret=secret, **options) as inside:
        with Channel(group, name="B", secret=other, **options) as outside:
            assert outside.view.names == ("B",) and inside.view.names == ("A",)
            with pytest.raises(JoinTimeoutError):
                Channel(group, name="C", secret=other, min_members=3, **options).connect(0.5)
            status = inside.status()
    dropped = ("datagrams_unsealed", "datagrams_of_strangers", "hellos_refused",
               "handshakes_refused")
    assert status.seal.num_verified == 0
    assert sum(by_name(status).get(name, 0) for name in dropped) > 0


def test_a_child_that_inherits_a_channel_seals_nothing(stack):
    """It would use its parent's numbers again, under the same key."""
    with joined("AB", secret=secret) as (a, _):
        child = os.fork()
        if not child:
            status = 1
            try:
                a._transport.put([(0, bytes(100))])
            except ClosedError:
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_no_secret_is_in_what_a_member_says_of_itself(stack, tmp_path, caplog):
    """Nor a key that was made of it: in texts, logs, traces, errors and the status
    file."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "secret"
    write_secret(path)
    with joined("AB", secret=path, trace=str(tmp_path / "traces")) as (a, b):
        a.send(b"x")
        said = list(failures(lambda: b.send(b"y", dest="nobody"),
                             *failed_joins(a.group, "A", secret=path),
                             *failed_joins(a.group, "A", secret=lambda: OTHER)[::2]))
        keys = keys_of(a._transport._seal)
        said += said_by(a)
    said += [caplog.text, *traced(tmp_path / "traces")]
    assert_no_key(said, [bytes.fromhex(path.read_text()), OTHER, *keys])


@pytest.mark.parametrize("stack", [pytest.param("mcast-udp", marks=pytest.mark.udp), "nakack2-tcp"])
def test_the_commands_join_record_and_members_take_the_file(tmp_path, stack):
    path = tmp_path / "secret"
    write_secret(path)
    check_commands(tmp_path, stack, ["--secret-file", path], "T", ["A", "T", "recorder"],
                   secret=path)
