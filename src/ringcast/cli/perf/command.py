"""`ringcast perf`: its options, and what its columns mean."""

from typing import Annotated, Any

import typer

from ringcast.cli.app import app
from ringcast.cli.options import JsonFile, SecretFile, TrustFolder
from ringcast.cli.perf.legends import MULTICAST, ROUND_TRIPS, UNICAST
from ringcast.config import STACK_NAMES

MAX_MEMBERS = 16
STANDARD_STACKS = ("mcast-udp",)
UNICAST_STACKS = ("mcast-udp", "inproc")
SIZES = ["1000", "100"]                 # bytes, by default
ROUND_TRIP_SIZE = "100"
HELP_LEGENDS = [MULTICAST, "Throughput with --unicast. " + UNICAST,
                "Round trips with --unicast. " + ROUND_TRIPS]


@app.command(epilog="\n\n".join(legend.replace("\n", " ") for legend in HELP_LEGENDS))
def perf(
    members: Annotated[int | None, typer.Option(
        help=f"Processes in the group, 2 to {MAX_MEMBERS}.  [default: 2]")] = None,
    senders: Annotated[str | None, typer.Option(
        help="Number of members that send, or all.  [default: 1]")] = None,
    batch: Annotated[int | None, typer.Option(
        help="Messages that each call sends.  [default: 1]")] = None,
    rate: Annotated[int | None, typer.Option(
        help="Messages that each sender sends in a second, and then how long they take.  "
             "[default: as many as it can]")] = None,
    loss: Annotated[float | None, typer.Option(
        help="Probability, 0 to 0.9, that a member loses a datagram that reached it.  "
             "[default: 0]")] = None,
    stack: Annotated[list[str] | None, typer.Option(
        help=f"Stack of the group: {', '.join(STACK_NAMES)}. Repeat it, or give a list with "
             "commas, to compare several in turns.  "
             f"[default: mcast-udp; --unicast: {', '.join(UNICAST_STACKS)}]")] = None,
    unicast: Annotated[bool, typer.Option(
        "--unicast", help="Measure messages to one member instead: throughput, compared with "
                          "multicast to a group with one receiver, and round trips.")] = False,
    size: Annotated[list[str] | None, typer.Option(
        help="Bytes of a message. Repeat it, or give a list with commas.  "
             f"[default: 1000,100; round trips: {ROUND_TRIP_SIZE}]")] = None,
    seconds: Annotated[float, typer.Option(help="Seconds of sending in each run.")] = 0.7,
    runs: Annotated[int, typer.Option(help="Runs of each row; the figures are their medians.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of the payloads and of the loss.")] = 1,
    naive: Annotated[bool | None, typer.Option(
        "--naive/--no-naive", help="Also measure the naive bundle.  "
                                   "[default: naive, without --unicast]")] = None,
    timeout: Annotated[float, typer.Option(
        help="Seconds that members may take for each of: joining, receiving the rest, "
             "closing.")] = 20.0,
    json_file: JsonFile = None,
    group_address: Annotated[str | None, typer.Option(help="IPv4 multicast group.")] = None,
    port: Annotated[int | None, typer.Option(
        help="UDP port of the multicast group, or the first TCP port.")] = None,
    interface: Annotated[str | None, typer.Option(help="Address of the interface to use.")] = None,
    insecure: Annotated[bool, typer.Option(
        "--insecure", help="Allow an interface other than loopback, unencrypted.")] = False,
    secret_file: SecretFile = None,
    trust: TrustFolder = None,
    receive_buffer: Annotated[int | None, typer.Option(
        help="Bytes of the receive buffer requested for each socket.")] = None,
    capacity: Annotated[int | None, typer.Option(
        help="Messages in a transmission window.")] = None,
    max_bytes: Annotated[int | None, typer.Option(help="Bytes in a transmission window.")] = None,
    max_bundle_size: Annotated[int | None, typer.Option(
        help="Largest datagram, in bytes, that messages are bundled into.")] = None,
    bundle_delay: Annotated[float | None, typer.Option(
        help="Milliseconds that messages wait for others after a full datagram.")] = None,
    ack_threshold: Annotated[int | None, typer.Option(
        help="Deliveries after which an ack is sent at once.")] = None,
    xmit_interval: Annotated[float | None, typer.Option(
        help="Milliseconds between two scans for gaps.")] = None,
) -> None:
    """Measure the throughput of a group on this machine, or the cost of a message to
    one member.

    Without --members, --senders, --batch, --rate, --loss and --unicast, it measures the
    standard table, which takes about a minute: one sender with 1, 2 and 3 receivers,
    the naive bundle, calls with 100 messages, 5 % loss, three members that all send,
    and how long messages take at 10,000 a second. With one of these options, it
    measures that row alone. With several stacks, every row is measured with each of
    them, in turns.

    With --secret-file or --trust every row is measured sealed and not sealed, in turns;
    with --unicast only sealed.

    With --unicast one member sends to one other: over UDP between two processes, and
    (inproc) within one process. First it sends as fast as it can, in turns with
    multicast. Then it waits for an answer each time, in turns with bare UDP sockets.
    --loss then applies to all rows except the bare sockets. This takes about a minute
    too.

    Exit status: 0 when every receiver of every run got every message once and in order,
    1 when not or when a member died or hung, 2 for a mistake in the call.
    """
    options = given(group_address=group_address, port=port, interface=interface,
                    insecure=insecure or None, receive_buffer=receive_buffer, capacity=capacity,
                    max_bytes=max_bytes, max_bundle_size=max_bundle_size,
                    bundle_delay=bundle_delay, ack_threshold=ack_threshold,
                    xmit_interval=xmit_interval)
    from ringcast.cli.perf.measure import measure_rows

    measure_rows(options, members=members, senders=senders, batch=batch, rate=rate, loss=loss,
                 stack=stack, unicast=unicast, size=size, seconds=seconds, runs=runs, seed=seed,
                 naive=naive, timeout=timeout, json_file=json_file, secret_file=secret_file,
                 trust=trust)


def given(**properties: Any) -> dict[str, Any]:
    """Return the properties of a Channel that were given."""
    return {name: value for name, value in properties.items() if value is not None}
