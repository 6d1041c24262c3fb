"""Options as users write them, for type checkers. Nothing here runs.

Where a line is marked, it has a mistake. A checker that does not find it reports that
the mark is not needed.
"""

from typing import Unpack, assert_type

from ringcast import Channel, Flag, Message, Options, aio
from ringcast.outbox.publisher import channel_factory


def opens(**options: Unpack[Options]) -> Channel:
    """Pass options on, as a user's function does."""
    return Channel("prices", name="A", **options)


def is_right() -> None:
    assert_type(Channel("prices", capacity=1000, bundle_delay=1, partition="primary"), Channel)
    assert_type(aio.Channel("prices", name="A", insecure=True, ttl=2), aio.Channel)
    opens(min_members=2, trace="traces")
    channel_factory("prices", name="A", stack="mcast-udp", max_bytes=1 << 20)


def has_a_wrong_name() -> None:
    Channel("prices", capacty=1000)                     # type: ignore[call-arg]
    aio.Channel("prices", capacty=1000)                 # type: ignore[call-arg]
    opens(capacty=1000)                                 # type: ignore[call-arg]
    channel_factory("prices", name="A", stack="mcast-udp", capacty=1)   # type: ignore[call-arg]


def has_a_wrong_type() -> None:
    Channel("prices", capacity="1000")                  # type: ignore[arg-type]
    Channel("prices", capacity=1000.0)                  # type: ignore[arg-type]
    Channel("prices", insecure="no")                    # type: ignore[arg-type]
    Channel("prices", partition="both")                 # type: ignore[arg-type]
    aio.Channel("prices", heartbeat_interval="200ms")   # type: ignore[arg-type]
    opens(hosts=["10.0.0.1:7700"])                      # type: ignore[arg-type]


def uses_flags(channel: Channel, message: Message) -> None:
    assert_type(message.flags, Flag)
    channel.send(message.payload, flags=message.flags & Flag.OOB | Flag.DONT_LOOPBACK)
    channel.send(message.payload, flags=3)              # type: ignore[arg-type]
    channel.send_many([], flags=True)                   # type: ignore[arg-type]
