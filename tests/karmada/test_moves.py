"""R1: a job that Karmada moves to a cluster where it does not fit is evicted by the controller."""

from collections.abc import Iterator

import pytest

from controller.api.keys import EVENTS, QUEUES
from localup.processes import ProcessOptions
from localup.stack import Stack
from tests.karmada.conftest import OPTIONS, REAL_OPTIONS
from tests.karmada.harness import CLUSTERS, LONG, Harness, opened

SHORT = {"volcano-global.io/runtime": "1s"}
GRACE, GRACE_REAL = ("--graceful-eviction-timeout", "5s"), ("--graceful-eviction-timeout=5s",)
NEAR, FAR = {"cpu": "4"}, {"cpu": "3"}


@pytest.fixture(scope="module")
def whole(fresh_control_plane, programs) -> Iterator[Stack]:
    """Yield the running system."""
    options = {
        **(REAL_OPTIONS if programs else OPTIONS),
        "controller": ProcessOptions(flags=["--write-seconds", "0.5"]),
    }
    # A suspended binding is not scheduled, so Karmada ends the move only after the whole grace period.
    name, grace = ("karmada-controller-manager", GRACE_REAL) if programs else ("karmada", GRACE)
    options[name] = ProcessOptions(flags=[*options[name].flags, *grace])
    with Stack(fresh_control_plane(), karmada=programs or True, options=options) as stack:
        yield stack


@pytest.fixture
def harness(whole: Stack) -> Iterator[Harness]:
    """Yield a namespace and two clusters, of which only one fits the moved job."""
    with opened(whole, prefix="moves") as harness:
        head = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": harness.namespace}}
        harness.make(QUEUES.path, {**head, "spec": {"weight": 1}})
        for cluster, capacity in (("near", NEAR), ("far", FAR)):
            harness.join(cluster, **capacity)
        for cluster, capacity in (("near", NEAR), ("far", FAR)):
            harness.wait(lambda at=cluster, cpu=capacity["cpu"]: cpus(harness, at) == cpu, f"summary of {cluster}")
        harness.propagate(clusters=("near", "far"))
        yield harness
    for cluster in ("near", "far"):
        harness.wait(lambda at=cluster: harness.look(f"{CLUSTERS}/{at}") is None, "it is gone")


def cpus(harness: Harness, cluster: str) -> str | None:
    """Return the allocatable CPUs of a cluster's summary."""
    summary = harness.cluster(cluster).get("status", {}).get("resourceSummary", {})
    found: str | None = summary.get("allocatable", {}).get("cpu")
    return found


def ask(harness: Harness, name: str, *, cpu: str, annotations=LONG) -> None:
    harness.submit(name, replicas=1, cpu=cpu, annotations=annotations, queue=harness.namespace)


def events(harness: Harness, name: str) -> dict[str, str]:
    """Return the notes of a job's events by reason."""
    found = harness.api.get(EVENTS.item_path(harness.namespace, "").rstrip("/"))["items"]
    return {item["reason"]: item["note"] for item in found if item["regarding"].get("name") == name}


def is_gone(harness: Harness, name: str) -> bool:
    """Return whether a job is suspended, without clusters, and without works on existing clusters."""
    works = [
        work for item in ("near", "far") if harness.look(f"{CLUSTERS}/{item}") for work in harness.works_of(name, item)
    ]
    return bool(harness.binding(name)["spec"]["suspension"]["scheduling"]) and not (harness.targets(name) or works)


def unjoin(harness: Harness) -> None:
    harness.leave("near")


def taint(harness: Harness) -> None:
    harness.taint("near", {"key": "repair", "value": "yes", "effect": "NoExecute"})


def edit_policy(harness: Harness) -> None:
    harness.change_policy(placement={"clusterAffinity": {"clusterNames": ["far"]}})


@pytest.mark.parametrize("move", [unjoin, taint, edit_policy])
def test_r1_job_moved_to_a_full_cluster_is_evicted(harness: Harness, move):
    ask(harness, "stays", cpu="2")
    harness.wait_for_phase("Running", "stays")
    ask(harness, "moves", cpu="3")
    harness.wait_for_phase("Running", "moves")
    assert (harness.targets("stays"), harness.targets("moves")) == (["far"], ["near"])
    move(harness)
    harness.wait(lambda: "ClusterChanged" in events(harness, "moves"), "moves evicted")
    assert "it was moved to far, where it does not fit" in events(harness, "moves")["ClusterChanged"]
    # Karmada may place it there once more, because it was in the scheduler's queue.
    harness.wait(lambda: is_gone(harness, "moves"), "it waits again, and its works are gone")
    ask(harness, "small", cpu="1", annotations=SHORT)
    harness.wait_for_phase("Completed", "small")
    assert harness.phase("stays") == "Running"
    harness.api.delete(f"{harness.jobs}/stays")
    harness.wait_for_targets("far", name="moves")
    harness.wait_for_conditions("moves", FullyApplied="FullyAppliedSuccess")
    harness.wait(lambda: harness.works_of("moves", "far"), "it runs there")
