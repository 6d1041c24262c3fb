"""The corpus of a target: all its inputs in one file, one a line, as hexadecimal
digits; crash-... lines are kept forever."""

import hashlib
from pathlib import Path

HERE = Path(__file__).parent / "corpus"


def inputs(target: str) -> list[bytes]:
    return [bytes.fromhex(line) for line in (HERE / f"{target}.txt").read_text().splitlines()
            if not line.startswith("#")]


def found(target: str) -> list[bytes]:
    """Inputs that broke a promise once."""
    path = HERE / f"{target}-found.txt"
    return [bytes.fromhex(line) for line in path.read_text().splitlines()
            if not line.startswith("#")] if path.exists() else []


def unpack(target: str, folder: Path) -> None:
    """As files of their own, the way libFuzzer wants them."""
    for data in [*inputs(target), *found(target)]:
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def pack(target: str, folder: Path) -> int:
    """Replace the corpus by the files of a folder; how many they are."""
    lines = sorted((path.read_bytes().hex() for path in folder.iterdir()),
                   key=lambda line: (len(line), line))
    (HERE / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines if line))
    return len(lines)
