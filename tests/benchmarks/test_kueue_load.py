import asyncio
import json
from contextlib import asynccontextmanager

import msgspec
import pytest

from controller.engine.state.hierarchy import QueueName
from controller.kube.errors import Conflict
from tests.benchmarks.kueue_load import Binding, JobRun, JobRunner, job_manifest, jobs_by_stream, mean_wait
from tests.traces.cohorts import THIRTY, THOUSAND, cohorts_load
from tests.traces.load import Job, Task, resource_amounts


def job(name="small-1", runtime=20, priority_class="small"):
    task = Task("main", 1, resource_amounts(cpu=5000))
    return Job("q", name, QueueName("q"), (task,), 0, runtime, priority_class)


def binding(version, *, suspended=False):
    head = {"name": "small-1-job", "namespace": "q", "resourceVersion": version}
    return msgspec.convert({"metadata": head, "spec": {"suspension": {"scheduling": suspended}}}, Binding)


class PatchedApi:
    """Records patches, and refuses those of an old version."""

    def __init__(self):
        self.version = "1"
        self.patches = []

    async def patch(self, path, body, *, kind):
        patch = json.loads(body)
        if patch["metadata"]["resourceVersion"] != self.version:
            raise Conflict(path, 409, "it has changed")
        self.patches.append((path, kind, patch["status"]["aggregatedStatus"][0]["status"]["state"]["phase"]))


@asynccontextmanager
async def runner_of(*jobs):
    runner = JobRunner(PatchedApi(), jobs)
    task = asyncio.create_task(runner.run())
    yield runner
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("shape", "counts"),
    [pytest.param(THIRTY, [50, 100, 350], id="thirty"), pytest.param(THOUSAND, [4, 11, 35], id="thousand")],
)
def test_each_queue_has_three_streams(shape, counts):
    streams = jobs_by_stream(cohorts_load(shape).jobs)
    assert len(streams) == shape.cohorts * shape.queues
    for found in streams.values():
        assert sorted(map(len, found)) == counts
        assert all(len({job.priority_class for job in stream}) == 1 for stream in found)
        assert all([job.at for job in stream] == sorted(job.at for job in stream) for stream in found)


def test_manifest_has_requests_and_no_estimate():
    manifest = job_manifest(job())
    assert manifest["metadata"] == {"name": "small-1", "namespace": "q"}
    assert (manifest["spec"]["queue"], manifest["spec"]["priorityClassName"]) == ("q", "small")
    (container,) = manifest["spec"]["tasks"][0]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "5"}}


async def test_admitted_job_completes_after_its_run_time():
    async with runner_of(job()) as runner:
        runner.upsert(binding("1", suspended=True))
        assert runner.admitted == 0
        runner.upsert(binding("1"))
        await asyncio.wait_for(runner.all_finished.wait(), 5)
        (run,) = runner.runs.values()
        assert run.finished_at - run.admitted_at >= 0.02
        (patch,) = runner._api.patches
        assert patch[1:] == ("merge", "Completed")
        assert patch[0].endswith("/namespaces/q/resourcebindings/small-1-job/status")


async def test_evicted_job_completes_after_its_next_admission():
    async with runner_of(job(runtime=50)) as runner:
        runner.upsert(binding("1"))
        runner.upsert(binding("1", suspended=True))
        await asyncio.sleep(0.1)
        assert (runner.finished, runner.evictions) == (0, 1)
        runner.upsert(binding("1"))
        await asyncio.wait_for(runner.all_finished.wait(), 5)
        assert (runner.admitted, len(runner._api.patches)) == (2, 1)


async def test_completion_is_retried_after_a_conflict():
    async with runner_of(job()) as runner:
        runner._api.version = "2"
        runner.upsert(binding("1"))
        await asyncio.sleep(0.05)
        assert runner.finished == 0
        runner.upsert(binding("2"))
        await asyncio.wait_for(runner.all_finished.wait(), 5)


def test_mean_wait_is_that_of_one_class():
    runs = [
        JobRun(job(), created_at=1, admitted_at=2),
        JobRun(job(), created_at=1, admitted_at=4),
        JobRun(job(priority_class="large"), created_at=1, admitted_at=9),
    ]
    assert mean_wait(runs, "small") == 2
