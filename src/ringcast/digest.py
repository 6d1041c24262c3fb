"""A digest: up to which seqno each sender's stream was delivered."""

from collections.abc import Mapping

from ringcast.address import Address


class Digest(dict[Address, int]):
    """A map {sender: highest seqno delivered}. A seqno of 0 means nothing yet."""

    @classmethod
    def from_names(cls, seqnos: Mapping[str, int]) -> "Digest":
        """Return the digest of `{"name#incarnation": seqno}`, the form that journals
        keep. TypeError if it is no such mapping, ValueError if a key is no member
        address."""
        if not isinstance(seqnos, Mapping) or not all(
                isinstance(sender, str) and isinstance(seqno, int)
                for sender, seqno in seqnos.items()):
            raise TypeError("seqnos maps each sender, as text, to a seqno: pass what to_names() "
                            "returned")
        return cls({Address.parse(sender): seqno for sender, seqno in seqnos.items()})

    def to_names(self) -> dict[str, int]:
        """Return it in the form that `from_names` takes, to be kept in a file."""
        return {str(sender): seqno for sender, seqno in self.items()}
