"""Commands as processes of their own: pipes, completion in shells, and imported modules."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.manifests import jobs, queue, write
from tests.waiting import LIMIT_SECONDS

ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_closed_pipe_prints_no_traceback(tmp_path):
    path = write(tmp_path, queue("a"), *jobs("j", 1000, {"cpu": 1}, queue="a"))
    command = [sys.executable, "-m", "controller.cli", "plan", "-f", path, "-o", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"{\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=LIMIT_SECONDS) == 0


@pytest.mark.parametrize(
    ("closed", "arguments", "code"),
    [
        pytest.param("<&-", ["plan", "-f", "-"], 2, id="input"),
        pytest.param(">&-", ["queues", "-f", "{path}"], 0, id="output"),
        pytest.param("2>&-", ["queues", "-v", "-f", "{path}"], 0, id="errors"),
    ],
)
def test_closed_stream_is_like_an_empty_one(tmp_path, closed, arguments, code):
    path = write(tmp_path, queue("a"))
    words = [argument.format(path=path) for argument in arguments]
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "controller.cli", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, "Traceback" in ended.stderr) == (code, False)
    assert ended.stdout.startswith("QUEUE") == (closed == "2>&-")


def test_output_of_a_command_is_planned_with_and_without_changes(tmp_path):
    path = write(tmp_path, queue("a"), queue("b"))
    words = "-m", "controller.cli", "plan", "--what-if", "queue/a.spec.weight=2"
    command = ["bash", "-c", f'exec "$@" -f <(cat {path})', "bash", sys.executable, *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_watch_ends_when_its_reader_is_gone(tmp_path):
    path = write(tmp_path, queue("a"))
    command = [sys.executable, "-m", "controller.cli", "queues", "-f", path, "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"QUEUE")
        process.stdout.close()
        Path(write(tmp_path, queue("a"), queue("b"), name="new")).rename(path)
        try:
            assert process.wait(timeout=LIMIT_SECONDS) == 0
        finally:
            process.kill()
        assert process.stderr.read() == b""


def imported_by(*words):
    """Return the modules that a command imports."""
    report = "try: main()\nfinally: print(*sys.modules, file=sys.stderr)"
    program = f"import sys; from controller.cli.__main__ import main\n{report}"
    ended = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert ended.stdout
    return {*ended.stderr.split()}


@pytest.mark.parametrize("words", [["pending"], ["explain", "job"], ["simulate"]], ids=" ".join)
def test_help_imports_no_slow_library(words):
    slow = {"aiohttp", "asyncio", "msgspec", "pydantic", "rich", "yaml"}
    assert not slow & imported_by(*words, "--help")


def test_commands_on_files_import_no_client(tmp_path):
    path = write(tmp_path, queue("a"))
    assert not {"aiohttp", "kubernetes_asyncio", "structlog"} & imported_by("pending", "-f", path)


# -- completion -------------------------------------------------------------------

_BASH = """
source <(volcano-global completion bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_volcano_global_completion volcano-global
echo "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["pen"], "pending", id="command"),
        pytest.param(["explain", ""], "job hyperjob queue", id="subcommand"),
        pytest.param(["queues", "--so"], "--sort-by", id="option"),
        pytest.param(["queues", "-o", ""], "table wide name csv json yaml", id="value"),
    ],
)
def test_bash_completes_words(words, expected):
    command = ["bash", "--norc", "-c", _BASH, "bash", "volcano-global", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert ended.stdout.strip() == expected, ended.stderr


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not installed")
@pytest.mark.parametrize(
    ("words", "expected"),
    [pytest.param("pen", "pending", id="command"), pytest.param("queues -o js", "json", id="value")],
)
def test_fish_completes_words(words, expected, tmp_path):
    ask = f'volcano-global completion fish | source; complete -C "volcano-global {words}"'
    environment = {**ENVIRONMENT, "HOME": str(tmp_path)}
    ended = subprocess.run(["fish", "-c", ask], capture_output=True, text=True, check=True, env=environment)
    assert [line.split("\t")[0] for line in ended.stdout.splitlines()] == [expected]


_ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'PS1=; fpath=($HOME $fpath); autoload -Uz compinit; compinit -u -d $HOME/dump; print loaded'
zpty -r shell line '*loaded*loaded*'
zpty -w -n shell $'volcano-global pen\t'
zpty -r -m shell line '*pending*' && print completed
zpty -d shell
"""


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not installed")
def test_zsh_completes_at_the_first_tab(run, tmp_path):
    (tmp_path / "_volcano-global").write_text(run("completion", "zsh").out)
    command, environment = ["zsh", "-f", "-c", _ZSH], {**ENVIRONMENT, "HOME": str(tmp_path)}
    ended = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=60)
    assert ended.stdout == "completed\n"
