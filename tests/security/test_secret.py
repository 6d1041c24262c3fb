"""Where a group's secret comes from."""

import errno
import os
import stat
import subprocess
import sys

import pytest
from channels import new_group
from processes import RINGCAST

from ringcast import Channel, ConfigError
from ringcast.secret import read_secret, write_secret

DIGITS = "0123456789abcdef" * 4


def file_of(tmp_path, text, mode=0o600):
    path = tmp_path / "secret"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_a_new_secret_is_in_a_file_that_only_its_owner_can_read(tmp_path):
    mask = os.umask(0)
    try:
        write_secret(tmp_path / "secret")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    write_secret(tmp_path / "other")
    found = [read_secret(tmp_path / name) for name in ("secret", "other")]
    assert len(found[0]) == 32 and found[0] != found[1]


def test_a_file_that_is_there_is_not_overwritten(tmp_path):
    path = file_of(tmp_path, "something")
    with pytest.raises(ConfigError, match="is there already"):
        write_secret(path)
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        write_secret(tmp_path / "nowhere" / "secret")
    assert path.read_text() == "something"


@pytest.mark.parametrize("call", ["fchmod", "fsync"])
def test_a_secret_that_cannot_be_written_leaves_no_file_that_looks_like_one(tmp_path, monkeypatch,
                                                                            call):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(ConfigError, match="cannot be written: No space left on device"):
            write_secret(tmp_path / "secret")
    write_secret(tmp_path / "secret")
    assert len(read_secret(tmp_path / "secret")) == 32


@pytest.mark.parametrize("text", [DIGITS, DIGITS + "\n", DIGITS.upper()])
def test_a_secret_is_read_from_a_file_or_a_function(tmp_path, text):
    expected = bytes.fromhex(DIGITS)
    path = file_of(tmp_path, text)
    assert read_secret(path) == read_secret(str(path)) == read_secret(lambda: expected) == expected


@pytest.mark.parametrize("option", [{"cipher": "chacha20-poly1305"}, {"rekey_interval": 60}])
def test_options_of_sealed_groups_are_refused_without_a_secret(option):
    with (pytest.raises(ConfigError, match=f"{[*option][0]} is for groups with a secret"),
          Channel(new_group(), **option)):
        pass


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_a_secret_that_others_can_read_or_write_is_refused(tmp_path, mode):
    with pytest.raises(ConfigError, match="others can read or write"):
        read_secret(file_of(tmp_path, DIGITS, mode))


@pytest.mark.parametrize("text", ["", DIGITS[1:], DIGITS + "0", DIGITS[1:] + "x", DIGITS[1:] + "é",
                                  DIGITS * 100])
def test_a_file_that_is_no_secret_is_refused_and_not_shown(tmp_path, text):
    with pytest.raises(ConfigError, match="does not hold 64 hexadecimal digits") as caught:
        read_secret(file_of(tmp_path, text))
    assert "0123456789" not in repr(caught.value) and caught.value.__cause__ is None


@pytest.mark.parametrize("text", [DIGITS, f" {DIGITS.upper()}\n"])
def test_a_secret_that_is_given_itself_is_refused_and_not_shown(text):
    """By a program that reads the file, or on a command line."""
    with pytest.raises(ConfigError, match="never itself: others may have seen it") as caught:
        read_secret(text)
    assert "0123456789" not in repr(caught.value).lower() and caught.value.__cause__ is None
    run = subprocess.run([*RINGCAST, "members", "g", "--secret-file", text.strip()],
                         capture_output=True, text=True)
    assert run.returncode == 2 and "never itself" in run.stderr
    assert "0123456789" not in (run.stdout + run.stderr).lower()


@pytest.mark.parametrize("secret", [lambda: b"short", lambda: DIGITS[:32], lambda: None])
def test_a_function_returns_32_bytes(secret):
    with pytest.raises(ConfigError, match="has to return 32 random bytes"):
        read_secret(secret)


def test_no_secret_at_all_is_said_at_once(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Channel(new_group(), stack="inproc", secret=tmp_path / "nowhere")
    with pytest.raises(TypeError, match="the path of a file, or a function, not bytes"):
        Channel(new_group(), stack="inproc", secret=bytes(32))


def test_a_secret_and_insecure_exclude_each_other():
    with pytest.raises(ConfigError, match="leave out insecure"):
        Channel(new_group(), stack="mcast-tcp", secret=lambda: bytes(32), insecure=True)


@pytest.mark.parametrize("stack", ["mcast-udp", "mcast-tcp"])
def test_off_loopback_it_is_one_of_the_two(stack):
    with pytest.raises(ConfigError, match="secret=, or --secret-file.*or --trust.*or say "
                                          "insecure=True"):
        Channel(new_group(), stack=stack, interface="192.0.2.1")


def test_without_the_package_the_sentence_says_how_to_install_it():
    """Everything else works without it."""
    code = ("import sys; sys.modules['cryptography'] = None\n"
            "from importlib import util; find = util.find_spec\n"
            "import ringcast.secret as secret\n"
            "secret.find_spec = lambda name: None if name == 'cryptography' else find(name)\n"
            "from ringcast import Channel, ConfigError\n"
            "import ringcast.cli.simulate, ringcast.cli.members, ringcast.sim.cluster\n"
            "with Channel('alone', stack='inproc'): pass\n"
            "try: Channel('alone', stack='inproc', secret=lambda: bytes(32))\n"
            "except ConfigError as error: print(error)\n")
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'ringcast[crypto]'" in said.stdout, said.stderr


def test_keygen_makes_a_secret_and_does_not_show_it(tmp_path):
    path = tmp_path / "secret"
    run = subprocess.run([*RINGCAST, "keygen", str(path)], capture_output=True, text=True)
    assert run.returncode == 0 and str(path) in run.stdout
    assert path.read_text().strip() not in run.stdout + run.stderr
    again = subprocess.run([*RINGCAST, "keygen", str(path)], capture_output=True, text=True)
    assert again.returncode == 2 and "is there already" in again.stderr
