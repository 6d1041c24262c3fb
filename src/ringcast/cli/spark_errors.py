"""What a command says when Spark fails: a sentence, as for an error of ringcast."""

import sys
from contextlib import suppress

DYING = 5.0             # seconds that a process which was killed may take to be gone


def said_of_spark(error: Exception) -> str | None:
    """Return a sentence for an error of Spark, or for one that comes from the end of
    the Java that this process has started; None for another error."""
    if "pyspark" not in sys.modules:
        return None
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from ringcast.spark.session import reason

    if isinstance(error, (ConnectionError, Py4JError)) and is_java_gone():
        return ("Spark's Java has ended before the work was done; perhaps the system has killed it "
                "because memory was short: make room, or give it less to do, and run it again")
    if isinstance(error, (PySparkException, Py4JError)):
        return f"Spark has failed: {reason(error)}; check --conf, or run it again"
    return None


def is_java_gone() -> bool:
    """Return whether the Java that this process has started has ended. Its connection
    is gone before the process."""
    from subprocess import TimeoutExpired

    from pyspark import SparkContext

    java = getattr(SparkContext._gateway, "proc", None)
    if java is None:
        return False
    with suppress(TimeoutExpired):
        java.wait(DYING)
    return java.returncode is not None
