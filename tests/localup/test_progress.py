import io
import re

import pytest

from localup import processes as progress
from localup.processes import Step, StepError, run


def step(folder, **fields):
    return Step(**{"title": "building etcd", "log": folder / "log", "remedy": "try again"} | fields)


def test_without_terminal_progress_is_periodic(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_PLAIN_SECONDS", 0.1)
    out = io.StringIO()
    run(["sh", "-c", "echo one package; sleep 0.3"], step(tmp_path), out=out)
    lines = out.getvalue().splitlines()
    assert lines[0] == "building etcd: started"
    assert any(re.fullmatch(r"building etcd: \d+ s  one package", line) for line in lines[1:-1])
    assert lines[-1].startswith("building etcd: done after")


def test_a_failure_names_the_step_the_reason_and_the_remedy(tmp_path):
    with pytest.raises(StepError) as error:
        run(["sh", "-c", "echo undefined: x; exit 1"], step(tmp_path), out=io.StringIO())
    assert str(error.value) == "building etcd failed; the last lines of its output:\n    undefined: x\ntry again"


def test_a_missing_program_is_a_failure_of_the_step(tmp_path):
    with pytest.raises(StepError, match="building etcd failed: cannot start /no/go"):
        run(["/no/go"], step(tmp_path), out=io.StringIO())
