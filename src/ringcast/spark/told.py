"""What Spark was told before us: by spark-submit, its files and its environment.

Spark itself knows it once its Java runs. Until then it stands in the variables and the
file that spark-submit will read, which PySpark runs to start Java.
"""

import os
import re
import shlex
from pathlib import Path

_SETTING = re.compile(r"\s*([^#!\s=:][^\s=:]*)(?:\s*[\s=:]\s*(.*?))?\s*")


def told() -> dict[str, str]:
    """Return the settings that somebody gave Spark, by key.

    Those of a session that runs include its own.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    context, session = SparkContext._active_spark_context, SparkSession._instantiatedSession
    if context is not None:
        return dict(context.getConf().getAll() if session is None else session.conf.getAll)
    if "PYSPARK_GATEWAY_PORT" in os.environ:    # spark-submit runs us, and its Java has read all
        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    given, files = _arguments(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    master = {"spark.master": os.environ["MASTER"]} if "MASTER" in os.environ else {}
    return master | _settings(files or _defaults()) | given


def _defaults() -> Path:
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf"
    return Path(folder) / "spark-defaults.conf"


def _settings(file: Path) -> dict[str, str]:
    """Return what a file of Spark's settings says; nothing if it is not there."""
    if not file.is_file():
        return {}
    found = (_SETTING.fullmatch(line) for line in file.read_text(errors="replace").splitlines())
    return {each[1]: each[2] or "" for each in found if each}


def _arguments(words: list[str]) -> tuple[dict[str, str], Path | None]:
    """Return the settings among the arguments of spark-submit, and the file that they
    name instead of the usual one."""
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
