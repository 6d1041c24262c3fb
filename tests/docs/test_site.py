"""The documents are a site without warnings."""

import subprocess
import sys
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")]
MISSING = [name for name in ("sphinx", "furo", "myst_parser") if find_spec(name) is None]


@pytest.mark.skipif(bool(MISSING), reason=f"{MISSING} not installed; pip install ringcast[docs]")
def test_sphinx_builds_the_site_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html",
               "-d", str(tmp_path / "doctrees"), str(DOCS), str(tmp_path / "site")]
    run = subprocess.run(command, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert [page for page in PAGES if not (tmp_path / "site" / f"{page}.html").exists()] == []


def test_each_page_is_in_the_table_of_contents():
    listed = (DOCS / "index.md").read_text().splitlines()
    missing = [page for page in PAGES if not any(fnmatch(page, line) for line in listed if line)]
    assert missing == ["index"]
