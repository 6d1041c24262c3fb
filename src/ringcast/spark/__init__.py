"""Group messages as tables: a durable journal of what one member received, the Spark
source that reads it, the sink that brings rows into a group, audits of what members
did, and campaigns of simulations.

    with Journal("flights.journal", group="flights") as journal:      # the recorder, no Spark needed
        journal.append("A#00000000000000a1", 1, [b"...", b"..."], view_id=3,
                       sent_at=time.time_ns(), delivered_at=time.time_ns())
        journal.sync()

    spark = session()
    spark.read.format("ringcast").load("flights.journal")

Nothing here but campaigns, which run whole groups in the workers, imports the compiled
core: so the rest runs on Spark workers without it. And importing this package imports
neither pyarrow nor pyspark until a name is used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from ringcast.spark.session import session  # at once, else the submodule of the same name would

                                            # take the function's place

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
