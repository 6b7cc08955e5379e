"""Mutation testing: each mutation of the catalogue fails its test, which passes without the mutation."""

import ast
from collections.abc import Iterator

import pytest

from tests.mutants.catalogue import MUTANTS, Mutant
from tests.mutants.runner import ROOT, MutatedTree, mutate

LEAST = 20

each_mutant = pytest.mark.parametrize("mutant", [pytest.param(mutant, id=mutant.name) for mutant in MUTANTS])


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Iterator[MutatedTree]:
    return MutatedTree(tmp_path_factory.mktemp("tree"))


def test_mutants_have_unique_names():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= LEAST


@each_mutant
def test_mutation_applies_once_and_compiles(mutant: Mutant):
    mutated = mutate(mutant, ROOT)
    compile(mutated, mutant.file, "exec")
    assert mutated != ast.unparse(ast.parse((ROOT / mutant.file).read_text()))


@each_mutant
def test_killing_test_exists(mutant: Mutant):
    path, _, test = mutant.caught_by.partition("::")
    functions = [
        node.name
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert not test or test.partition("[")[0] in functions


@pytest.mark.long
def test_killing_tests_pass_without_mutation(tree):
    assert tree.run_tests(*sorted({mutant.caught_by for mutant in MUTANTS})) == ""


@pytest.mark.long
@each_mutant
def test_mutation_is_killed(tree, mutant: Mutant):
    tree.apply(mutant)
    try:
        assert tree.run_tests(mutant.caught_by), f"mutation {mutant.name} was not noticed"
    finally:
        tree.revert(mutant)
