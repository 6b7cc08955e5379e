"""Mutation testing: each mutation of the catalogue fails its test, which passes without the mutation."""

from collections.abc import Iterator

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.runner import ROOT, MutatedTree

LEAST = 20


@pytest.fixture(scope="module")
def patch(tmp_path_factory) -> Iterator[MutatedTree]:
    return MutatedTree(tmp_path_factory.mktemp("patch"))


def test_every_mutation_applies_exactly_once():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= LEAST
    for mutant in MUTANTS:
        assert (ROOT / mutant.file).read_text().count(mutant.before) == 1, mutant.name


@pytest.mark.long
def test_killing_tests_pass_without_mutation(patch):
    assert patch.run_tests(*sorted({mutant.caught_by for mutant in MUTANTS})) == ""


@pytest.mark.long
@pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])
def test_mutation_is_killed(patch, mutant: Mutant):
    patch.apply(mutant)
    try:
        assert patch.run_tests(mutant.caught_by), f"mutation {mutant.name} was not noticed"
    finally:
        patch.revert(mutant)
