"""The corpus of the decoder finds what was planted into the decoder: the mistakes of
length checks that other systems shipped. Otherwise its silence would mean nothing."""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ringcast

pytestmark = pytest.mark.prove

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
PACKAGE = Path(ringcast.__file__).parent
WIRE = ROOT / "ext" / "ringcast" / "_core" / "wire.pyx"
RUN = ("from corpus import found, inputs; from targets import decoder\n"
       "for data in [*inputs('decoder'), *found('decoder')]: decoder(data)")
SUM = "size = RUN + run.count * LENGTH + <uint64_t> run.size"
sanitize = runpy.run_path(str(ROOT / "tests" / "sanitizers" / "sanitize.py"))
mutations = runpy.run_path(str(ROOT / "tests" / "mutations" / "protocol.py"))

PLANTS = {
    "the sum of two lengths wraps": (
        SUM, "size = <uint32_t> (RUN + run.count * LENGTH + run.size)"),
    "a length is not checked": ("or size > <uint64_t> left", ""),
    "one byte too many is let in": ("size > <uint64_t> left", "size > <uint64_t> left + 1"),
    "lengths need not add up": ("size if total == run.size else -1", "size"),
    "the table of lengths is not counted": (SUM, "size = RUN + <uint64_t> run.size"),
    "the head of a run is not checked": ("if left < RUN:", "if left < 0:"),
}


def report_of(tmp_path, old, new):
    """Build the decoder, with this mistake, for AddressSanitizer, and let it read the
    corpus. Return what is reported."""
    copy, text = shutil.copytree(PACKAGE, tmp_path / "ringcast"), WIRE.read_text()
    assert text.count(old) == 1
    mutations["build"](WIRE, text.replace(old, new), copy / "_core", "asan")
    log = tmp_path / "report"
    env = sanitize["environment"]("asan", log) | {"PYTHONPATH": f"{tmp_path}:{HERE}"}
    run = subprocess.run([sys.executable, "-c", RUN], env=env, capture_output=True, text=True)
    said = run.stderr + sanitize["reports"](log)
    assert bool(run.returncode) == bool(said), said
    return said


@pytest.mark.parametrize("plant", PLANTS)
def test_the_corpus_finds_a_mistake_of_the_decoder(plant, tmp_path):
    """AddressSanitizer reports it, or the answer is not that of the reference."""
    assert report_of(tmp_path, *PLANTS[plant])


def test_without_a_mistake_nothing_is_reported(tmp_path):
    assert report_of(tmp_path, SUM, SUM) == ""
