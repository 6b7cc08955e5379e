"""Tests generated bodies: no exception leaves a handler, readable uids are returned, memory stays flat."""

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.draws import draws
from tests.webhook.fuzz import SEEDS, Handlers, body, check, run, silence
from tests.webhook.reviews import wire

SLACK = 16 << 20

PATHS = sorted(Handlers().paths)


@pytest.fixture(autouse=True)
def quiet():
    silence()
    yield
    structlog.reset_defaults()


def test_generated_body_is_determined_by_its_number():
    assert [body(number) for number in range(50)] == [body(number) for number in range(50)]


async def test_every_seed_is_answered_on_every_path():
    handlers = Handlers()
    for path in PATHS:
        for seed in SEEDS:
            sent = wire(seed)
            status, answer = await handlers.post(path, sent)
            check(path, sent, status, answer)
            assert status == 200


async def test_sample_of_generated_bodies_is_answered():
    await run(range(2_000))


@pytest.mark.long
async def test_memory_stays_flat_over_200_000_bodies():
    assert await run(range(1_000_000, 1_200_000)) < SLACK


@settings(draws(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sent=st.binary(max_size=200), path=st.sampled_from(PATHS))
async def test_any_bytes_are_answered(sent, path):
    check(path, sent, *await Handlers().post(path, sent))
