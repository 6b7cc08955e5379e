"""The judge is judged: every mistake of the catalogue is noticed, and without it the same tests pass."""

from collections.abc import Iterator

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.runner import ROOT, MutatedTree

LEAST = 20


@pytest.fixture(scope="module")
def patch(tmp_path_factory) -> Iterator[MutatedTree]:
    return MutatedTree(tmp_path_factory.mktemp("patch"))


def test_there_are_enough_and_each_can_still_be_made():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= LEAST
    for mutant in MUTANTS:
        assert (ROOT / mutant.file).read_text().count(mutant.before) == 1, mutant.name


@pytest.mark.long
def test_without_any_mistake_the_tests_pass(patch):
    assert patch.trouble(*sorted({mutant.caught_by for mutant in MUTANTS})) == ""


@pytest.mark.long
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])
def test_the_mistake_is_noticed(patch, mutant: Mutant):
    patch.plant(mutant)
    try:
        assert patch.trouble(mutant.caught_by), f"nobody noticed {mutant.name}"
    finally:
        patch.weed(mutant)
