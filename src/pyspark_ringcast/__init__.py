"""Registers `format("ringcast")` with Spark, which looks for a `DefaultSource` in every
top-level package named `pyspark_*`."""

from ringcast.spark.source import RingcastDataSource as DefaultSource

__all__ = ["DefaultSource"]
