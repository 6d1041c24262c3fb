"""Each deliberate mistake in the protocol code is caught by the simulator."""

import ast
import re
from dataclasses import replace

import pytest
from protocol import MUTATIONS, ROOT, Mutation, hunt, mutate

EACH = pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)


@EACH
def test_applies(mutation):
    """It is still a change of the program, and the result is still one."""
    path, text = mutate(mutation)
    if path.suffix == ".pyx":                   # who hunts it builds it
        assert text != path.read_text()
    else:
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(path.read_text()))


@pytest.mark.parametrize("mutation", [
    pytest.param(mutation, id=mutation.name, marks=[] if mutation.test else pytest.mark.prove)
    for mutation in MUTATIONS])
def test_is_caught(mutation):
    assert hunt(mutation)


@pytest.mark.parametrize("test", sorted({mutation.test for mutation in MUTATIONS if mutation.test}))
def test_that_catches_a_mistake_is_there(test):
    """Else it would seem to catch it, because it fails without the mistake, too."""
    path, name = test.split("::")
    assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text()


def test_the_page_on_threats_names_mistakes_and_the_tests_that_catch_them():
    """Only what the compiled core refuses has no mistake."""
    page = (ROOT / "docs" / "threats.md").read_text()
    rows = re.findall(r"^\| .* \| `(\S+)`: `(test_\w+)` \| (.+) \|$", page, re.MULTILINE)
    caught = {(mutation.name, mutation.test.partition("[")[0]) for mutation in MUTATIONS}
    rows = [(path, name, mistake) for path, name, mistake in rows if path.endswith(".py")]
    assert len(rows) > 40
    assert [row for row in rows if not row[2].startswith("- (compiled")
            and (row[2], f"{row[0]}::{row[1]}") not in caught] == []
    assert [row for row in rows if f"def {row[1]}(" not in (ROOT / row[0]).read_text()] == []


def test_names_are_those_of_one_mutation_each():
    assert len({mutation.name for mutation in MUTATIONS}) == len(MUTATIONS)


def test_a_mutation_that_no_longer_fits_the_source_is_an_error():
    fits = Mutation("of today", "Mcast.purge", "self.acks.minimum if self.acks", "0 if self.acks")
    mutate(fits)
    with pytest.raises(ValueError, match="Mcast._push is defined 0 times"):
        mutate(replace(fits, function="Mcast._push"))
    with pytest.raises(ValueError, match="occurs 0 times in Mcast.forget"):
        mutate(replace(fits, function="Mcast.forget"))
    with pytest.raises(ValueError, match="occurs 4 times in Mcast.purge"):
        mutate(replace(fits, old="minimum"))
    with pytest.raises(ValueError, match="occurs 0 times in Mcast.purge"):
        mutate(replace(fits, more=(("maximum", "minimum"),)))
