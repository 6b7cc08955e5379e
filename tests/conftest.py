"""Fixtures of a real control plane: one shared by the test run, and separate ones for modules that need them."""

import itertools
import signal
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from localup.apply import create_namespace, delete_namespace
from localup.binaries import Binaries, ensure_binaries
from localup.controlplane import ControlPlane, Etcd
from tests import draws
from tests.files import read_object

REAL = {"binaries", "etcd", "control_plane", "namespace", "fresh_control_plane", "helm"}

PROCESSES = {
    "tests/certs/test_main.py",
    "tests/cli/test_commands.py",
    "tests/image/test_image.py",
    "tests/localup/test_processes.py",
    "tests/test_process.py",
    "tests/webhook/test_app.py",
    "tests/webhook/test_fuzz.py",
    "tests/webhook/test_main.py",
    "tests/webhook/test_readiness.py",
    "tests/webhook/test_tls.py",
}
"""Modules that start processes or servers of the project; they are not unit tests."""

MAX_NAME = 60
"""Longest name of a test."""

_prefixes = (f"/registry-{number}" for number in itertools.count(1))


draws.load()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the folder of real definitions and captured objects."""
    parser.addoption(
        "--real-definitions",
        type=Path,
        metavar="DIR",
        help="Folder with the CustomResourceDefinitions (crds) of a real Karmada and Volcano, and objects captured"
        " from them (objects); without it, tests that compare with them are skipped.",
    )


def pytest_configure() -> None:
    """Restore the handling of Ctrl-C, which background jobs of a shell ignore and child processes inherit."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that need a real server or a process; those that are not smoke tests are integration tests.

    Raises ``UsageError`` for a name that is too long to be read in a list of failures.
    """
    for item in items:
        if len(item.name.partition("[")[0]) > MAX_NAME:
            raise pytest.UsageError(f"{item.nodeid}: shorten the name to {MAX_NAME} characters")
        if item.nodeid.partition("::")[0] in PROCESSES:
            item.add_marker(pytest.mark.process)
        if REAL.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.real)
        if item.get_closest_marker("smoke"):
            # One xdist worker runs all smoke tests, so that they share their servers.
            item.add_marker(pytest.mark.xdist_group("smoke"))
        elif item.get_closest_marker("real") or item.get_closest_marker("process"):
            item.add_marker(pytest.mark.integration)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the duration of the tests of each folder, longest first."""
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = report.nodeid.partition("::")[0].rpartition("/")[0]
                seconds[folder] += report.duration
    if seconds:
        terminalreporter.section("seconds by folder")
        for folder, spent in seconds.most_common():
            terminalreporter.line(f"{spent:8.1f}  {folder}")


@pytest.fixture(scope="session")
def real_definitions(pytestconfig: pytest.Config) -> Path:
    """Return the folder with the definitions of a real Karmada and Volcano; skip the test without it."""
    return _folder_of(pytestconfig, "crds")


@pytest.fixture(scope="session")
def captured_objects(pytestconfig: pytest.Config) -> Callable[[str], list[dict[str, Any]]]:
    """Return a function that reads the objects of a real Karmada by file pattern; skip the test without them."""
    folder = _folder_of(pytestconfig, "objects")

    def read(pattern: str) -> list[dict[str, Any]]:
        files = sorted(folder.glob(f"{pattern}.yaml"))
        assert files, f"no {pattern}.yaml in {folder}"
        return [item for file in files for item in _items(read_object(file))]

    return read


def _items(document: dict[str, Any]) -> list[dict[str, Any]]:
    return document["items"] if document["kind"] == "List" else [document]


def _folder_of(config: pytest.Config, name: str) -> Path:
    folder = config.getoption("--real-definitions")
    if folder is None:
        pytest.skip("needs --real-definitions DIR")
    if not (folder / name).is_dir():
        pytest.fail(f"--real-definitions: {folder} has no folder {name}")
    return Path(folder / name)


@pytest.fixture(scope="session")
def binaries(pytestconfig: pytest.Config) -> Binaries:
    """Return the binaries; building missing ones takes some minutes and shows its output."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    if capture is None:
        return ensure_binaries()
    with capture.global_and_fixture_disabled():
        return ensure_binaries()


@pytest.fixture(scope="session")
def etcd(binaries: Binaries) -> Iterator[Etcd]:
    """Yield the etcd of the test run."""
    with Etcd(binaries) as running:
        yield running


@pytest.fixture(scope="session")
def control_plane(etcd: Etcd) -> Iterator[ControlPlane]:
    """Yield the shared control plane; each test uses its own namespace."""
    with ControlPlane(etcd) as running:
        yield running


@pytest.fixture(scope="session")
def plane(etcd: Etcd) -> Iterator[ControlPlane]:
    """Yield a control plane with an audit log for tests that start the controller; one test at a time uses it."""
    with ControlPlane(etcd, prefix="/audited", controllers=False, audit=True) as running:
        yield running


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    """Yield a fresh namespace, in which the identity ``tenant`` may edit."""
    name = f"test-{uuid.uuid4().hex[:12]}"
    create_namespace(control_plane.admin, name)
    yield name
    delete_namespace(control_plane.admin, name)


@pytest.fixture(scope="module")
def fresh_control_plane(etcd: Etcd) -> Iterator[Callable[..., ControlPlane]]:
    """Yield a function that starts a separate control plane for one module.

    Queues and clusters are cluster-scoped, so a controller under test sees all of them.
    Arguments are those of `ControlPlane`.
    """
    with ExitStack() as stack:

        def start(**options: Any) -> ControlPlane:
            return stack.enter_context(ControlPlane(etcd, **{"prefix": next(_prefixes)} | options))

        yield start
