"""A process may open as many files as its limits of connections presume."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from controller.kube import limited_server
limited_server._OPEN_FILES = 1000
limited_server.raise_open_files()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        pytest.param(256, 2000, 1000, id="raised"),
        pytest.param(256, 512, 512, id="as-far-as-permitted"),
        pytest.param(1500, 2000, 1500, id="never-lowered"),
    ],
)
def test_open_files_are_raised(soft, hard, raised):
    command = [sys.executable, "-c", PROGRAM.format(soft=soft, hard=hard)]
    limits = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert limits == [str(raised), str(hard)]


MAIN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2000))
from controller.history import __main__ as history
from controller.kube import limited_server
limited_server._OPEN_FILES = 1000
history.serve = lambda _: resource.getrlimit(resource.RLIMIT_NOFILE)
history.asyncio.run = print
sys.argv = ["history", "--decision-log", "log"]
history.main()
"""


@pytest.mark.process
def test_history_endpoint_may_open_all_files_of_a_log():
    assert (
        subprocess.run([sys.executable, "-c", MAIN], capture_output=True, text=True, check=True).stdout
        == "(1000, 2000)\n"
    )
