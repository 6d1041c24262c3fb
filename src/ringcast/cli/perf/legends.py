"""Explain the columns of `ringcast perf`, below the tables and in the help."""

THROUGHPUT = """\
sent/s: all senders together. delivered/s: at the slowest receiver; messages of all senders in
order, its own included if it sends. p50, p99: at a steady rate, microseconds from before send()
until the slowest receiver's callback had that share of the messages. retransmitted: messages sent
again. requests: datagrams that request retransmission. blockings: sends that waited for room. CPU
s/M: CPU seconds for a million messages, of the sender (if it only sends) and of the receiver that
needs most. cores used: CPU time of each process by elapsed time. limited by: derived from these,
and from the CPU time of other processes on the machine."""
MULTICAST = f"""\
{THROUGHPUT}
naive: plain Python that joins messages into 64 KB TCP writes; one sender, no membership, and no
limit on waiting. inproc: all members are in one process, and its CPU time is divided by the
messages that all of them received."""
UNICAST = """\
unicast: S sends each message to R1 alone, with send(payload, dest); in the other rows to the
group, in which only R1 receives. unicast by multicast: messages delivered a second, divided by
those of the row below; the aim is 1 or more. inproc: both members are in one process, and the CPU
time is that of both."""
ROUND_TRIPS = """\
One message at a time: A sends it to B, which answers from the thread that iterates. A measures
the time from before send() until it has the answer. round trips: in a run, after a warm-up. p50,
p99, p99.9: microseconds within which that share of them ended (p99.9 of less than 1,000 is the
longest). UDP: two processes. inproc: both in one. bare UDP sockets: two processes of plain
Python, each with a blocking socket, without retransmission and order; nothing is lost there.
cores used: CPU time of each process by elapsed time. cores of others: CPU time of other processes
on the machine. If that is large, the two bare processes share a core and wake each other in a
fraction of the time, and the ratio says little."""
