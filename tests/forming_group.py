"""A simulated group that forms itself, for tests that script what happens to it."""

from ringcast.sim.cluster import Cluster
from ringcast.sim.network import MS


class FormingGroup(Cluster):
    """Members that find each other, notice soon who is gone, and send all the time."""

    def __init__(self, names, stack, **options):
        super().__init__(names, stack=stack, heartbeat_interval=20, suspect_timeout=200,
                         form_margin=50, **options)

    def load(self, milliseconds):
        """Let all members send for so long."""
        for instant in range(0, milliseconds, 2):
            self.at(self.now + instant * MS, self._send)
        self.run(milliseconds)

    def _send(self):
        for member in self.living():
            if not member.producer.multicasts.backlog:
                member.offer(3, 10)
