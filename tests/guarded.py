"""Shows that a lock guards what it is said to guard.

A test that runs threads side by side fails only now and then when a lock is missing,
and under the interpreter's own lock almost never. So `guard` turns the attributes that
a lock protects into properties which fail at once when somebody uses them without
holding it: one thread suffices, and a `with` that is taken away is found each time.
"""

from concurrent.futures import ThreadPoolExecutor

_elsewhere = ThreadPoolExecutor(1, thread_name_prefix="guarded")


def is_held(lock):
    """Say whether some thread holds `lock`, by trying to take it in another thread."""
    def take():
        taken = lock.acquire(blocking=False)
        if taken:
            lock.release()
        return taken
    return not _elsewhere.submit(take).result()


class Guard:
    """The lock of some attributes, and how often they were used."""

    def __init__(self, lock):
        self.lock = lock
        self.uses = 0

    def check(self, what):
        self.uses += 1
        assert is_held(self.lock), f"{what} without its lock"


def guard(thing, lock, *written, read=()):
    """Allow only holders of the lock to assign `written` and to use `read`."""
    guarded = Guard(lock)
    values = {name: thing.__dict__.pop(name) for name in (*written, *read)}

    def attribute(name):
        def get(self):
            if name in read:
                guarded.check(f"{name} is read")
            return values[name]

        def put(self, value):
            guarded.check(f"{name} is written")
            values[name] = value
        return property(get, put)
    kind = type(thing)
    thing.__class__ = type(kind.__name__, (kind,), {name: attribute(name) for name in values})
    return guarded


class GuardedDict(dict):
    """A dict that is used only by who holds its lock."""

    def __init__(self, items, lock):
        super().__init__(items)
        self.guard = Guard(lock)


def _checked(name):
    def method(self, *args):
        self.guard.check(f"dict.{name}")
        return getattr(dict, name)(self, *args)
    return method


for _name in ("__getitem__", "__setitem__", "__iter__", "get", "pop", "setdefault", "values",
              "items"):
    setattr(GuardedDict, _name, _checked(_name))
