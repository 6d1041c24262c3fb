"""Help for the tests of Spark: readers of a journal without a session, and queries."""

import pytest

pytest.importorskip("pyspark", reason="the source needs pyspark: pip install ringcast[spark]")

from ringcast.spark.source import RingcastDataSource


def batch(path, schema=None, **options):
    """Return the reader of a batch, as Spark asks for it."""
    source = RingcastDataSource({"path": str(path), **options})
    return source.reader(schema or source.schema())


def stream(path, schema=None, **options):
    """Return the reader of a stream, as Spark asks for it."""
    source = RingcastDataSource({"path": str(path), **options})
    return source.streamReader(schema or source.schema())


def start_query(frame, form, checkpoint, *path, **options):
    """Start a query that ends when it has read all that is there."""
    writer = frame.writeStream.format(form).option("checkpointLocation", str(checkpoint))
    return writer.options(**options).trigger(availableNow=True).start(*map(str, path))
