"""Makes `format("ringcast")` known to Spark, which looks for `DefaultSource` in every
top-level package named `pyspark_*`."""

from ringcast.spark.source import RingcastDataSource as DefaultSource

__all__ = ["DefaultSource"]
