"""The commands join, record and members in a sealed group."""

import json
import subprocess

from channels import PATIENCE, new_group
from ports import free_port
from processes import RINGCAST, wait_for

from ringcast import Channel
from ringcast.cli.ask import ask


def check_commands(tmp_path, stack, flags, named, listed, **access):
    """They meet a channel with this `access` if they are given these `flags`, and show
    the group as `listed`. Without the flags nobody is heard. The terminal is `named`.
    """
    port, group = free_port(), new_group()
    words = ["--stack", stack, "--set", f"port={port}", *map(str, flags)]
    recorder = subprocess.Popen([*RINGCAST, "record", str(tmp_path / "journal"), "--group", group,
                                 "--quiet", *words], stdout=subprocess.PIPE)
    terminal = subprocess.Popen([*RINGCAST, "join", group, "--name", named, "--json", *words],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        with Channel(group, name="A", min_members=3, deliver=False, stack=stack, port=port,
                     **access) as channel:
            channel.send(b"sealed")
            said = subprocess.run([*RINGCAST, "members", group, *words], capture_output=True,
                                  text=True, timeout=PATIENCE)
            assert sorted(said.stdout.split()) == listed, said.stderr
            assert ask(group, stack, "multicast", 0.5, {"port": port}) == []
            heard = (json.loads(line) for line in terminal.stdout)
            assert next(each for each in heard if "message" in each)["message"]["payload"] == (
                "sealed")
            wait_for(lambda: not channel.status().multicast.num_unacked)
        terminal.stdin.close()
        assert terminal.wait(PATIENCE) == 0
        recorder.terminate()
        assert b"1 message recorded" in recorder.communicate(timeout=PATIENCE)[0]
    finally:
        for each in (recorder, terminal):
            each.kill()
            each.wait()
