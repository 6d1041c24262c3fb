"""Read a journal as a stream with Spark, and write the warm hours of the weather
journal to a table.

    python examples/journal.py weather.journal
    python examples/warm_hours.py weather.journal warm

Run it again after more was recorded: it continues where it ended, and no row comes
twice.
"""

import argparse

from ringcast.spark import session


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the warm hours of a journal to a table.")
    parser.add_argument("journal", help="a journal of ringcast record or examples/journal.py")
    parser.add_argument("table", help="a directory for the rows and the query's checkpoint")
    args = parser.parse_args()
    spark = session("warm hours")
    messages = spark.readStream.format("ringcast").load(args.journal)
    words = messages.selectExpr("sender", "seqno", "split(cast(payload AS string), ' ') AS words")
    hours = words.selectExpr("sender", "seqno", "words[0] AS hour",
                             "cast(words[1] AS int) AS degrees")
    query = (hours.where("degrees >= 13").writeStream.format("parquet")
             .option("path", f"{args.table}/rows")
             .option("checkpointLocation", f"{args.table}/checkpoint")
             .trigger(availableNow=True)            # take what is there, and end
             .start())
    query.awaitTermination()
    spark.read.parquet(f"{args.table}/rows").orderBy("sender", "seqno").show()
    spark.stop()


if __name__ == "__main__":
    main()
