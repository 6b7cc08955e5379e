"""Tests generated bodies: no handler raises another error than `ReviewError`, and memory stays flat."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.webhook.fuzz import HANDLERS, SEEDS, answer_to, check, run
from tests.webhook.reviews import wire

SLACK = 16 << 20


def test_every_seed_is_answered_on_every_path():
    for path, seed in itertools.product(HANDLERS, SEEDS):
        assert answer_to(path, wire(seed))[1] is not None
        check(path, wire(seed))


def test_sample_of_generated_bodies_is_answered():
    run(range(2_000))


@pytest.mark.long
def test_memory_stays_flat_over_200_000_bodies():
    assert run(range(1_000_000, 1_200_000)) < SLACK


@settings(draws(150))
@given(sent=st.binary(max_size=200), path=st.sampled_from(sorted(HANDLERS)))
def test_any_bytes_are_answered(sent, path):
    check(path, sent)
