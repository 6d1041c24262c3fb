"""What all tests share."""

import signal

import pytest
from hypothesis import settings

# No test depends on how fast the machine is.
settings.register_profile("ringcast", deadline=None, print_blob=True)
settings.load_profile("ringcast")


def pytest_collection_modifyitems(items):
    """Say which tests share a worker: those that start Spark, and those that need what is compiled.

    All that start Spark run one after the other. Most need the same session, and each of the others
    starts a machine of its own, with memory and patience for one at a time.
    """
    for item in items:
        if item.get_closest_marker("spark") or "spark" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("spark"))
            item.add_marker(pytest.mark.prove)
        elif "native" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group("native"))


@pytest.fixture(scope="session", autouse=True)
def interrupts():
    """Let Ctrl-C end the processes that tests start, as at a terminal.

    A shell makes what it runs in the background (`&`) ignore SIGINT; children inherit that, and
    a test that interrupts one would wait for it in vain.
    """
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    """One Spark session for all tests that need one: it takes longer to start than most of them take to run."""
    from ringcast.errors import RingcastError
    from ringcast.spark.session import find_java, session

    try:
        find_java()
    except RingcastError as error:
        pytest.skip(str(error))
    running = session(
        "ringcast-tests",
        master="local[2]",
        conf={
            "spark.sql.shuffle.partitions": "1",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.ui.showConsoleProgress": "false",
        },
    )
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()
