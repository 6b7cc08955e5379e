import pytest

from tests.controllers.hyperjob.harness import Harness


@pytest.fixture
def harness() -> Harness:
    return Harness()
