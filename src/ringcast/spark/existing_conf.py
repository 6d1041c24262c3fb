"""The configuration that Spark has before us: from spark-submit, its files and its
environment.

Once its Java runs, Spark itself knows it. Until then it is in the variables and the
file that spark-submit will read, which PySpark runs to start Java.
"""

import os
import re
import shlex
from pathlib import Path

from ringcast.errors import ConfigError

_LINE = re.compile(r"\s*([^#!\s=:][^\s=:]*)(?:\s*[\s=:]\s*(.*?))?\s*")


def existing_conf() -> dict[str, str]:
    """Return the settings that Spark was given, by key; those of a running session
    include its own. Raises ConfigError if the arguments of spark-submit are quoted
    wrongly."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    context, session = SparkContext._active_spark_context, SparkSession._instantiatedSession
    if context is not None:
        return dict(context.getConf().getAll() if session is None else session.conf.getAll)
    if "PYSPARK_GATEWAY_PORT" in os.environ:    # spark-submit runs us, and its Java has read all
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    try:
        words = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    except ValueError as error:
        raise ConfigError(f"PYSPARK_SUBMIT_ARGS is no list of arguments ({error}): mend its "
                          "quotes.") from error
    given, file = _read_arguments(words)
    master = {"spark.master": os.environ["MASTER"]} if "MASTER" in os.environ else {}
    return master | _read_file(file or _defaults_file()) | given


def _defaults_file() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf"
    return Path(folder) / "spark-defaults.conf"


def _read_file(file: Path) -> dict[str, str]:
    """Return the settings in one of Spark's files; none if there is no such file."""
    if not file.is_file():
        return {}
    found = (_LINE.fullmatch(line) for line in file.read_text(errors="replace").splitlines())
    return {each[1]: each[2] or "" for each in found if each}


def _read_arguments(words: list[str]) -> tuple[dict[str, str], Path | None]:
    """Return the settings among the arguments of spark-submit, and the file that they
    name instead of spark-defaults.conf."""
    given: dict[str, str] = {}
    file = None
    rest = iter(words)
    for word in rest:
        option, mark, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if option not in ("--master", "--conf", "-c", "--properties-file"):
            continue
        value = value if mark else next(rest, "")
        if option == "--master":
            given["spark.master"] = value
        elif option == "--properties-file":
            file = Path(value)
        else:
            key, _, text = value.partition("=")
            given[key] = text
    return given, file
