"""The status of a member: what each layer counts and where its pointers stand.

`Channel.status()` returns a Status. Each of its fields is one layer, and each field of
that is a number. A number is declared here once, with its unit, its meaning, and what
to think of it when it grows; docs/reference.md, `ringcast status` and the metrics take
the texts from here.

Names are those of the protocol texts and of operators (decision 25), and no two layers
have the same one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, ClassVar, get_args, get_type_hints

import msgspec
from msgspec import field


@dataclass(frozen=True, slots=True)
class Number:
    """What a field says: its unit, its meaning, and what you can conclude from it."""

    unit: str
    meaning: str
    sign: str

    falls: ClassVar[bool]       # it says how things are now, and does not only count


class Count(Number):
    """A number that counts from the start, and never falls."""

    falls = False


class Now(Number):
    """A number that says how something is now, and may fall."""

    falls = True


class Section(msgspec.Struct, kw_only=True):
    """What one layer says about itself. Its `repr` leaves out what is 0."""

    def __repr__(self) -> str:
        said = (f"{name}={value!r}" for name, value in msgspec.structs.asdict(self).items()
                if value)
        return f"{type(self).__name__}({', '.join(said)})"


class WireStatus(Section):
    """Datagrams that arrived and belong to no layer."""

    malformed: Annotated[int, Count(
        "datagrams", "datagrams that are damaged, or of another version",
        "More than a few: members with another version of ringcast, or another program that "
        "sends to this port.")] = 0
    foreign: Annotated[int, Count(
        "datagrams", "datagrams of another group, at the same address and port",
        "Grows: two groups share an address and port, and each reads what the other sends. Give "
        "one of them another `port` or `group_address`.")] = 0
    not_for_me: Annotated[int, Count(
        "datagrams", "datagrams for another member, or this member's own",
        "Normal over multicast: a member hears itself.")] = 0
    unhandled: Annotated[int, Count(
        "datagrams", "datagrams of a kind that no layer knows",
        "Not 0: a member has another version, or a layer that this one has not.")] = 0


class StateStatus(Section):
    """The application's state, for members that come."""

    num_states_given: Annotated[int, Count(
        "states", "states that this member has given to members that came",
        "Grows without new members: somebody leaves and joins again and again.")] = 0
    num_givers_lost: Annotated[int, Count(
        "members", "members that gave this one their state, and were lost or failed",
        "Not 0: look into the log of the other member, whose callback may have raised.")] = 0
    num_held_back: Annotated[int, Count(
        "messages", "messages that were held back until the application had its state",
        "Large: the state took long to come.")] = 0
    held_back_bytes: Annotated[int, Now(
        "bytes", "bytes of such messages that are held back",
        "Near the option `state_backlog`: senders wait for this member.")] = 0


class UnreliableStatus(Section):
    """Messages sent with NO_RELIABILITY."""

    unreliable_sent: Annotated[int, Count(
        "messages", "messages sent with NO_RELIABILITY", "As many as the application sent.")] = 0
    unreliable_delivered: Annotated[int, Count(
        "messages", "such messages that were delivered",
        "Less than what was sent: some were lost, and nobody repeats them.")] = 0
    unreliable_dropped: Annotated[int, Count(
        "messages", "such messages that were dropped: no room, or not of a member",
        "Grows: the application takes messages too slowly.")] = 0


class UnicastStatus(Section):
    """Messages to one member: UNICAST3."""

    num_connections: Annotated[int, Now(
        "connections", "connections for messages to one member, both directions",
        "About one for each member that this one talks to, in each direction.")] = 0
    unicast_unacked: Annotated[int, Now(
        "messages", "own messages to single members that are not acknowledged",
        "Stays high: a receiver is slow, or its application does not take its messages.")] = 0
    unicast_missing: Annotated[int, Now(
        "messages", "messages to this member alone that are missing",
        "Not 0 for long: datagrams are lost faster than they are repeated.")] = 0
    num_closed_connections: Annotated[int, Now(
        "connections", "closed connections that are remembered",
        "At most the option `max_closed_connections`.")] = 0
    unicast_msgs_delivered: Annotated[int, Count(
        "messages", "messages to this member alone that were delivered",
        "Stands still while others send: see `unicast_missing` and `num_undelivered`.")] = 0
    unicast_duplicates: Annotated[int, Count(
        "messages", "messages received again",
        "Grows without loss: acks are late or lost on their way back.")] = 0
    unicast_out_of_window: Annotated[int, Count(
        "messages", "messages dropped because the window had no room",
        "Grows: a sender has a larger `capacity` than this member.")] = 0
    unicast_early: Annotated[int, Count(
        "datagrams", "datagrams kept that came before their window or view",
        "A few at each join: normal.")] = 0
    unicast_early_dropped: Annotated[int, Count(
        "datagrams", "such datagrams dropped: too many, or for too long",
        "Grows: a member sends that never comes into the view.")] = 0
    unicast_late: Annotated[int, Count(
        "datagrams", "datagrams dropped as overtaken, or of an older connection",
        "A few when connections are opened anew: normal.")] = 0
    unicast_bad: Annotated[int, Count(
        "datagrams", "datagrams that are damaged, or ask for what cannot be",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0
    unicast_undelivered: Annotated[int, Count(
        "messages", "own messages given up and reported: their receiver left",
        "Not 0: on_undelivered was given them.")] = 0
    unicast_gone_undelivered: Annotated[int, Count(
        "messages", "messages behind a gap when their connection ended",
        "Not 0: a sender died before it could repeat what was lost.")] = 0
    unicast_acks_sent: Annotated[int, Count(
        "acks", "acks sent, for messages to one member",
        "Near the number of messages: they come one by one.")] = 0
    unicast_acks_received: Annotated[int, Count(
        "acks", "acks received, for messages to one member",
        "Stands still while `unicast_unacked` is not 0: the receiver hears nothing.")] = 0
    unicast_xmit_reqs_sent: Annotated[int, Count(
        "requests", "requests for missing messages sent",
        "Grows: datagrams to this member are lost.")] = 0
    unicast_xmit_reqs_received: Annotated[int, Count(
        "requests", "requests for missing messages received",
        "Grows: datagrams of this member are lost.")] = 0
    unicast_xmit_rsps_sent: Annotated[int, Count(
        "messages", "messages repeated on request",
        "Part of all messages: the loss on the way.")] = 0
    unicast_highest_resent: Annotated[int, Count(
        "messages", "messages sent again because HA and HS stalled",
        "Grows: the last message or its ack was lost, or the receiver is slow.")] = 0
    syncs_sent: Annotated[int, Count(
        "SEND_FIRST_SEQNO", "SEND_FIRST_SEQNO sent",
        "Grows: the first datagrams of connections are lost.")] = 0
    syncs_received: Annotated[int, Count(
        "SEND_FIRST_SEQNO", "SEND_FIRST_SEQNO received",
        "Grows: a receiver does not know a connection of this member.")] = 0
    syncs_answered: Annotated[int, Count(
        "SEND_FIRST_SEQNO", "SEND_FIRST_SEQNO answered", "Fewer than came: some were old.")] = 0
    conns_opened: Annotated[int, Count(
        "connections", "connections opened by this member",
        "Grows all the time: connections expire between rare messages; see the option "
        "`conn_expiry_timeout`.")] = 0
    conns_closed: Annotated[int, Count(
        "connections", "connections closed, either direction",
        "Follows `conns_opened`.")] = 0
    closes_sent: Annotated[int, Count("CLOSE", "CLOSE sent", "Follows `conns_closed`.")] = 0
    closes_received: Annotated[int, Count(
        "CLOSE", "CLOSE received", "Follows `conns_closed`.")] = 0


class MulticastStatus(Section):
    """Messages to everybody: what MCAST and NAKACK2 share."""

    low: Annotated[int, Now(
        "seqno", "LOW of the send window: all members have finished this member's messages up to "
        "here", "Stands still while `hr` grows: the slowest member does not finish.")] = 0
    hd: Annotated[int, Now(
        "seqno", "HD of the send window: up to here they were delivered to this member itself",
        "Far behind `hr`: this member's own application is slow.")] = 0
    hr: Annotated[int, Now(
        "seqno", "HR of the send window: the highest seqno taken",
        "Less `low`: messages that wait for acks; at the option `capacity` senders block.")] = 0
    sent: Annotated[int, Now(
        "seqno", "the highest seqno that left", "Behind `hr`: messages wait to be bundled.")] = 0
    num_unacked: Annotated[int, Now(
        "messages", "own messages to everybody that somebody has not acknowledged",
        "Stays high: `Channel.slowest` names who has not acknowledged the oldest one.")] = 0
    num_missing: Annotated[int, Now(
        "messages", "messages to everybody that are missing",
        "Not 0 for long: datagrams are lost faster than they are repeated.")] = 0
    num_leaving: Annotated[int, Now(
        "windows", "windows of members that left, with messages not yet taken",
        "Not 0 for long: the application does not take its messages.")] = 0
    send_budget: Annotated[int, Now(
        "bytes", "bytes that may be unacknowledged",
        "Small: many members share a receiver's socket buffer; see the option "
        "`receive_buffer`.")] = 0
    num_msgs_delivered: Annotated[int, Count(
        "messages", "messages to everybody that were delivered",
        "Stands still while others send: see `num_missing` and `num_undelivered`.")] = 0
    num_duplicates: Annotated[int, Count(
        "messages", "messages received again, repeats on request included",
        "Grows in a healthy network: members ask for what was only late.")] = 0
    num_out_of_window: Annotated[int, Count(
        "messages", "messages dropped because the window had no room",
        "Grows: this member is far behind the others.")] = 0
    num_unknown_sender: Annotated[int, Count(
        "packets", "packets of a sender that is not in the view",
        "A few at each view: normal. Grows: a member thinks that it is in this group.")] = 0
    num_bad: Annotated[int, Count(
        "datagrams", "datagrams that are damaged, or ask for what cannot be",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0
    xmit_reqs_sent: Annotated[int, Count(
        "requests", "requests for missing messages sent",
        "Grows: datagrams to this member are lost; often its socket buffer is small. At an "
        "observer it grows always: see `num_missing_asked`.")] = 0
    xmit_reqs_received: Annotated[int, Count(
        "requests", "requests for missing messages received",
        "Grows at one sender alone: datagrams are lost near it. Each observer asks a sender that "
        "rests once a second.")] = 0
    xmit_rsps_sent: Annotated[int, Count(
        "messages", "messages repeated on request", "Part of `sent`: the loss on the way.")] = 0
    xmit_rsps_received: Annotated[int, Count(
        "messages", "repeats that brought messages that were new here",
        "Less than others repeated: some repeats were for other members.")] = 0
    num_missing_asked: Annotated[int, Count(
        "messages", "messages asked for that are missing", "Grows: see `xmit_reqs_sent`.")] = 0
    num_gone_undelivered: Annotated[int, Count(
        "messages", "messages from a gap on when their sender left: lost, unless it comes back",
        "Not 0: a sender died before anybody who is left had what was lost.")] = 0
    num_skips: Annotated[int, Count(
        "places", "places where this member, an observer, was told that it missed messages",
        "Grows: its application is slower than the group, or datagrams to it are lost.")] = 0
    num_skipped: Annotated[int, Count(
        "messages", "messages that this member, an observer, missed and was told of; a large "
        "message counts with each fragment",
        "Beside `num_msgs_delivered`: the part of all messages that it was not given.")] = 0
    fetches_sent: Annotated[int, Count(
        "requests", "FETCH sent: requests for messages of departed senders",
        "Grows when a member dies: normal.")] = 0
    fetches_received: Annotated[int, Count(
        "requests", "FETCH received", "Grows when a member dies: normal.")] = 0
    held_sent: Annotated[int, Count(
        "messages", "messages of others that were sent to members that missed them",
        "Grows when a member dies: normal.")] = 0
    held_received: Annotated[int, Count(
        "messages", "of those, messages that were new here",
        "Grows when a member dies: normal.")] = 0


class McastStatus(MulticastStatus, tag="mcast"):
    """Messages to everybody, with acks: MCAST."""

    acks_sent: Annotated[int, Count(
        "acks", "acks sent", "Near the number of messages: they come one by one.")] = 0
    acks_received: Annotated[int, Count(
        "acks", "acks received",
        "Stands still while `num_unacked` is not 0: the others hear nothing.")] = 0


class Nakack2Status(MulticastStatus, tag="nakack2"):
    """Messages to everybody, with negative acks: NAKACK2."""

    num_dropped_for_resync: Annotated[int, Count(
        "datagrams", "datagrams without room; a RESYNC asks for them",
        "Grows: the application takes messages too slowly.")] = 0
    num_queued: Annotated[int, Count(
        "messages", "messages that came before their window existed",
        "A few at each join: normal.")] = 0
    num_queue_dropped: Annotated[int, Count(
        "messages", "of those, messages that the queue did not keep",
        "Not 0: they are asked for; `become_server_queue_size` may be larger.")] = 0
    num_gaps: Annotated[int, Count(
        "gaps", "gaps that stood for gap_timeout without retransmission",
        "Not 0: a connection lost datagrams without breaking; set `xmit_interval`.")] = 0
    resyncs_sent: Annotated[int, Count(
        "RESYNC", "RESYNC sent: what this member has, after a connection broke or where a stream "
        "begins",
        "Grows while no member comes: connections break; see `links_lost`.")] = 0
    resyncs_received: Annotated[int, Count(
        "RESYNC", "RESYNC received",
        "Grows while no member comes: connections break; see `links_lost`.")] = 0
    become_server_queue: Annotated[int, Now(
        "messages", "messages that wait for their window",
        "Not 0 for long: a member sends that never comes into the view.")] = 0


class StableStatus(Section):
    """What all have finished, by votes: STABLE."""

    votes_sent: Annotated[int, Count(
        "votes", "votes sent to the coordinator", "Grows only while there are messages.")] = 0
    votes_received: Annotated[int, Count(
        "votes", "votes received, at the coordinator", "0 at all other members.")] = 0
    stability_sent: Annotated[int, Count(
        "reports", "STABILITY reports sent, by the coordinator", "0 at all other members.")] = 0
    stability_received: Annotated[int, Count(
        "reports", "STABILITY reports received",
        "Stands still while `num_unacked` is not 0: the coordinator is stuck.")] = 0
    num_bad_votes: Annotated[int, Count(
        "votes", "votes and reports that make no sense, or come from a stranger",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0


class EndsStatus(Section):
    """Where streams of departed senders ended."""

    num_bad_ends: Annotated[int, Count(
        "datagrams", "datagrams about ends of streams that are damaged or make no sense",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0


class MembershipStatus(Section):
    """The group and its views."""

    view_id: Annotated[int, Now(
        "id", "the id of the view; 0: none yet",
        "Grows all the time: members come and go, or are excluded and come back.")] = 0
    num_members: Annotated[int, Now(
        "members", "members of the view", "Fewer than you started: see `ringcast members`.")] = 0
    num_observers: Annotated[int, Now(
        "members", "of these, observers: nobody waits for them",
        "More than you started: a member has `slow=\"observe\"` that should have everything.")] = 0
    is_primary: Annotated[int, Now(
        "0 or 1", "1 if the view is primary, else 0",
        "0 with `partition=\"primary\"`: this part of the group has no majority, and send() "
        "raises.")] = 0
    num_views: Annotated[int, Count(
        "views", "views that were installed", "Grows all the time: see `view_id`.")] = 0
    num_changes: Annotated[int, Count(
        "view changes", "view changes that this member began, as the coordinator",
        "More than `num_views`: members died in the middle of changes.")] = 0
    num_bad_membership: Annotated[int, Count(
        "datagrams", "datagrams about the group that are damaged or make no sense",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0
    num_refused: Annotated[int, Count(
        "members", "members that were refused because of other terms, such as another stack",
        "Not 0: somebody tries to join with other options; its connect() says which.")] = 0
    num_suspected: Annotated[int, Count(
        "members", "members that this one suspected",
        "Grows while nobody dies: members pause for longer than `suspect_timeout`, or the "
        "network loses a lot.")] = 0
    num_probes: Annotated[int, Count(
        "probes", "probes sent to members that were silent or seemed to be gone",
        "Grows: members were silent, and most of them answered in time.")] = 0
    num_pauses: Annotated[int, Count(
        "pauses", "pauses of this process that were long enough to be noticed",
        "Grows: this machine is overloaded, or something holds the interpreter.")] = 0


class PartsStatus(Section):
    """Control datagrams that are larger than a frame."""

    num_datagrams_cut: Annotated[int, Count(
        "datagrams", "control datagrams that were cut into parts",
        "Grows in large groups: normal.")] = 0
    num_joined: Annotated[int, Count(
        "datagrams", "control datagrams that were put together from parts",
        "Grows in large groups: normal.")] = 0
    num_parts_given_up: Annotated[int, Count(
        "datagrams", "control datagrams of which not all parts came",
        "Grows: the network loses a lot.")] = 0
    num_bad_parts: Annotated[int, Count(
        "parts", "parts that make no sense",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0


class DeliveryStatus(Section):
    """Messages that the application has and has not finished."""

    num_undelivered: Annotated[int, Now(
        "messages", "messages handed to the application that it has not finished",
        "Near the option `max_undelivered`: the application is slow, and slows the senders.")] = 0


class ApplicationStatus(Section):
    """What the application's calls and callbacks met."""

    num_blockings: Annotated[int, Count(
        "calls", "calls of send that had to wait",
        "Grows: this member sends faster than the slowest member takes.")] = 0
    num_blocked: Annotated[int, Now(
        "calls", "calls of send that wait for room now",
        "Not 0 for long: some member does not take its messages; `ringcast top` names it.")] = 0
    num_callback_errors: Annotated[int, Count(
        "callbacks", "callbacks that raised", "Not 0: the log has the tracebacks.")] = 0


class UdpStatus(Section, tag="udp"):
    """Datagrams over UDP."""

    datagrams_received: Annotated[int, Count(
        "datagrams", "datagrams received",
        "0 in a group of several: multicast does not work here; see `ringcast doctor`.")] = 0
    bytes_received: Annotated[int, Count("bytes", "bytes received", "The load of the network.")] = 0
    receive_calls: Annotated[int, Count(
        "calls", "system calls that receive",
        "Near `datagrams_received`: datagrams come one by one.")] = 0
    receive_truncated: Annotated[int, Count(
        "datagrams", "datagrams larger than a datagram can be",
        "Not 0: a member has a larger `max_datagram`, or another program sends here.")] = 0
    receive_errors: Annotated[int, Count(
        "errors", "errors of receiving", "Grows: the network interface is gone.")] = 0
    datagrams_sent: Annotated[int, Count(
        "datagrams", "datagrams sent", "Near the number of messages: nothing is bundled.")] = 0
    bytes_sent: Annotated[int, Count("bytes", "bytes sent", "The load of the network.")] = 0
    send_calls: Annotated[int, Count(
        "calls", "system calls that send",
        "Near `datagrams_sent`: datagrams leave one by one.")] = 0
    send_unknown: Annotated[int, Count(
        "datagrams", "datagrams to a member without a route",
        "Grows: a member has told an address that makes no sense.")] = 0
    send_errors: Annotated[int, Count(
        "errors", "errors of sending",
        "Grows: the network interface is gone, or a firewall refuses.")] = 0
    send_dropped: Annotated[int, Count(
        "datagrams", "datagrams that the kernel did not take",
        "Grows: the network interface is slower than this member; they are repeated.")] = 0
    bad_routes: Annotated[int, Count(
        "addresses", "addresses of members that make no sense",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0
    bad_addresses: Annotated[int, Count(
        "addresses", "addresses to seek members at that make no sense or are too many",
        "Not 0: look at the argument `discovery`.")] = 0


class TcpStatus(Section, tag="tcp"):
    """Datagrams over TCP connections."""

    links: Annotated[int, Now(
        "connections", "connections that stand",
        "Fewer than the other members for long: somebody cannot be reached.")] = 0
    control_links: Annotated[int, Now(
        "connections", "of these, how many have a second connection for control",
        "Fewer than `links` for long: a firewall limits connections.")] = 0
    unsent_bytes: Annotated[int, Now(
        "bytes", "bytes that wait for slow members",
        "Near the option `max_unsent`: the slow member's connection will be cut.")] = 0
    links_made: Annotated[int, Count(
        "connections", "connections made", "Grows: see `links_lost`.")] = 0
    links_lost: Annotated[int, Count(
        "connections", "connections that broke",
        "Grows while nobody leaves: the network or a firewall breaks them.")] = 0
    links_cut_slow: Annotated[int, Count(
        "connections", "connections cut because more than max_unsent waited",
        "Not 0: a member did not read for long.")] = 0
    links_cut_dead: Annotated[int, Count(
        "connections", "connections cut because the other end vanished",
        "Not 0: a machine or a cable was gone for `link_timeout`.")] = 0
    links_replaced: Annotated[int, Count(
        "connections", "connections replaced by a newer one to the same member",
        "A few at the start, when both dial: normal.")] = 0
    dials: Annotated[int, Count(
        "attempts", "attempts to connect", "Grows slowly: normal, free ports are tried.")] = 0
    dials_failed: Annotated[int, Count(
        "attempts", "attempts that failed", "Most of `dials`: normal, nobody is there.")] = 0
    handshakes_accepted: Annotated[int, Count(
        "connections", "connections from others that were accepted", "See `links_made`.")] = 0
    handshakes_refused: Annotated[int, Count(
        "connections", "connections from others that were refused",
        "Grows: members of another group, version or secret dial this port.")] = 0
    handshakes_timed_out: Annotated[int, Count(
        "connections", "connections that did not agree in time",
        "Grows: another program dials this port and says nothing.")] = 0
    self_connections: Annotated[int, Count(
        "connections", "connections to this member itself",
        "A few: normal, it tries all ports of the range.")] = 0
    accept_errors: Annotated[int, Count(
        "errors", "errors of accepting", "Grows: this process has too many descriptors.")] = 0
    frames_received: Annotated[int, Count(
        "datagrams", "datagrams received", "Stands still: nobody sends.")] = 0
    frames_refused: Annotated[int, Count(
        "frames", "frames that are none, or not of the connection's member",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0
    frames_sent: Annotated[int, Count(
        "datagrams", "datagrams sent, once for each receiver", "The load of the network.")] = 0
    bytes_received: Annotated[int, Count("bytes", "bytes received", "The load of the network.")] = 0
    bytes_sent: Annotated[int, Count("bytes", "bytes sent", "The load of the network.")] = 0
    send_unlinked: Annotated[int, Count(
        "datagrams", "datagrams to a member without a connection",
        "A few when connections break: they are repeated.")] = 0
    send_lost_bytes: Annotated[int, Count(
        "bytes", "bytes that waited when their connection ended",
        "Grows with `links_lost`: they are sent again.")] = 0
    bad_routes: Annotated[int, Count(
        "addresses", "addresses of members that make no sense",
        "Not 0: a member has a fault, or somebody else sends in its name.")] = 0
    bad_addresses: Annotated[int, Count(
        "addresses", "addresses to seek members at that make no sense or are too many",
        "Not 0: look at the argument `discovery`.")] = 0


class InprocStatus(Section, tag="inproc"):
    """Datagrams between members of one process."""

    datagrams_sent: Annotated[int, Count(
        "datagrams", "datagrams sent", "Near the number of messages: nothing is bundled.")] = 0
    datagrams_received: Annotated[int, Count(
        "datagrams", "datagrams received", "Stands still: nobody sends.")] = 0
    datagrams_dropped: Annotated[int, Count(
        "datagrams", "datagrams dropped because the receiver's queue was full",
        "Grows: a member is slow; see the option `receive_buffer`.")] = 0
    unknown_dest: Annotated[int, Count(
        "datagrams", "datagrams to a member that is not there",
        "A few when members go: normal.")] = 0


class SealStatus(Section):
    """Datagrams that are sealed, in a group with a secret or with trusted keys."""

    datagrams_unsealed: Annotated[int, Count(
        "datagrams", "datagrams dropped: without a seal, or with another version's",
        "Grows: a member has no `secret` or `trust`, or an older version.")] = 0
    datagrams_unopened: Annotated[int, Count(
        "datagrams", "datagrams dropped: their seal is broken, or of another key",
        "Grows: a member has another `secret`, or somebody changes datagrams.")] = 0
    datagrams_replayed: Annotated[int, Count(
        "datagrams", "datagrams dropped: they came before, or are too old to tell",
        "Grows: the network repeats datagrams, or somebody plays them again.")] = 0
    datagrams_of_strangers: Annotated[int, Count(
        "datagrams", "datagrams dropped: their senders have not answered our challenge, or are no "
        "members of the view that they seal for",
        "A few at each join: normal.")] = 0
    datagrams_of_other_views: Annotated[int, Count(
        "datagrams", "datagrams dropped: of a view whose key this member does not hold, or of no "
        "view, though their kinds need one",
        "Some at each change of the view: normal. Else a member is in another view.")] = 0
    hellos_sent: Annotated[int, Count(
        "HELLO", "challenges and answers sent", "A few for each member: normal.")] = 0
    hellos_received: Annotated[int, Count(
        "HELLO", "challenges and answers received", "A few for each member: normal.")] = 0
    hellos_refused: Annotated[int, Count(
        "HELLO", "challenges and answers made without our secret or a key that is trusted, or more "
        "of them than are checked in a second",
        "Not 0: a member has another `secret`, or a key that the folder `trust` has not.")] = 0
    num_verified: Annotated[int, Now(
        "members", "members that have shown that they have the secret, or a trusted key",
        "Fewer than the other members for long: see `hellos_refused`.")] = 0


class Layers(msgspec.Struct, kw_only=True):
    """What the layers of a stack say about themselves."""

    wire: WireStatus = field(default_factory=WireStatus)
    state: StateStatus = field(default_factory=StateStatus)
    unreliable: UnreliableStatus = field(default_factory=UnreliableStatus)
    unicast: UnicastStatus = field(default_factory=UnicastStatus)
    multicast: McastStatus | Nakack2Status = field(default_factory=McastStatus)
    stable: StableStatus | None = None
    ends: EndsStatus = field(default_factory=EndsStatus)
    membership: MembershipStatus = field(default_factory=MembershipStatus)
    parts: PartsStatus = field(default_factory=PartsStatus)
    delivery: DeliveryStatus = field(default_factory=DeliveryStatus)
    faults: dict[str, int] = field(default_factory=dict)


class Status(Layers, kw_only=True):
    """What a channel says about itself, by layer.

        status = channel.status()
        print(status.multicast.num_unacked, status.membership.num_members)

    `multicast` is a McastStatus or a Nakack2Status, as the stack has it; `stable` is
    there with the latter. `transport` is a UdpStatus, a TcpStatus or an InprocStatus.
    `seal` is None in a group that is not sealed. `faults` says how many datagrams each
    layer of ringcast.protocols.faults has hit.
    """

    transport: UdpStatus | TcpStatus | InprocStatus
    seal: SealStatus | None = None
    application: ApplicationStatus = field(default_factory=ApplicationStatus)


def sections(status: Layers) -> Iterator[tuple[str, Section]]:
    """Yield the name and the section of each layer that is there."""
    for name in status.__struct_fields__:
        section = getattr(status, name)
        if isinstance(section, Section):
            yield name, section


@cache
def numbers(section: type[Section]) -> dict[str, Number]:
    """Return what is declared of each field of a section."""
    hints = get_type_hints(section, include_extras=True)
    return {name: get_args(hints[name])[1] for name in section.__struct_fields__}


def by_name(*parts: Layers | Section) -> dict[str, int]:
    """Return all numbers in one table, for who adds up or compares them by name: sums
    over a group in `ringcast perf` and in simulations, and the plays."""
    table: dict[str, int] = {}
    for part in parts:
        for section in [part] if isinstance(part, Section) else dict(sections(part)).values():
            table |= msgspec.structs.asdict(section)
        if isinstance(part, Layers):
            table |= {f"num_{name}": hits for name, hits in part.faults.items()}
    return table


def counts(*parts: Layers | Section) -> dict[str, int]:
    """Return the same without what may fall, so that a sum of it means something."""
    falling = {name for section in ALL for name, number in numbers(section).items()
               if number.falls}
    return {name: value for name, value in by_name(*parts).items() if name not in falling}


ALL: tuple[type[Section], ...] = (
    WireStatus, StateStatus, UnreliableStatus, UnicastStatus, McastStatus, Nakack2Status,
    StableStatus, EndsStatus, MembershipStatus, PartsStatus, DeliveryStatus, ApplicationStatus,
    UdpStatus, TcpStatus, InprocStatus, SealStatus)
