"""The console of the model that a module's fixture returns."""

import pytest

from tests.console.consoles import console_of


@pytest.fixture
async def console(model):
    async with console_of(model) as console:
        yield console
