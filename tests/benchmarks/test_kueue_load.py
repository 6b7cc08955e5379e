import asyncio
import json

import msgspec

from controller.engine.state.hierarchy import QueueName
from controller.kube.errors import Conflict
from tests.benchmarks.kueue_load import JobRunner
from tests.benchmarks.resume_watch import Seen
from tests.traces.load import Job, Task, resource_amounts


def binding(version, *, suspended=False):
    head = {"name": "small-1-job", "namespace": "q", "resourceVersion": version}
    return msgspec.convert({"metadata": head, "spec": {"suspension": {"scheduling": suspended}}}, Seen)


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


async def test_job_completes_once_after_its_last_admission():
    api, tasks = PatchedApi(), (Task("main", 1, resource_amounts(cpu=5000)),)
    runner = JobRunner(api, [Job("q", "small-1", QueueName("q"), tasks, 0, 50, "small")])
    task = asyncio.create_task(runner.run())
    runner.upsert(binding("1"))
    runner.upsert(binding("1", suspended=True))
    await asyncio.sleep(0.1)
    assert (runner.admitted, runner.evictions, runner.finished) == (1, 1, 0)
    api.version = "2"
    runner.upsert(binding("1"))
    await asyncio.sleep(0.1)
    assert runner.finished == 0, "the patch was a conflict"
    runner.upsert(binding("2"))
    await asyncio.wait_for(runner.all_finished.wait(), 5)
    (run,) = runner.runs.values()
    assert run.finished_at - run.admitted_at >= 0.05
    assert api.patches == [
        ("/apis/work.karmada.io/v1alpha2/namespaces/q/resourcebindings/small-1-job/status", "merge", "Completed")
    ]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
