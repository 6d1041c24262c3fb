"""The lag of a stream, computed from Spark's report of its progress.

Kafka's source puts these figures into the progress itself (`sources[].metrics`). Spark
does not ask a source written in Python for metrics. But it reports where each batch
ended and how far the journals went then, and the lag follows from these.
"""

import json
from collections.abc import Mapping
from typing import Any

from ringcast.journal.offsets import digest_of


def lag(progress: Mapping[str, Any]) -> dict[str, float]:
    """Return how many seqnos a query has not read yet, of the senders of its ringcast
    sources: the average over the senders, the most and the least.

    `progress` is a StreamingQueryProgress: `query.lastProgress`, or a listener's
    `event.progress`. The names are those of Kafka's source; a sender here is what a
    partition is there. Empty until the query has reported a sender. A sender that came
    while the batch ran counts from its seqno 1.
    """
    behind: list[int] = []
    for source in progress["sources"]:
        end, latest = _digest(source.get("endOffset")), _digest(source.get("latestOffset"))
        behind += [max(0, seqno - end.get(sender, 0)) for sender, seqno in latest.items()]
    if not behind:
        return {}
    return {"avgOffsetsBehindLatest": sum(behind) / len(behind),
            "maxOffsetsBehindLatest": max(behind), "minOffsetsBehindLatest": min(behind)}


def _digest(offset: str | None) -> dict[str, int]:
    """Return the digest in the text of an offset; empty for no offset, and for the
    offset of another kind of source."""
    try:
        digest = digest_of(json.loads(offset or "{}"))
    except (ValueError, AttributeError):
        return {}
    return digest if all("#" in sender for sender in digest) else {}
