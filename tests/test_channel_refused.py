"""A process that is killed: the layers of the others are told at once."""

import signal
import subprocess
import sys

import pytest
from channels import PATIENCE, new_group
from ports import free_port
from processes import wait_for

from ringcast import Channel
from ringcast._core import wire
from ringcast.address import Address
from ringcast.config import configure
from ringcast.endpoint import Endpoint
from ringcast.stack import Layer, group_id

MEMBER = """
from ringcast import Channel
with Channel("{group}", name="B", min_members=2, stack="{stack}", port={port}) as channel:
    print(channel.address.incarnation, flush=True)
    for message in channel:
        pass
"""


class Listener(Layer):
    """Next to the wire: what comes of members that are gone."""

    def __init__(self):
        self.heard = []

    def refused(self, member, now):
        self.heard.append(member)
        super().refused(member, now)


class Order(Listener):
    """Above: all that comes, in order."""

    def linked(self, member, now):
        self.heard.append(f"link {member}")
        super().linked(member, now)

    def receive(self, packets, now):
        self.heard += ["datagram"] * len(packets)
        super().receive(packets, now)

    def refused(self, member, now):
        super().refused(member, now)
        self.heard[-1] = f"gone {member}"


@pytest.mark.kill
@pytest.mark.parametrize("stack", ["mcast-tcp", pytest.param("mcast-udp", marks=pytest.mark.udp)])
def test_the_layers_of_a_channel_hear_of_a_process_that_was_killed(stack):
    port, group, listener = free_port(), new_group(), Listener()
    member = MEMBER.format(group=group, stack=stack, port=port)
    with subprocess.Popen([sys.executable, "-c", member], stdout=subprocess.PIPE) as process:
        a = Channel(group, name="A", min_members=2, stack=stack, port=port,
                    faults=[listener])
        try:
            a.connect(PATIENCE)
            incarnation = int(process.stdout.readline())
            assert listener.heard == []
            process.send_signal(signal.SIGKILL)
            wait_for(lambda: a.view.names == ("A",))
            assert set(listener.heard) == {incarnation}
        finally:
            process.kill()
            a.close()


def test_a_member_that_is_gone_comes_after_its_last_datagrams_and_goes_up_to_the_top():
    endpoint = Endpoint("inproc", Address("A", 1), configure({}, "inproc"), group="g",
                        receive_budget=1 << 20, faults=[Order(), Layer(), listener := Listener()])
    endpoint.start(0)
    farewell = wire.make_datagram(250, group_id("g"), 7, 0, b"")
    endpoint.receive([farewell], [7], 0, [7, 8])
    assert endpoint.layer(Order).heard == ["link 7", "datagram", "gone 7", "gone 8"]
    assert listener.heard == [7, 8]
