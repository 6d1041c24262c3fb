"""The checksum of a part file: a CRC-32 of the whole file, between its data and its
footer.

A Parquet file is read from its end, and nothing refers to the bytes in front of its
footer, so every reader can read a sealed file. Parquet's own checksums protect the
pages, but not their headers nor the footer, where one flipped bit can make other rows.

Each part of a trace has one, so a missing seal is damage.
"""

from zlib import crc32

MAGIC = b"RCRC"
SIZE = len(MAGIC) + 4                   # of a seal: the magic, and the checksum of all other bytes
ENDING = 8                              # bytes of the footer's length and of Parquet's magic


def seal(data: bytes) -> bytes:
    """Return a Parquet file with its checksum in it."""
    at = footer_at(data)
    return data[:at] + MAGIC + crc32(data).to_bytes(4, "little") + data[at:]


def fits(data: bytes) -> bool | None:
    """Return whether a file is what was sealed; None if it has no seal."""
    at = footer_at(data) - SIZE
    if at < 0 or data[at:at + len(MAGIC)] != MAGIC:
        return None
    kept = int.from_bytes(data[at + len(MAGIC):at + SIZE], "little")
    return crc32(data[at + SIZE:], crc32(data[:at])) == kept


def footer_at(data: bytes) -> int:
    """Return where the footer begins; it is negative if the file has no valid end."""
    return len(data) - ENDING - int.from_bytes(data[-ENDING:-4], "little")
