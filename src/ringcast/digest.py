"""How far somebody has got with each sender's stream: a map from sender to highest
seqno, inclusive."""

from collections.abc import Mapping

import msgspec

from ringcast.address import Address


class Digest(dict[Address, int]):
    """{sender: highest seqno delivered}. A seqno of 0 means nothing yet.

    The JSON form is canonical (senders sorted, as `name#incarnation`), because Spark
    compares offsets as text.
    """

    def to_json(self) -> str:
        return msgspec.json.encode({str(sender): self[sender] for sender in sorted(self)}).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> "Digest":
        """The digest that `to_json` wrote; ValueError when the text is no such map."""
        return cls.from_names(msgspec.json.decode(text, type=dict[str, int]))

    @classmethod
    def from_names(cls, seqnos: Mapping[str, int]) -> "Digest":
        """From `{"name#incarnation": seqno}`, the form of journals; ValueError when a
        key is no member address."""
        return cls({Address.parse(sender): seqno for sender, seqno in seqnos.items()})
