"""The corpus of a target: all its inputs in one file, one a line, in hexadecimal
digits. A second file has the inputs that broke a promise once; they are kept
forever. The insiders run the programs of the groups."""

import hashlib
from pathlib import Path

HERE = Path(__file__).parent / "corpus"
BORROWS = "insider-"                    # what is before the name of another target


def read(path: Path) -> list[bytes]:
    lines = path.read_text().splitlines() if path.exists() else []
    return [bytes.fromhex(line) for line in lines if not line.startswith("#")]


def inputs(target: str) -> list[bytes]:
    return read(HERE / f"{target.removeprefix(BORROWS)}.txt")


def found(target: str) -> list[bytes]:
    """Return the inputs that broke a promise once."""
    return read(HERE / f"{target.removeprefix(BORROWS)}-found.txt")


def unpack(target: str, folder: Path) -> None:
    """Write each input to a file of its own, as libFuzzer wants them. Those that broke
    a promise once are left to the tests: one of them takes 20 s."""
    for data in inputs(target):
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


def pack(target: str, folder: Path) -> int:
    """Replace the corpus by the files of a folder. Return how many there are."""
    lines = sorted((path.read_bytes().hex() for path in folder.iterdir()),
                   key=lambda line: (len(line), line))
    (HERE / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines if line))
    return len(lines)
