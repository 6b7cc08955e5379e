"""User-submitted jobs in a demo environment without a scenario."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller.api.keys import EVENTS, JOBS
from controller.kube.client import Api
from localup.apply import wait_until
from localup.demo.scenario import volcano_job
from tests.localup.demo.demo_process import ROOT, demo_starter, read_until
from tests.waiting import LIMIT_SECONDS


@dataclass
class DemoUser:
    """A user with the printed kubeconfig; also collects the demo's further output."""

    kubeconfig: Path
    process: subprocess.Popen[str]
    output: list[str] = field(default_factory=list)
    instructions: str = ""
    """What the demo printed about its use."""

    def submit(self, name, queue, **more):
        """Apply a job."""
        self._ask(JOBS, name, volcano_job(name, queue, **more))

    def explained(self, name):
        """Return the output of `volcano-global explain` as one line."""
        namespace, _, short = name.partition("/")
        command = [sys.executable, "-m", "controller.cli", "explain", "job", short, "-n", namespace]
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return " ".join(ended.stdout.split())

    def events(self, name):
        """Return type, reason and note of the controller's events of the job."""
        return [
            (event["type"], event["reason"], event["note"])
            for event in self._ask(EVENTS, name)["items"]
            if (event["regarding"].get("kind"), event["regarding"].get("name")) == ("Job", name.partition("/")[2])
            and event.get("reportingController") == "volcano-global.io/controller"
        ]

    def entry(self, name, stage):
        """Return the text of the demo's timeline entry for a job's stage once it is printed."""

        def entry_text():
            matches = (re.search(rf"{name} +{stage} +(.*)", line) for line in list(self.output))
            return next((match.group(1) for match in matches if match), None)

        return wait_until(entry_text, f"a line that {name} is {stage}")

    def _ask(self, resource, name, body=None):
        """Create *body* in the namespace of *name*, or list what is there."""
        path = resource.item_path(name.partition("/")[0], "").rstrip("/")

        async def ask():
            async with Api.connect(self.kubeconfig) as api:
                return await (api.create(path, json.dumps(body).encode()) if body else api.get(path))

        return json.loads(asyncio.run(ask()))


@pytest.fixture(scope="module")
def user(binaries, tmp_path_factory):
    """Yield a user of a demo environment without a scenario; it must end cleanly."""
    folder = tmp_path_factory.mktemp("bare")
    with demo_starter(folder) as start:
        process = start("--bare")
        *_, line = read_until(process, "export KUBECONFIG=")
        user = DemoUser(Path(line.strip().partition("=")[2]), process)
        user.instructions = "".join((line, *read_until(process, "its log:")))
        reader = threading.Thread(target=lambda: user.output.extend(process.stdout), daemon=True)
        reader.start()
        yield user
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT_SECONDS) == 0
        reader.join(timeout=LIMIT_SECONDS)
        assert "all processes and files were removed" in user.output[-1]
    assert list(folder.iterdir()) == []


def test_a_job_that_fits_is_admitted_and_runs(user):
    user.submit("team-a/fits", "team-a", pods=2, cpu=2, runtime="600s")
    assert re.fullmatch(r"on member\d, 2 pods", user.entry("team-a/fits", "running"))
    assert "Job team-a/fits is admitted since" in user.explained("team-a/fits")
    ((kind, reason, note),) = wait_until(lambda: user.events("team-a/fits"), "an event")
    assert (kind, reason) == ("Normal", "Admitted")
    assert note.endswith("by queue 'team-a'")


def test_pending_job_reports_its_reason_everywhere(user):
    message = "it does not fit on any cluster, even an empty one; 'member1' comes closest with 8 nvidia.com/gpu of 10"
    user.submit("team-a/nowhere", "team-a", pods=10, gpu=1, runtime="600s")
    assert user.entry("team-a/nowhere", "pending") == f"ExceedsEveryCluster: {message}"
    explained = user.explained("team-a/nowhere")
    assert f"ExceedsEveryCluster: {message}. " in explained
    assert "What would admit it: " in explained
    ((kind, code, note),) = wait_until(lambda: user.events("team-a/nowhere"), "an event")
    assert (kind, code) == ("Warning", "ExceedsEveryCluster")
    assert note.startswith(f"pending in queue 'team-a': {message}; ")


def test_printed_instructions_name_existing_files(user):
    files = re.findall(r"(?<![\w:/])/[\w./-]+", user.instructions)
    assert len(files) >= 4
    assert all(Path(file).is_file() for file in files), files


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is missing")
def test_first_job_of_the_documentation_runs_as_printed(user):
    page = (ROOT / "docs" / "getting-started" / "first-queues.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {"KUBECONFIG": str(user.kubeconfig), "PATH": path}
    command = ["bash", "-euo", "pipefail", "-c", "\n".join(blocks)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert user.entry("ml/first-job", "running")
