"""Reports for situations that plans from files do not produce."""

import json
from dataclasses import replace

import pytest

from controller.cli.input.offline import read_offline_state
from controller.cli.render.amounts import describe_requests, format_short
from controller.cli.render.output import PLAIN, Format, serialize
from controller.cli.render.plan import plan_table
from controller.cli.reports.plan import plan_report
from controller.engine.plan import Evict, Plan
from controller.engine.reasons import EvictionReason
from tests.cli.manifests import binding, cluster, job, queue, running, write


@pytest.fixture
def snapshot(tmp_path):
    """Return a state with a running job and a job that is being evicted."""
    documents = [
        cluster("m", {"cpu": 4}),
        queue("a"),
        *running("victim", {"cpu": 1}, on="m", queue="a"),
        *(job("leaving", {"cpu": 1}, queue="a"), binding("leaving", suspended=True, clusters=["m"])),
    ]
    return read_offline_state([write(tmp_path, *documents)], 10**12).snapshot(10**12)


@pytest.mark.parametrize("reason", EvictionReason)
def test_eviction_has_reason_and_message(snapshot, reason):
    victim = next(each for each in snapshot.state.workloads.values() if each.name == "victim")
    report = plan_report(replace(snapshot, plan=Plan((Evict(victim, reason),))))
    step = json.loads(serialize(report, Format.JSON) or "")["decisions"][0]
    assert step.pop("message")
    assert step == {
        "kind": "Job",
        "namespace": "ml",
        "name": "victim",
        "queue": "a",
        "action": "Evict",
        "clusters": [],
        "reason": reason,
    }
    assert plan_table(report, PLAIN).splitlines()[1].split() == ["Evict", "Job", "ml/victim", "a", "-", reason]


def test_workload_being_evicted_has_no_nominated_cluster(snapshot):
    [step] = plan_report(snapshot).decisions
    assert (step.name, step.reason, step.clusters) == ("leaving", "PreemptionInProgress", ())
    assert step.message == "it was evicted and is still terminating on its clusters"


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        pytest.param("cpu", 0, "0", id="nothing"),
        pytest.param("cpu", 1, "0", id="less-than-a-hundredth"),
        pytest.param("cpu", 3333, "3.33", id="rounded-down"),
        pytest.param("cpu", -1500, "-1.5", id="below-zero"),
        pytest.param("nvidia.com/gpu", 12000, "12", id="gpu"),
        pytest.param("memory", 1023, "1023", id="bytes"),
        pytest.param("memory", 3579139413, "3.33Gi", id="memory"),
        pytest.param("ephemeral-storage", 1000 * 2**40, "1Ti", id="storage"),
        pytest.param("memory", 2**80, "1048576Ei", id="beyond-all-units"),
    ],
)
def test_amounts_are_formatted_short(resource, amount, text):
    assert format_short(resource, amount) == text


def test_requests_are_described():
    assert describe_requests({"pods": 2000, "cpu": 1500, "memory": 2**30}) == "1.5 cpu, 1Gi memory in 2 pods"
    assert describe_requests({"pods": 1000}) == "nothing in 1 pod"
