"""The text's RingBuffer (RingBuffer.txt, correctness check #1) one access a step, to
replay schedules against it.

Each of add() and remove() is a generator; every next() performs one read or write of a
shared word."""


class TextRing:
    def __init__(self, capacity):
        self.capacity, self.slots = capacity, [None] * capacity
        self.low = self.hd = self.hr = 0

    def slot(self, seqno):
        return (seqno - 1) % self.capacity

    def add(self, seqno):
        """The text's four steps, after the test that the seqno is not beyond the
        window."""
        if seqno <= self.hd:
            return False
        yield "#1 HD read"
        if seqno - self.low > self.capacity:
            return False
        yield "LOW read"
        if self.slots[self.slot(seqno)] is not None:
            return False
        yield "#2 element read"
        if seqno <= self.hd:
            return False
        yield "#3 HD read again"
        if self.slots[self.slot(seqno)] is not None:
            return False
        self.slots[self.slot(seqno)] = seqno
        yield "#4 CAS"
        self.hr = max(self.hr, seqno)
        return True

    def remove(self):
        seqno = self.hd + 1
        if seqno > self.hr or self.slots[self.slot(seqno)] is None:
            return None
        element = self.slots[self.slot(seqno)]
        yield "element read"
        self.hd = seqno
        yield "#1 HD written"
        self.slots[self.slot(seqno)] = None
        yield "#2 element nulled"
        self.low = seqno
        return element


class Thread:
    """A call under way; step() until it returns."""

    def __init__(self, call):
        self.call = call

    def upto(self, step):
        for name in self.call:
            if name == step:
                return
        raise AssertionError(f"the call ended before {step}")

    def finish(self):
        while True:
            try:
                next(self.call)
            except StopIteration as stop:
                return stop.value
