"""A group so large that its members take turns to report (decision 38): with 20 of
them, 12 ms apart."""

LARGE = "ABCDEFGHIJKLMNOPQRST"


def send_from_all(group, steps):
    """Let each member send a message every 10 ms, and wait until all are acknowledged.
    Return what each has sent."""
    sent = [b"%d" % step for step in range(steps)]
    for payload in sent:
        for name in group.names:
            group[name].send(payload)
        group.run(10)
    group.settle()
    return sent
