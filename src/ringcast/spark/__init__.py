"""Group messages as tables: a durable journal of the messages that one member received,
the Spark source that reads it, and the sink that sends rows to a group.

    with Journal("flights.journal", group="flights") as journal:    # no Spark needed
        journal.append("A#00000000000000a1", 1, [b"...", b"..."], view_id=3,
                       sent_at=time.time_ns(), delivered_at=time.time_ns())
        journal.sync()

    spark = session()
    spark.read.format("ringcast").load("flights.journal")

This package does not import the compiled core, so it runs on Spark workers that do not
have it. Importing the package imports neither pyarrow nor pyspark; using a name does.
"""

from importlib import import_module
from typing import TYPE_CHECKING

# Imported at once: later, the submodule of the same name would replace the function.
from ringcast.spark.session import session

if TYPE_CHECKING:
    from ringcast.journal.reader import JournalReader as JournalReader
    from ringcast.journal.writer import Journal as Journal
    from ringcast.spark.progress import lag as lag

_HOMES = {"Journal": "journal.writer", "JournalReader": "journal.reader", "lag": "spark.progress"}

__all__ = ["Journal", "JournalReader", "lag", "session"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"ringcast.{_HOMES[name]}"), name)
