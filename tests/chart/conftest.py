"""Fixtures: Helm, and charts rendered with it."""

import json
from collections.abc import Callable
from functools import cache

import pytest

from localup.binaries import ensure_helm
from tests.chart.helm import Helm, Rendered


@pytest.fixture(scope="session")
def helm(pytestconfig, tmp_path_factory) -> Helm:
    """Return Helm; if it is not cached, it is built, which takes about two minutes."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    home = tmp_path_factory.mktemp("helm")
    if capture is None:
        return Helm(ensure_helm(), home)
    with capture.global_and_fixture_disabled():
        return Helm(ensure_helm(), home)


@pytest.fixture(scope="session")
def render(helm) -> Callable[..., Rendered]:
    """Return a function that renders the chart with some values."""

    @cache
    def rendered(text: str) -> Rendered:
        return Rendered(helm.template(json.loads(text)))

    return lambda values=None: rendered(json.dumps(values or {}))


@pytest.fixture(scope="session")
def rendered(render) -> Rendered:
    """Return the chart rendered with default values."""
    return render()
