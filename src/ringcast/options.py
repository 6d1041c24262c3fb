"""The options of a channel as keyword arguments, for type checkers and editors.

Type checkers read types from the text of a program and run none of it. So this file is
generated from config.py, by docs/generate_reference.py. Do not edit it.
"""

from typing import Literal, TypedDict


class Options(TypedDict, total=False):
    """The options of a channel, each with its meaning, values and default. A function
    passes them on as `**options: Unpack[Options]`.

    If nothing else is said, times are in milliseconds and sizes in bytes.
    """

    capacity: int
    """Messages that a send window or a receive window holds at most (MCAST.txt:
    capacity).
    Values: whole number from 1 up to 67108864. Default: `32768`."""

    max_bytes: int
    """Bytes of messages that a window holds at most. While receivers wait for a repeat,
    a send window holds up to half as many more, which they have (decision 7).
    Values: whole number from 1 up to 1e+18. Default: `8388608`."""

    xmit_interval: float
    """Milliseconds between two scans, which repeat acks and the highest seqno; more in
    large groups (decision 38). Gaps are looked for up to twelve times as often
    (decision 9). 0 or less: no retransmission; only nakack2-tcp can do without.
    Values: number up to 86400000. Default: `3`; nakack2-tcp: `0`."""

    ack_threshold: int
    """Delivered messages after which an ack is sent immediately (MCAST.txt: N).
    Values: whole number from 1 up to 1e+18. Default: `4096`."""

    use_ring_buffer: bool
    """Use windows of fixed size instead of tables that grow with what they hold.
    Values: `True`, `False`. Default: `False`. Only with nakack2-udp, nakack2-tcp."""

    discard_delivered_msgs: bool
    """Let a receiver free a message as soon as its own application has finished it;
    otherwise when the applications of all members have. In a view of three or more it
    keeps them for the others in any case, until they are stable.
    Values: `True`, `False`. Default: `True`. Only with nakack2-udp, nakack2-tcp."""

    become_server_queue_size: int
    """Messages that are kept while their receive window does not exist yet. Without
    retransmission all are kept.
    Values: whole number from 1 up to 1e+18. Default: `50`. Only with nakack2-udp,
    nakack2-tcp."""

    gap_timeout: float
    """Milliseconds after which a gap is reported as a warning, where there is no
    retransmission.
    Values: number from 0.001 up to 86400000. Default: `5000`. Only with nakack2-tcp."""

    stable_interval: float
    """Milliseconds between two rounds of votes, while some message is not known to be
    stable; more in large groups (decision 38).
    Values: number from 0.001 up to 86400000. Default: `20`. Only with nakack2-udp,
    nakack2-tcp."""

    stable_bytes: int
    """Finished bytes after which a vote is sent as soon as it is this member's turn
    (decision 38).
    Values: whole number from 1 up to 1e+18. Default: `1048576`. Only with nakack2-udp,
    nakack2-tcp."""

    ack_min_interval: float
    """Shortest time between two acks of one connection, in milliseconds (UNICAST3.txt:
    min time).
    Values: number from 0.001 up to 86400000. Default: `0.2`."""

    ack_max_interval: float
    """Longest time from when a message is finished until it is acknowledged, in
    milliseconds (UNICAST3.txt: max time).
    Values: number from 0.001 up to 86400000. Default: `1`."""

    sync_min_interval: float
    """Shortest time between two SEND_FIRST_SEQNOs to one member, and between two
    answers to one member, in milliseconds.
    Values: number from 0.001 up to 86400000. Default: `10`."""

    conn_expiry_timeout: float
    """Milliseconds after which an idle connection closes; 0: it never does.
    Values: number from 0 up to 86400000. Default: `120000`."""

    conn_close_timeout: float
    """Milliseconds after which a connection that closes is closed and forgotten.
    Values: number from 0.001 up to 86400000. Default: `10000`."""

    max_closed_connections: int
    """Closed connections whose highest delivered seqno is remembered (decision 16).
    Values: whole number from 0. Default: `1024`."""

    max_message_size: int
    """Bytes of the largest message; the same at all members.
    Values: whole number from 1 up to 2147483648. Default: `16777216`."""

    frag_timeout: float
    """Milliseconds after which a receiver drops an incomplete message that its sender
    does not go on with. A send() that waits for room gives such a message up after half
    of that.
    Values: number from 0.001 up to 86400000. Default: `60000`."""

    heartbeat_interval: float
    """Milliseconds between two heartbeats of a member (ALIVE).
    Values: number from 0.001 up to 86400000. Default: `200`."""

    suspect_timeout: float
    """Milliseconds of silence after which a member is probed, and then suspected.
    Values: number from 0.001 up to 86400000. Default: `2000`."""

    seek_interval: float
    """Milliseconds between two questions of a member that looks for its group (SEEK).
    Values: number from 0.001 up to 86400000. Default: `50`; inproc: `5`."""

    form_margin: float
    """Milliseconds without anybody new, after which members without a group form one.
    Values: number from 0.001 up to 86400000. Default: `300`; inproc: `100`."""

    min_members: int
    """With fewer members this one forms no group; connect() waits for so many.
    Values: whole number from 1 up to 256. Default: `1`."""

    partition: Literal["merge", "primary"]
    """What goes on when the group comes apart: "merge", every part; or "primary", only
    the part with a majority of the last primary view: in the others send() raises
    NoQuorumError. "primary" needs min_members, too.
    Values: `merge`, `primary`. Default: `merge`."""

    absence: float
    """Seconds for which the others wait for a durable member that went without leaving,
    and keep what it has not acknowledged.
    Values: number from 0.001 up to 2678400. Default: `3600`."""

    join_timeout: float
    """Milliseconds that connect() waits for a view of min_members, unless it is given a
    timeout.
    Values: number from 0.001 up to 86400000. Default: `30000`."""

    leave_timeout: float
    """Milliseconds that a member that leaves waits for the others to notice it.
    Values: number from 0.001 up to 86400000. Default: `2000`."""

    max_datagram: int
    """Bytes of the largest datagram. Over UDP, off loopback, it is limited to the
    interface's MTU less 28 bytes of headers as well; give less if some part of the path
    has a smaller MTU.
    Values: whole number from 512 up to 65507. Default: `65507`."""

    max_bundle_size: int
    """Bytes of a datagram that several messages are bundled into; at most max_datagram.
    Values: whole number from 512 up to 65507. Default: `60000`."""

    bundle_delay: float
    """Milliseconds that messages wait for others, after a full datagram; after any
    other they leave at once, or as soon as the sender's thread gives way.
    Values: number from 0.001 up to 86400000. Default: `0.3`."""

    oob_in_order: bool
    """Deliver OOB messages at their place in the order, as a recorder of the order
    needs it.
    Values: `True`, `False`. Default: `False`."""

    max_undelivered: int
    """Messages that the application may have at a time: given to it, and not finished
    by it.
    Values: whole number from 1 up to 1e+18. Default: `65536`."""

    state_backlog: int
    """Bytes of messages that a member holds back until it has been given the
    application's state; with more, their senders wait.
    Values: whole number from 1 up to 1e+18. Default: `1073741824`."""

    status_file: bool
    """Write what status() says into a file that only this user can read, at most every
    100 ms, for `ringcast status` and `ringcast top`.
    Values: `True`, `False`. Default: `True`."""

    trace: str
    """Directory into which a trace for `ringcast audit` is written; empty: no trace.
    Values: text. Default: empty."""

    cipher: Literal["aes-256-gcm", "chacha20-poly1305"]
    """What encrypts and authenticates datagrams in a sealed group; the same at all
    members. ChaCha20 is quicker where the processor has no instructions for AES.
    Values: `aes-256-gcm`, `chacha20-poly1305`. Default: `aes-256-gcm`."""

    rekey_interval: float
    """Seconds after which the members of a view with a key get another one, by a view
    with the same members; 0: only when the members change.
    Values: number from 0 up to 2678400. Default: `3600`."""

    busy_poll: float
    """Milliseconds that a thread that waits for a message polls the network before it
    sleeps; 0: it sleeps at once, as it always does on a machine with one core.
    Values: number from 0 up to 10. Default: `0.1`. Not with inproc."""

    port: int
    """UDP: port of the multicast group. TCP: the first port that a member tries to
    listen on.
    Values: whole number from 1 up to 65535. Default: `7700`. Not with inproc."""

    interface: str
    """IPv4 address of the network interface to use; one that is not loopback needs a
    secret, trusted keys, or `insecure`.
    Values: text. Default: `127.0.0.1`. Not with inproc."""

    insecure: bool
    """Allow an interface other than loopback without a secret or trusted keys:
    everybody on that network may read and write the group's messages.
    Values: `True`, `False`. Default: `False`. Not with inproc."""

    group_address: str
    """IPv4 multicast address of the group; empty: one in 239.255.0.0/16 that follows
    from its name.
    Values: text. Default: empty. Only with mcast-udp, nakack2-udp."""

    ttl: int
    """Routers that a multicast datagram may pass, plus one; 0: it does not leave this
    machine.
    Values: whole number from 0 up to 255. Default: `1`. Only with mcast-udp,
    nakack2-udp."""

    receive_buffer: int
    """Bytes of receive buffer asked of the kernel for each socket; UDP needs 65536 or
    more.
    Values: whole number from 4096. Default: `16777216`. Not with mcast-tcp,
    nakack2-tcp."""

    port_range: int
    """Number of ports, from `port` on; a member listens on the first that is free.
    Values: whole number from 1 up to 1024. Default: `32`. Only with mcast-tcp,
    nakack2-tcp."""

    hosts: str
    """Where other members may be, as address:port,address:port,...; empty: at the own
    interface, on all ports of the range.
    Values: text. Default: empty. Only with mcast-tcp, nakack2-tcp."""

    max_unsent: int
    """Bytes that may wait for a slow member; with more its connection is cut.
    Values: whole number from 1048576. Default: `67108864`. Only with mcast-tcp,
    nakack2-tcp."""

    link_timeout: float
    """Milliseconds after which the connection to a peer that has vanished is cut.
    Values: number from 0.001 up to 86400000. Default: `5000`. Only with mcast-tcp,
    nakack2-tcp."""
