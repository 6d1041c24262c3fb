"""What the parts of UNICAST3 share.

The layer consists of parts: the sending ends of all connections, the receiving ends,
the acks, the deliveries, our messages to ourselves, and the life of connections. Each
part gets the same Context. It holds what belongs to no single connection: who is in the
view, the options in nanoseconds, the counters, and the two instants at which the
layer's task has something to do:

- `next_scan`: the retransmit task looks for what was lost. It runs every xmit_interval
  while anything is missing, unacknowledged or unknown, and not at all otherwise.
- `next_reap`: the first entry may have been idle for long enough to close or to go.
"""


from ringcast.address import Address
from ringcast.config import Config, nanoseconds
from ringcast.protocols.unicast3.states import Entry, State
from ringcast.stack import Effects, Instant, Layer
from ringcast.status import UnicastStatus


class Context:
    """What all connections of this member have in common. `layer` sends for them."""

    def __init__(self, layer: Layer, local: Address, config: Config, receiving: bool,
                 send_budget: int) -> None:
        self.layer = layer
        self.local, self.config = local, config
        self.receiving = receiving          # the application takes messages
        self.most_unacked = min(config.max_bytes, send_budget)      # bytes of one connection
        self.interval = nanoseconds(config.scan_interval)
        self.sync_interval = nanoseconds(config.sync_min_interval)
        self.expiry = nanoseconds(config.conn_expiry_timeout)
        self.close_timeout = nanoseconds(config.conn_close_timeout)
        self.members: dict[int, Address] = {}
        self.view_id = 0
        self.counters = UnicastStatus()
        self.next_scan: Instant | None = None
        self.next_reap: Instant | None = None

    @property
    def effects(self) -> Effects:
        return self.layer.stack.effects

    def arm_scan(self, now: Instant) -> None:
        """Let the retransmit task run within an interval from now."""
        if self.next_scan is None:
            self.next_scan = now + self.interval

    def arm_reaping(self, entry: Entry) -> None:
        """See that this entry is looked at when it may have to close or to go."""
        due = self.reaped_at(entry)
        if due is not None and (self.next_reap is None or due < self.next_reap):
            self.next_reap = due

    def reaped_at(self, entry: Entry) -> Instant | None:
        """Return when an entry changes its state if nobody uses it until then."""
        if entry.state is State.CLOSING:
            return entry.touched + self.close_timeout
        return entry.touched + self.expiry if self.expiry else None
