"""A kind is declared once, beside its layer: the stack splits packets by it, and
whoever looks at datagrams reads it there."""

from dataclasses import replace

import msgspec
import pytest

from ringcast import Address
from ringcast._core import wire
from ringcast.kinds import Kind, takes
from ringcast.protocols.multicast import base as multicast, mcast, stable
from ringcast.protocols.parts import PART
from ringcast.protocols.unicast3 import control
from ringcast.sim.cluster import Cluster
from ringcast.sim.runs.measure import Meter
from ringcast.sim.trace import Trace
from ringcast.sim.transcripts.language import Entry, Mismatch, Transcript
from ringcast.sim.transcripts.scripted import ScriptedCluster, ScriptedMember
from ringcast.sim.transcripts.verbs.group import VERBS
from ringcast.stack import Layer, Packet, Stack
from ringcast.stacks import STACKS

ME, OTHER = Address("A", 1), Address("B", 2)


class Ping(msgspec.Struct, array_like=True):
    number: int


PING = Kind(200, "ping", Ping, about="number")
SHOUT = Kind(201, "shout", measured="data")
STRANGE = 99                            # a number that nobody declares


class Echo(Layer):
    """A layer that somebody else wrote: it pings, shouts, and remembers what it has
    heard."""

    def __init__(self):
        self.heard = []
        self.batches = 0

    def ping(self, number, now):
        self.below.send([self.stack.control(PING, Ping(number))], now)

    def shout(self, payload, now):
        local, group = self.stack.local.incarnation, self.stack.group
        datagram = wire.make_datagram(SHOUT, group, local, 0, payload)
        self.below.send([Packet(SHOUT, local, 0, datagram)], now)

    @takes(PING)
    def _on_ping(self, sender, ping, now):
        self.heard.append((sender, ping.number))
        return ping.number >= 0

    @takes(SHOUT)
    def _on_shout(self, packet, now):
        self.heard.append((packet.sender, bytes(packet.data[wire.HEADER_SIZE:])))

    def received(self, now):
        self.batches += 1


class Above(Layer):
    """Takes everything."""

    def __init__(self):
        self.got = []

    def receive(self, packets, now):
        self.got.append([(packet.kind, bytes(packet.data[wire.HEADER_SIZE:]))
                         for packet in packets])


def said(kind, body, sender=OTHER):
    stack = Stack([Layer()], local=sender, group="kinds")
    return wire.make_datagram(kind, stack.group, sender.incarnation, 0, body)


def stack_of(*layers):
    return Stack(layers, local=ME, group="kinds")


def ping(number):
    return said(PING, msgspec.msgpack.encode(Ping(number)))


# ---------------------------------------------------------------------------------------- the split

def test_a_packet_goes_to_the_method_that_takes_its_kind_and_all_others_go_up_in_one_batch():
    above, echo = Above(), Echo()
    stack = stack_of(above, echo)
    stack.receive([said(STRANGE, b"1"), ping(7), said(STRANGE, b"2"), said(SHOUT, b"hello"),
                   said(STRANGE, b"3")], 0)
    assert echo.heard == [(2, 7), (2, b"hello")] and echo.batches == 1
    assert above.got == [[(STRANGE, b"1"), (STRANGE, b"2"), (STRANGE, b"3")]]


def test_a_batch_without_a_packet_for_the_layer_only_passes():
    above, echo = Above(), Echo()
    stack_of(above, echo).receive([said(STRANGE, b"")], 0)
    assert above.got == [[(STRANGE, b"")]] and echo.batches == 0


def test_a_packet_alone_goes_past_layers_that_take_other_kinds():
    echo, between = Echo(), Layer()
    stack = stack_of(echo, between)
    between.receive = None                              # to call it would raise
    stack.receive([ping(7)], 0)
    assert echo.heard == [(2, 7)]


def test_a_packet_alone_stops_at_a_layer_that_looks_at_all():
    class Deaf(Layer):
        def receive(self, packets, now):
            pass

    echo = Echo()
    stack_of(echo, Deaf(), Layer()).receive([ping(7)], 0)
    assert echo.heard == []


def test_packets_go_down_past_layers_that_would_only_pass_them_on():
    class Counting(Layer):
        sent = 0

        def send(self, packets, now):
            self.sent += len(packets)
            self.below.send(packets, now)

    top, between, counting, last = Layer(), Layer(), Counting(), Layer()
    stack = stack_of(top, between, counting, last)
    between.send = last.send = None                     # to call it would raise
    top.send([stack.datagram(STRANGE, b"")], 0)
    assert counting.sent == 1 and len(stack.take().packets) == 1


def test_a_packet_alone_that_nobody_takes_is_counted():
    stack = stack_of(Layer(), Echo())
    stack.receive([said(STRANGE, b"")], 0)
    assert stack.status().wire.unhandled == 1


def test_nothing_goes_up_of_a_batch_that_is_all_for_the_layer():
    above, echo = Above(), Echo()
    stack_of(above, echo).receive([ping(1), ping(2)], 0)
    assert above.got == [] and echo.batches == 1


@pytest.mark.parametrize("body", [
    b"", b"\xc1", b"\x91\xa1x", msgspec.msgpack.encode([]), msgspec.msgpack.encode(Ping(-1)),
    b"\x91" * 5000, b"\x91\xa1\xff"], ids=repr)
def test_a_body_that_cannot_be_decoded_or_makes_no_sense_is_counted(body):
    stack = stack_of(Above(), Echo())
    stack.receive([said(PING, body)], 0)
    assert stack.status().wire.malformed == 1


def test_a_layer_may_have_a_counter_of_its_own():
    class Counting(Echo):
        num_bad = 0

        def count_bad(self):
            self.num_bad += 1

    layer = Counting()
    stack = stack_of(layer)
    stack.receive([said(PING, b"")], 0)
    assert layer.num_bad == 1 and stack.status().wire.malformed == 0


def test_a_method_of_a_subclass_takes_the_place_of_the_one_that_is_marked():
    class Deaf(Echo):
        def _on_shout(self, packet, now):
            self.heard.append("nothing")

    layer = Deaf()
    stack_of(layer).receive([said(SHOUT, b"hello"), ping(1)], 0)
    assert layer.heard == ["nothing", (2, 1)]


def test_what_a_method_returns_goes_up_in_the_place_of_what_it_took():
    class Opener(Layer):
        @takes(SHOUT)
        def _open(self, packet, now):
            return Packet(STRANGE, packet.sender, packet.dest, packet.data)

    above = Above()
    stack_of(above, Opener()).receive([said(STRANGE, b"1"), said(SHOUT, b"2"), said(STRANGE, b"3")],
                                      0)
    assert above.got == [[(STRANGE, b"1"), (STRANGE, b"2"), (STRANGE, b"3")]]


# --------------------------------------------------------------------------------- the declarations

@pytest.mark.parametrize("number, name", [(int(PING), "pong"), (77, "ping")])
def test_two_layers_of_a_stack_cannot_have_one_number_or_one_name(number, name):
    class Other(Layer):
        @takes(Kind(number, name))
        def _on_pong(self, packet, now):
            pass

    with pytest.raises(ValueError) as raised:
        stack_of(Echo(), Other())
    assert str(raised.value) == (
        f"Other declares the kind {number}, {name!r}, and a layer above it 200, 'ping'; "
        "in a stack each number and each name stands for one kind")


def test_two_methods_of_a_layer_cannot_take_one_kind():
    with pytest.raises(TypeError, match=r"Twice takes Kind\(200, 'ping'\) in two methods, "
                                        "_on_ping and _again; one must go"):
        class Twice(Echo):
            @takes(PING)
            def _again(self, sender, ping, now):
                pass


@pytest.mark.parametrize("number", [0, 256, -1])
def test_a_kind_is_one_byte(number):
    with pytest.raises(ValueError,
                       match=f"the kind 'ping' has the number {number}; it may have 1 to 255"):
        Kind(number, "ping")


@pytest.mark.parametrize("stack, has, lacks", [("mcast-udp", mcast.ACK, stable.VOTE),
                                               ("nakack2-tcp", stable.VOTE, mcast.ACK)])
def test_a_stack_knows_the_kinds_of_its_layers_and_no_others(stack, has, lacks):
    kinds = Cluster("A", stack=stack).start()["A"].stack.kinds
    assert kinds[has] is has and lacks not in kinds
    assert {multicast.DATA, control.MESSAGE, PART} <= kinds.keys()


def test_a_kind_that_no_layer_takes_has_a_name_all_the_same():
    stack = stack_of(Echo())
    assert stack.kind(PING) is PING and stack.kind(STRANGE).name == "kind 99"
    assert STRANGE not in stack.kinds


def test_what_a_datagram_says():
    ack = said(control.ACK, msgspec.msgpack.encode(control.Ack(5, 7, 9, 1000)))
    assert (control.ACK.ranges(ack), control.ACK.conn_id(ack), control.ACK.timestamp(ack)) == (
        [(7, 7)], 5, 9)
    refusal = said(control.ACK, msgspec.msgpack.encode(control.Ack(5, None, 9, 0)))
    assert control.ACK.ranges(refusal) == [] and control.ACK.conn_id(refusal) == 5
    request = said(multicast.XMIT_REQ, msgspec.msgpack.encode(multicast.XmitReq([(2, 2), (5, 6)])))
    assert multicast.XMIT_REQ.ranges(request) == [(2, 2), (5, 6)]
    assert multicast.XMIT_REQ.conn_id(request) is None
    vote = said(stable.VOTE, msgspec.msgpack.encode(stable.Vote(1, True, 1, {})))
    assert stable.VOTE.ranges(vote) == [] and stable.VOTE.timestamp(vote) is None
    for kind, datagram in ((multicast.HIGHEST, b""), (control.CLOSE, b"\xc1"),
                           (multicast.DATA, b"x" * 40), (SHOUT, b"hello")):
        assert kind.ranges(said(kind, datagram)) == []
        assert kind.timestamp(said(kind, datagram)) is None


# --------------------------------------------------------------------------- who looks at datagrams

class Visited(ScriptedMember):
    """A simulated member whose stack has the layer on top."""

    def act(self, do, what):
        do(self.endpoint.layer(Echo), what, self.clock.read(self.cluster.now))
        self.turn()


def add_echo(monkeypatch, stack):
    monkeypatch.setitem(STACKS, stack,
                        replace(STACKS[stack], extra=(lambda local, config, multicast: Echo(),)))


@pytest.mark.parametrize("stack", ["mcast-udp", "nakack2-udp", "nakack2-tcp"])
def test_a_transcript_calls_a_strangers_kind_by_its_name(monkeypatch, stack):
    def pings(words):
        """`pings A 3`: an example."""
        name, number = words.member(), words.number()
        return lambda play: play.member(name).act(Echo.ping, number)

    add_echo(monkeypatch, stack)
    monkeypatch.setattr(ScriptedCluster, "member_type", Visited)
    table = VERBS | {"pings": Entry(pings, expects=False)}
    loss = "" if "tcp" in stack else "drop A>B ping 3"
    play = Transcript("it.txt", f"members A B stack={stack}\n{loss}\npings A 3\npings A 4\n"
                                "run 10ms\nsent A>* ping 3 4\nsend A 1\nsettle\ndelivered B A 1",
                      table).play()
    a, b = play.member("A"), play.member("B")
    assert b.endpoint.layer(Echo).heard == [(a.incarnation, number)
                                            for number in ((3, 4) if "tcp" in stack else (4,))]
    assert any(str(each).startswith("A>*  ping 4") for each in play.group.script.history)
    with pytest.raises(Mismatch, match=r"(?s)instead: 3.*A>\*  ping 3"):
        Transcript("it.txt", f"members A B stack={stack}\npings A 3\nrun 10ms\nsent A>* ping 5",
                   table).play()


def test_a_trace_and_a_measurement_have_a_strangers_kinds(tmp_path, monkeypatch):
    from pyarrow import parquet

    add_echo(monkeypatch, "mcast-udp")
    monkeypatch.setattr(Cluster, "member_type", Visited)
    group = Cluster("AB")
    with Trace(group, tmp_path) as trace:
        group.start()
        group.run(1000)
        group.observer = meter = Meter(group, group.now, group.now + 1)
        group["A"].act(Echo.ping, 7)
        group["A"].act(Echo.shout, b"hello")
        group.settle()
    path = trace.recorders[group["A"]].writer.folder
    rows = [row for part in sorted(path.glob("*.parquet"))
            for row in parquet.read_table(part).to_pylist()]
    assert sorted(row["ev"] for row in rows) == [*range(len(rows))]
    size = wire.HEADER_SIZE
    assert [(row["event"], row["peer"],
             row["nbytes"]) for row in rows if row["event"].startswith("sent ")] == [
("sent ping", None, size + 2), ("sent shout", None, size + 5)]
    assert meter.datagrams == {"control": 1, "data": 1} and meter.nbytes == {"control": size + 2,
                                                                             "data": size + 5}
