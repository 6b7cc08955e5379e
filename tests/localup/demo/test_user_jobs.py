"""A new user tries jobs of his own in the demo's world, and asks what becomes of them."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from controller.api.keys import EVENTS, JOBS
from controller.kube import Api
from localup.apply import wait_until
from localup.demo.scenario import volcano_job
from tests.localup.demo.demo_process import ROOT, demo_starter, read_until
from tests.waiting import LIMIT_SECONDS


@dataclass
class Guest:
    """What the user has: the line that the demo has printed, and its further output."""

    kubeconfig: Path
    process: subprocess.Popen[str]
    heard: list[str] = field(default_factory=list)

    def submit(self, name, queue, **more):
        """Apply a job."""
        namespace, _, _ = name.partition("/")
        self._ask("create", JOBS.item_path(namespace, "").rstrip("/"), volcano_job(name, queue, **more))

    def scale(self, name, pods):
        """Change how many pods a job has."""
        change = [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": pods}]
        self._ask("patch", JOBS.item_path(*name.split("/")), change)

    def explained(self, name):
        """Return what `volcano-global explain` says, as one line."""
        namespace, _, short = name.partition("/")
        command = [sys.executable, "-m", "controller.cli", "explain", "job", short, "-n", namespace]
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return " ".join(ended.stdout.split())

    def events(self, name):
        """Return type, reason and words of the controller's events of the job, as `kubectl describe` shows them."""
        namespace, _, short = name.partition("/")
        found = json.loads(self._ask("get", EVENTS.item_path(namespace, "").rstrip("/")))["items"]
        about = [
            item for item in found if (item["regarding"].get("kind"), item["regarding"].get("name")) == ("Job", short)
        ]
        ours = [item for item in about if item.get("reportingController") == "volcano-global.io/controller"]
        return [(our["type"], our["reason"], our["note"]) for our in ours]

    def told(self, name, stage):
        """Return the words of the demo's own line about a job, once it is printed."""

        def found():
            matches = (re.search(rf"{name} +{stage} +(.*)", line) for line in list(self.heard))
            return next((match.group(1) for match in matches if match), None)

        return wait_until(found, f"a line that {name} is {stage}")

    def _ask(self, verb, path, body=None):
        async def ask():
            async with Api.connect(self.kubeconfig) as api:
                if verb == "get":
                    return await api.get(path)
                data = json.dumps(body).encode()
                return await (api.create(path, data) if verb == "create" else api.patch(path, data, kind="json"))

        return asyncio.run(ask())


@pytest.fixture(scope="module")
def guest(binaries, tmp_path_factory):
    """Yield a user of a demo that is only its world; it ends cleanly."""
    folder = tmp_path_factory.mktemp("bare")
    with demo_starter(folder) as start:
        process = start("--bare")
        *_, line = read_until(process, "export KUBECONFIG=")
        user = Guest(Path(line.strip().partition("=")[2]), process)
        reader = threading.Thread(target=lambda: user.heard.extend(process.stdout), daemon=True)
        reader.start()
        yield user
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT_SECONDS) == 0
        reader.join(timeout=LIMIT_SECONDS)
        assert "nothing is left behind" in user.heard[-1]
    assert list(folder.iterdir()) == []


def test_a_job_that_fits_is_admitted_and_runs(guest):
    guest.submit("team-a/fits", "team-a", pods=2, cpu=2, runtime="600s")
    assert re.fullmatch(r"on member\d, 2 pods", guest.told("team-a/fits", "running"))
    assert "Job team-a/fits is admitted since" in guest.explained("team-a/fits")
    wait_until(lambda: guest.events("team-a/fits"), "an event")
    ((kind, reason, note),) = guest.events("team-a/fits")
    assert (kind, reason) == ("Normal", "Admitted")
    assert note.endswith("by queue 'team-a'")


@pytest.mark.parametrize(
    ("name", "asked", "reason", "words"),
    [
        pytest.param(
            "team-a/nowhere",
            {"queue": "team-a", "pods": 10, "gpu": 1},
            "ExceedsEveryCluster",
            "it does not fit on any cluster, even an empty one; 'member1' comes closest with 8 nvidia.com/gpu of 10",
            id="fits-nowhere",
        ),
        pytest.param(
            "ops/shut",
            {"queue": "archive", "pods": 1, "cpu": 1},
            "QueueClosed",
            "queue 'archive' is Closed and accepts no new workloads",
            id="closed-queue",
        ),
        pytest.param(
            "ops/large",
            {"queue": "urgent", "pods": 6, "cpu": 2},
            "ExceedsQueueLimit",
            "it requests 12 cpu, queue 'urgent' may use at most 8",
            id="too-big-for-its-queue",
        ),
    ],
)
def test_a_job_that_cannot_run_is_told_why_everywhere(guest, name, asked, reason, words):
    guest.submit(name, runtime="600s", **asked)
    assert guest.told(name, "pending") == f"{reason}: {words}"
    explained = guest.explained(name)
    assert f"{reason}: {words}. " in explained
    assert "What would admit it: " in explained
    wait_until(lambda: guest.events(name), "an event")
    ((kind, code, note),) = guest.events(name)
    assert (kind, code) == ("Warning", reason)
    assert note.startswith(f"pending in queue '{asked['queue']}': {words}; ")


def test_a_job_that_is_scaled_up_after_its_admission_counts_and_says_so(guest):
    guest.submit("ops/grows", "urgent", pods=2, cpu=2, runtime="600s")
    guest.told("ops/grows", "running")
    guest.scale("ops/grows", 6)
    guest.submit("ops/late", "urgent", pods=1, cpu=1, runtime="600s")
    assert guest.told("ops/late", "pending").startswith("QueueLimitReached: ")
    text = guest.explained("ops/grows")
    assert "It was admitted with 4 cpu in 2 pods and has grown since; all of it counts." in text
    assert "Queue 'urgent' holds 12 cpu of 8 and takes nothing more until it is back below that." in text
