"""Fixtures that run commands in the test's process."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from controller.cli.__main__ import main
from tests.cli.manifests import NOW, cluster, job, queue, running, write


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def answer(self) -> Any:
        """Return the report printed with ``-o json``."""
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def text(self) -> str:
        """Return the output without line breaks and indentation."""
        return " ".join(self.out.split())

    def clusters(self) -> dict[str, list[str]]:
        """Return the clusters of each admitted workload, in the order of the decisions."""
        steps = self.answer["decisions"]
        return {
            step["name"]: [cluster["name"] for cluster in step["clusters"]]
            for step in steps
            if step["action"] == "Admit"
        }

    def reasons(self) -> dict[str, str]:
        """Return the reason of each pending workload."""
        return {step["name"]: step["reason"] for step in self.answer["decisions"] if step["action"] == "Wait"}

    def queue(self, name: str) -> dict[str, Any]:
        return next(report for report in self.answer["queues"] if report["name"] == name)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Return a function that runs a command and returns its result."""

    def run(*arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main([*arguments])
        output = capsys.readouterr()
        return Ended(int(ended.value.code or 0), output.out, output.err)

    return run


@pytest.fixture
def plan(run, tmp_path) -> Callable[..., Ended]:
    """Return a function that runs ``plan`` on documents with JSON output."""

    def plan(*documents: dict[str, Any]) -> Ended:
        return run("plan", "-f", write(tmp_path, *documents), "-o", "json", "--now", NOW)

    return plan


@pytest.fixture
def explain(run, tmp_path) -> Callable[..., Ended]:
    """Return a function that runs ``explain job`` on documents."""

    def explain(*documents: dict[str, Any], name: str = "ml/j", now: str = NOW, output: str = "table") -> Ended:
        return run("explain", "job", name, "-f", write(tmp_path, *documents), "-o", output, "--now", now)

    return explain


@pytest.fixture
def state(tmp_path) -> str:
    """Return the path of a file with a running job, one that the next cycle admits, and one that waits."""
    return write(
        tmp_path,
        cluster("m", {"cpu": 4}),
        queue("a"),
        queue("b", capability={"cpu": 4}),
        *running("old", {"cpu": 1}, on="m", queue="b"),
        job("next", {"cpu": 2}, queue="a"),
        job("big", {"cpu": 9}, queue="a", labels={"app": "train"}),
    )
