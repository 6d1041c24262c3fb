"""Where trusted keys come from, and `ringcast trust`."""

import errno
import json
import os
import stat
import subprocess

import pytest
from channels import new_group
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from processes import RINGCAST
from trust_folders import folders

from ringcast import Channel, ConfigError, trust as trusts
from ringcast.trust import Folder, add_key, fingerprint, new_key, read_private, remove_key

RSA = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC5pFaoEzZvRDsjf7+qSaeDT0XQ4qYmJIiHY2Gp1NaPq4fKjsRj"


@pytest.fixture
def folder(tmp_path):
    return folders(tmp_path, ["tower", "radar"])["tower"]


def test_a_new_pair_is_in_two_files_and_only_the_owner_can_read_the_private_one(tmp_path):
    mask = os.umask(0)
    try:
        public = new_key(tmp_path / "new" / "folder", "tower")
    finally:
        os.umask(mask)
    path = tmp_path / "new" / "folder"
    assert sorted(each.name for each in path.iterdir()) == ["tower.key", "tower.pub"]
    assert stat.S_IMODE((path / "tower.key").stat().st_mode) == 0o600
    assert (path / "tower.pub").read_text() == f"{public} tower\n"
    found = Folder(path)
    assert list(found.names.values()) == [frozenset(["tower"])] and found.own == "tower"


def test_each_key_has_the_names_of_its_files(folder):
    add_key(folder, "radar2", (folder / "radar.pub").read_text())
    assert set(Folder(folder).names.values()) == {frozenset(["tower"]),
                                                  frozenset(["radar", "radar2"])}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602])
def test_a_private_key_that_others_can_read_or_write_is_refused(folder, mode):
    (folder / "tower.key").chmod(mode)
    with pytest.raises(ConfigError, match="others can read or write .*tower.key"):
        Folder(folder)


def test_a_folder_or_public_key_that_everybody_can_write_is_refused(folder):
    (folder / "radar.pub").chmod(0o646)
    with pytest.raises(ConfigError, match="everybody on this machine can write .*radar.pub"):
        Folder(folder)
    (folder / "radar.pub").chmod(0o644)
    folder.chmod(0o757)
    with pytest.raises(ConfigError, match="everybody on this machine can put keys into"):
        Folder(folder)


def test_a_hidden_file_is_no_key(folder):
    """It would have a name of nobody, or be half written."""
    (folder / ".pub").write_text((folder / "radar.pub").read_text())
    assert len(Folder(folder).names) == 2
    assert set(Folder(folder).names.values()) == {frozenset(["tower"]), frozenset(["radar"])}


@pytest.mark.parametrize("text", ["", "x", "ssh-ed25519 AAAA", RSA, "ssh-ed25519 " + "A" * 5000,
                                  "\xff\xfe"])
def test_a_file_that_is_no_public_key_is_refused(folder, text):
    (folder / "radar.pub").write_text(text)
    with pytest.raises(ConfigError, match="radar.pub (has no public key|is too large)"):
        Folder(folder)


def test_a_file_that_is_no_private_key_is_refused_and_not_shown(folder):
    text = (folder / "tower.key").read_text()
    (folder / "tower.key").write_text(text[:200] + "x" + text[201:])
    with pytest.raises(ConfigError, match="has no private key of Ed25519") as caught:
        Folder(folder)
    assert text[60:120] not in repr(caught.value) and caught.value.__cause__ is None


def test_a_folder_has_exactly_one_private_key_and_its_public_one(folder, tmp_path):
    (tmp_path / "other.key").write_text("")
    (folder / "tower.pub").rename(folder / "tower.pub.old")
    with pytest.raises(ConfigError, match=r"tower.key is not the private key of tower.pub"):
        Folder(folder)
    (folder / "tower.key").rename(tmp_path / "tower.key")
    with pytest.raises(ConfigError, match="has no private key; it must have exactly one"):
        Folder(folder)
    with pytest.raises(ConfigError, match="has 2 private keys"):
        Folder(tmp_path)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        Folder(tmp_path / "nowhere")
    with pytest.raises(TypeError, match="the path of a folder, not bytes"):
        Channel(new_group(), stack="inproc", trust=b"x")


@pytest.mark.parametrize("name", ["", "a/b", "../x", ".x", "a\n", "x" * 41, "\x1b[2J"])
def test_a_name_that_is_no_file_or_member_is_refused(folder, name):
    with pytest.raises(ConfigError, match="cannot be the name of a key"):
        add_key(folder, name, (folder / "radar.pub").read_text())


def test_what_is_there_is_not_overwritten(folder):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(ConfigError, match="is there already"):
        add_key(folder, "radar", (folder / "tower.pub").read_text())
    with pytest.raises(ConfigError, match=r"has the private key tower.key already"):
        new_key(folder, "more")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_pair_of_which_the_private_key_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    write = trusts._write

    def fail(path, text, mode):
        if path.suffix == trusts.PRIVATE:
            raise ConfigError(f"{path} cannot be written: No space left on device")
        write(path, text, mode)

    with monkeypatch.context() as patch:
        patch.setattr(trusts, "_write", fail)
        with pytest.raises(ConfigError, match="A.key cannot be written"):
            new_key(tmp_path, "A")
    assert not list(tmp_path.iterdir())
    new_key(tmp_path, "A")


def test_a_folder_is_read_again_when_a_file_in_it_has_changed(folder):
    found = Folder(folder)
    radar = next(key for key, names in found.names.items() if names == {"radar"})
    assert found.changed() is None
    remove_key(folder, "radar")
    assert radar not in found.changed().names and found.changed() is None
    (folder / "radar.pub").write_text("half of a k")
    changed = found.changed()
    assert radar not in changed.names and "radar.pub has no public key" in changed.faults[0]
    assert list(found.names) == [found.key]
    with pytest.raises(ConfigError, match="cannot be removed: No such file"):
        remove_key(folder, "nobody")


def names(folder):
    return sorted(name for of_key in folder.names.values() for name in of_key)


def test_a_key_is_read_again_after_the_chmod_that_the_log_asks_for(folder):
    found = Folder(folder)
    (folder / "radar.pub").chmod(0o646)
    assert "everybody on this machine can write" in found.changed().faults[0]
    assert names(found) == ["tower"]
    (folder / "radar.pub").chmod(0o644)
    assert found.changed().faults == [] and names(found) == ["radar", "tower"]
    assert found.changed() is None


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO, errno.ESTALE, errno.EACCES],
                         ids=errno.errorcode.get)
def test_a_file_that_cannot_be_read_for_a_while_takes_no_trust_away(folder, monkeypatch, code):
    """It is read again at the next look, also if it has not changed since. A key that
    nobody has read yet is not trusted before."""
    found = Folder(folder)
    add_key(folder, "again", (folder / "radar.pub").read_text())
    (folder / "radar.pub").touch()

    def fail(path, flags):
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(trusts, "_open_at_once", fail)
        changed = found.changed()
        assert names(found) == ["radar", "tower"] and changed.names == found.names
        assert [len(changed.faults), len(changed.unread)] == [1, 1]
        assert "again.pub cannot be read" in changed.faults[0]
        assert "radar.pub cannot be read" in changed.unread[0]
        assert found.changed() == (found.names, [], [])         # this is said once
    assert found.changed() == (found.names, [], [])
    assert names(found) == ["again", "radar", "tower"] and found.changed() is None
    remove_key(folder, "radar")
    assert names(found) == ["again", "radar", "tower"]
    found.changed()
    assert names(found) == ["again", "tower"]


def test_a_link_that_leads_nowhere_hides_nothing_else(folder):
    found = Folder(folder)
    (folder / "old.pub").symlink_to("nowhere")
    remove_key(folder, "radar")
    changed = found.changed()
    assert "old.pub cannot be read: No such file" in changed.faults[0]
    assert names(found) == ["tower"] and found.changed() is None
    with pytest.raises(ConfigError, match=r"old.pub cannot be read: No such file"):
        Folder(folder)


def test_a_key_whose_link_leads_nowhere_any_more_is_not_trusted(folder):
    (folder / "radar.pub").rename(folder / "radar.key.of")
    (folder / "radar.pub").symlink_to("radar.key.of")
    found = Folder(folder)
    assert names(found) == ["radar", "tower"]
    (folder / "radar.key.of").unlink()
    assert len(found.changed().faults) == 1 and names(found) == ["tower"]


def test_a_pipe_is_no_key_and_nobody_waits_for_it(folder):
    found = Folder(folder)
    os.mkfifo(folder / "pipe.pub")
    assert "pipe.pub is not a regular file" in found.changed().faults[0]
    assert names(found) == ["radar", "tower"]


def test_a_folder_that_everybody_can_write_later_brings_no_key(folder):
    """Nor takes one away, until somebody has looked."""
    found, text = Folder(folder), (folder / "radar.pub").read_text()
    folder.chmod(0o757)
    add_key(folder, "evil", text)
    remove_key(folder, "radar")
    with pytest.raises(ConfigError, match="everybody on this machine can put keys into"):
        found.changed()
    assert names(found) == ["radar", "tower"]
    folder.chmod(0o755)
    found.changed()
    assert names(found) == ["evil", "tower"]


def test_of_too_many_keys_our_own_and_those_that_were_trusted_stay(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(trusts, "MOST_KEYS", 3)
    found = Folder(folder)
    for name in ("a", "b", "zebra"):
        add_key(folder, name, new_key(tmp_path / f"of {name}", name))
    changed = found.changed()
    assert names(found) == ["a", "radar", "tower"] and len(changed.faults) == 1
    assert "b.pub is a key too many: at most 3 are read" in changed.faults[0]
    remove_key(folder, "a")
    assert found.changed().faults == [] and names(found) == ["b", "radar", "tower"]
    for name in ("radar", "zebra", "tower"):
        remove_key(folder, name)
    found.changed()
    assert names(found) == ["b"]
    add_key(folder, "a", (tmp_path / "of a" / "a.pub").read_text())
    add_key(folder, "c", new_key(tmp_path / "of c", "c"))
    add_key(folder, "tower", found.private.public_key().public_bytes(
        Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
    found.changed()
    assert names(found) == ["a", "b", "tower"]
    with pytest.raises(ConfigError, match=r"c.pub is a key too many"):
        Folder(folder)


def test_a_member_has_a_name_of_its_key(folder):
    """Nobody finds out only from others that it may not have it."""
    with pytest.raises(ConfigError, match="take 'tower', or one that begins with 'tower/'"):
        Channel(new_group(), name="radar", stack="inproc", trust=folder)
    with Channel(new_group(), stack="inproc", trust=folder) as channel:
        assert channel.address.name.startswith("tower/")
    assert Folder(folder).name("recorder") == "tower/recorder"
    assert Folder(folder).name("tower") == "tower"


def test_a_key_whose_file_has_too_long_a_name_is_named(folder):
    """The caller has given no name of a member."""
    for end in (".key", ".pub"):
        (folder / f"tower{end}").rename(folder / f"{'t' * 60}{end}")
    with pytest.raises(ConfigError, match=r"t{60}.key has so long a name .* at most 40 bytes"):
        Channel(new_group(), stack="inproc", trust=folder)
    with pytest.raises(ConfigError, match="name='radar' is not a name of the key"):
        Channel(new_group(), name="radar", stack="inproc", trust=folder)
    Channel(new_group(), name="t" * 60, stack="inproc", trust=folder).close()


def test_trusted_keys_and_insecure_exclude_each_other(folder):
    with pytest.raises(ConfigError, match="trust= and insecure=True exclude each other"):
        Channel(new_group(), name="tower", stack="mcast-tcp", trust=folder, insecure=True)


def trust(*words):
    return subprocess.run([*RINGCAST, "trust", *map(str, words)], capture_output=True, text=True)


def test_the_command_makes_adds_lists_and_removes_keys(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    made = trust("new", one, "tower"), trust("new", two, "radar")
    assert [run.returncode for run in made] == [0, 0], made
    line = made[0].stdout.strip()
    assert line == (one / "tower.pub").read_text().strip()
    secret = (one / "tower.key").read_text().splitlines()[1]
    assert secret not in made[0].stdout + made[0].stderr
    assert trust("add", two, "tower", line).returncode == 0
    added = trust("add", one, "radar", two / "radar.pub")
    key = read_private(two / "radar.key").public_key().public_bytes_raw()
    assert added.stdout == f"radar is trusted: {fingerprint(key)}\n"
    listed = trust("list", one).stdout
    assert fingerprint(key) in listed and "our own" in listed and listed.count("SHA256:") == 2
    keys = [json.loads(line)["key"] for line in trust("list", one, "--json").stdout.splitlines()]
    assert [(each["name"], each["own"]) for each in keys] == [("radar", False), ("tower", True)]
    assert keys[0]["fingerprint"] == fingerprint(key)
    assert trust("remove", one, "radar").stdout == "radar is trusted no more\n"
    assert "radar" not in trust("list", one).stdout
    for words, said in ((("new", one, "again"), "already"),
                        (("add", one, "x", "nothing"), "neither"),
                        (("remove", one, "radar"), "cannot be removed"),
                        (("list", tmp_path / "none"), "cannot be read")):
        refused = trust(*words)
        assert refused.returncode == 2 and said in refused.stderr, refused


def test_the_command_lists_what_is_trusted_and_says_what_is_wrong(folder):
    """Of a file that cannot be read (a link in a circle: root reads whatever its mode)
    also that members may trust its key, as it was."""
    (folder / "radar.pub").rename(folder / "circle")
    (folder / "radar.pub").symlink_to("radar.pub")
    (folder / "bad.pub").write_text("no key")
    os.mkfifo(folder / "pipe.pub")
    for words in ((), ("--json",)):
        listed = trust("list", folder, *words)
        assert listed.returncode == 1 and listed.stdout.count("SHA256:") == 1
        assert "tower" in listed.stdout and "radar" not in listed.stdout
        pipe, bad, radar = listed.stderr.splitlines()
        assert "bad.pub has no public key" in bad and "radar.pub cannot be read" in radar
        assert pipe.endswith("pipe.pub is not a regular file; it is not trusted")
        for each in (bad, radar):
            assert each.endswith("; members that have read its key trust it until the file is "
                                 "removed")
    with pytest.raises(ConfigError, match="pipe.pub is not a regular file"):
        Folder(folder)
    for name in ("radar", "bad", "pipe"):
        (folder / f"{name}.pub").unlink()
    assert trust("list", folder).returncode == 0


def test_a_key_that_cannot_be_read_is_trusted_until_its_file_is_removed(folder):
    """As after `chmod 0`, which root does not notice."""
    found = Folder(folder)
    (folder / "radar.pub").unlink()
    (folder / "radar.pub").symlink_to("radar.pub")
    assert "radar.pub cannot be read" in found.changed().unread[0]
    assert names(found) == ["radar", "tower"]
    remove_key(folder, "radar")
    assert found.changed().faults == [] and names(found) == ["tower"]


@pytest.mark.parametrize("half", ["", "ssh-ed", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5", "x" * 5000])
def test_a_key_is_trusted_until_the_one_that_is_copied_over_it_is_whole(folder, tmp_path, half):
    found, new = Folder(folder), new_key(tmp_path / "new", "radar")
    old = next(key for key, names in found.names.items() if names == {"radar"})
    (folder / "radar.pub").write_text(half)
    changed = found.changed()
    assert old in changed.names and changed.faults == []
    assert "radar.pub has no public key" in changed.unread[0] or len(half) == 5000
    assert found.changed() == (changed.names, [], [])
    (folder / "radar.pub").write_text(new)
    assert old not in found.changed().names and names(found) == ["radar", "tower"]
    assert found.changed() is None


def test_keys_of_ssh_keygen_are_keys(tmp_path):
    """As it writes them; its own file names are others."""
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "tower.key")]
    try:
        subprocess.run(keygen, check=True)
    except FileNotFoundError:
        pytest.skip("there is no ssh-keygen")
    (tmp_path / "tower.key.pub").rename(tmp_path / "tower.pub")
    assert list(Folder(tmp_path).names.values()) == [frozenset(["tower"])]
