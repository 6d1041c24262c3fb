"""How far a stream is behind, from Spark's own report of its progress.

Kafka's source puts these figures into the progress itself (`sources[].metrics`). Spark
asks no source written in Python for metrics, but it does report where each batch ended
and how far the journals went then, which is all they need.
"""

import json
from collections.abc import Mapping
from typing import Any

from ringcast.journal.offsets import digest_of


def lag(progress: Mapping[str, Any]) -> dict[str, float]:
    """Return how many seqnos the senders of a query's ringcast sources are behind the
    latest, on average, at most and at least.

    `progress` is a StreamingQueryProgress: `query.lastProgress`, or a listener's
    `event.progress`. The names are those of Kafka's source, a sender here being what a
    partition is there. Empty while the query has not reported any sender. A sender that
    came while the batch ran counts from its seqno 1.
    """
    behind: list[int] = []
    for source in progress["sources"]:
        end, latest = _digest(source.get("endOffset")), _digest(source.get("latestOffset"))
        behind += [max(0, seqno - end.get(sender, 0)) for sender, seqno in latest.items()]
    if not behind:
        return {}
    return {"avgOffsetsBehindLatest": sum(behind) / len(behind),
            "maxOffsetsBehindLatest": max(behind),
            "minOffsetsBehindLatest": min(behind)}


def _digest(offset: str | None) -> dict[str, int]:
    """Return the digest in the text of an offset; empty for no offset, and for one of
    another kind of source."""
    try:
        digest = digest_of(json.loads(offset or "{}"))
    except (ValueError, AttributeError):
        return {}
    return digest if all("#" in sender for sender in digest) else {}
