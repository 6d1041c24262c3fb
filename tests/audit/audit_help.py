"""Traces made by hand: what the members of a group wrote, row by row. A test makes one
thing in it wrong."""

from zlib import crc32

from ringcast.trace.writer import Writer

MS = 1_000_000
SIZE = 10                               # messages in a row


class Group:
    """A, B and C, whose names begin with that of the group. A sends 100 messages in
    view 1, which all get, acknowledge and see purged. Then C leaves, D comes, and A
    sends 50 more in view 2."""

    def __init__(self, name):
        self.name, self.others = name, {}       # addresses that a test has changed
        self.rows = {member: [] for member in "ABCD"}
        self.view(1, "ABC", 0)
        for member in "BC":
            self.add("A", 0, "start", sender="A", peer=member, first=1)
        for first in range(1, 101, SIZE):
            self.send_to("ABC", first, first)
        self.add("C", 150, "refuse")
        self.add("C", 151, "close", flags=1)
        self.view(2, "ABD", 160)
        self.add("A", 160, "start", sender="A", peer="D", first=101)
        for first in range(101, 151, SIZE):
            self.send_to("ABD", first, first + 100)
        for member in "ABD":
            self.add(member, 400, "close")

    def address(self, member):
        digits = f"{crc32(self.name.encode()):08x}{ord(member):08x}"
        return self.others.get(member, f"{self.name}-{member}#{digits}")

    def add(self, member, ms, event, **columns):
        """Append a row to a member's trace. Return it. Letters name members."""
        for name in ("sender", "peer"):
            if name in columns:
                columns[name] = self.address(columns[name])
        if columns.get("last") is not None and "first" in columns:
            columns["count"] = columns["last"] - columns["first"] + 1
        row = {"wall": int(ms * MS), "event": event} | columns
        self.rows[member].append(row)
        return row

    def view(self, number, members, ms):
        for member in members:
            self.add(member, ms, "view", view_id=number, flags=1,
                     members=[self.address(each) for each in members])

    def send_to(self, members, first, ms):
        """Let A send ten messages, which `members` get and acknowledge and A purges."""
        last = first + SIZE - 1
        sent_at = int(ms * MS)
        self.add("A", ms, "send", sender="A", first=first, last=last, nbytes=1000, sent_at=sent_at)
        for delay, member in enumerate(members, 1):
            self.add(member, ms + delay, "deliver", sender="A", first=first, last=last, nbytes=1000,
                     sent_at=sent_at)
            if member != "A":
                self.add(member, ms + delay + 0.5, "ack", sender="A", first=first, last=last,
                         nbytes=50)
        self.add("A", ms + 5, "purge", sender="A", first=first, last=last)

    def find(self, member, event, last=None, **columns):
        """Return where the first row of an event with these values is."""
        wanted = {"event": event, **columns} | ({} if last is None else {"last": last})
        return next(index for index, row in enumerate(self.rows[member])
                    if all(row.get(name) == value for name, value in wanted.items()))

    def row(self, member, event, last=None, **columns):
        return self.rows[member][self.find(member, event, last, **columns)]

    def take(self, member, event, last=None, **columns):
        """Remove a row and return it."""
        return self.rows[member].pop(self.find(member, event, last, **columns))

    def write(self, directory, part_rows=10_000):
        """Write the trace with the ordinals and event numbers of a recorder."""
        for member, rows in self.rows.items():
            writer = Writer(directory, self.address(member), threaded=False)
            delivered, view_id = {}, 0
            for number, row in enumerate(rows):
                row = dict(row)
                view_id = row.pop("view_id", view_id)
                has_range = row.get("first") is not None
                if "ord" not in row and has_range and row["event"] in ("deliver", "ack", "purge"):
                    key = row["sender"], row.get("conn_id")
                    if row["event"] != "deliver":
                        row["ord"] = delivered.get(key, 0)
                    elif not row.get("flags", 0) & 1:
                        row["ord"] = delivered.get(key, 0)
                        delivered[key] = row["ord"] + row["count"]
                wall, event = row.pop("wall"), row.pop("event")
                row.pop("lost", None) or writer.append(wall, wall, event, view_id, **row)
                writer.num_events = number + 1
                if writer.num_events % part_rows == 0:
                    writer._flush()
            writer.close()
        return directory
