"""What all tests share."""

import os
import signal

import pytest
from hypothesis import settings

# No test depends on how fast the machine is.
settings.register_profile("ringcast", deadline=None, print_blob=True)
settings.load_profile("ringcast")

# Programs that tests start write into a buffer, as they do for most users.
os.environ.pop("PYTHONUNBUFFERED", None)

# Most of what tests have Spark do is to start: Java compiles quickly for that.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# Where tests share what takes long to make: all of one line run in one worker, one
# after the other. Most tests that start Spark need the same session; the others start a
# machine of their own, with memory and patience for one at a time. Groups on networks
# with faults would slow each other down. Tests of the core compile a helper; seeds are
# simulated once.
TOGETHER = {
    "spark": ("tests/spark/", "tests/audit/", "tests/campaign/", "tests/storm/",
              "tests/cli/test_demo.py", "tests/cli/test_simulate_audit.py"),
    "faults": ("tests/faults/", "tests/real_faults/"),
    "core": ("tests/core/",),
    "seeds": ("tests/sim/test_seeds.py",),
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            """Return a test's line of TOGETHER, or the test, which runs anywhere."""
            for name, places in TOGETHER.items():
                if nodeid.startswith(places):
                    return name
            return nodeid

    return Together(config, log)


def pytest_collection_modifyitems(items):
    for item in items:
        needs_spark = item.get_closest_marker("spark") or "spark" in item.fixturenames
        if needs_spark and not item.get_closest_marker("faults"):   # these say which are short
            item.add_marker(pytest.mark.prove)


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """Let Ctrl-C end the processes that tests start, as at a terminal.

    A shell makes what it runs in the background (`&`) ignore SIGINT; children inherit
    that, and a test that interrupts one would wait for it in vain.
    """
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Let the log write every line. Otherwise it depends on the tests of the last
    second whether a line of theirs comes again."""
    monkeypatch.setattr("ringcast.logs.PAUSE", 0.0)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """Yield one Spark session for all tests, as its start takes long."""
    from ringcast.errors import RingcastError
    from ringcast.spark.session import find_java, session

    try:
        find_java()
    except RingcastError as error:
        pytest.skip(str(error))
    running = session("ringcast-tests", master="local[2]", conf={
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.extraJavaOptions": "-Dours=kept",
        "spark.ui.showConsoleProgress": "false"})
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()
