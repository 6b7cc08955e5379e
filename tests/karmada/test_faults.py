"""F10, F11, F12, F15 and F16 caused by Karmada, with the controller running and invariants checked."""

import uuid

import pytest

from controller.api.keys import QUEUES
from localup.processes import ProcessOptions
from localup.stack import Stack
from tests.karmada.conftest import OPTIONS, REAL_OPTIONS
from tests.karmada.harness import CLUSTERS, LONG, Harness, create_members, is_ready, opened
from tests.karmada.invariant_observer import InvariantObserver

HELD = "tests.volcano-global.io/held"
SHORT = {"volcano-global.io/runtime": "1s"}


@pytest.fixture(scope="module")
def whole(fresh_control_plane, programs):
    """Yield the running system and an observer of the invariants."""
    plane = fresh_control_plane(audit=True)
    ours = {"controller": ProcessOptions(flags=["--write-seconds", "0.5"])}
    with (
        InvariantObserver(plane) as judge,
        Stack(plane, karmada=programs or True, options={**(REAL_OPTIONS if programs else OPTIONS), **ours}) as stack,
    ):
        create_members(plane.admin)
        yield stack, judge


class Submitter(Harness):
    """A namespace and a queue managed by the controller."""

    queue = ""

    def job(self, name="train"):
        return self.look(f"{self.jobs}/{name}") or {}

    def ask(self, name, *, cpu="1", replicas=1, annotations=LONG):
        """Submit a job to the queue."""
        self.submit(name, cpu=cpu, replicas=replicas, annotations=annotations, queue=self.queue)

    def go_to_pool(self):
        """Propagate the namespace's jobs to dedicated members."""
        selector = {"labelSelector": {"matchLabels": {"pool": self.queue}}, "clusterNames": None}
        self.change_policy(placement={"clusterAffinity": selector})

    def is_paused(self, name):
        return self.binding(name)["spec"]["suspension"]["scheduling"]

    def wait_for_decision(self, name):
        """Wait until a later job is admitted and finishes, so that *name* has been considered."""
        probe = f"probe-{uuid.uuid4().hex[:6]}"
        self.submit(probe, cpu="1m", replicas=1, annotations=SHORT, queue=f"{self.queue}-probe")
        self.wait_for_phase("Completed", probe)
        assert self.is_paused(name)


@pytest.fixture
def harness(whole):
    stack, judge = whole
    with opened(stack, kind=Submitter) as harness:
        harness.queue = name = harness.namespace
        head = {"apiVersion": QUEUES.api_version, "kind": "Queue"}
        spec = {"weight": 1, "capability": {"cpu": "2"}}
        harness.make(QUEUES.path, head | {"metadata": {"name": name}, "spec": spec})
        harness.make(QUEUES.path, head | {"metadata": {"name": f"{name}-probe"}, "spec": {"weight": 1}})
        harness.propagate()
        yield harness
    assert judge.violations() == []


def test_recreated_job_is_admitted_independently(harness):
    """F10: recreated while pending, decided, placed and running; the last one is charged once."""
    for number in range(12):
        harness.ask("comes", cpu="2")
        if number % 3 == 0:
            harness.wait_for_phase("Running", "comes")
        elif number % 3 == 1:
            harness.wait_for_binding("comes")
        harness.api.delete(f"{harness.jobs}/comes")
        harness.wait(lambda: not harness.job("comes"), "the old one gone")
    harness.ask("comes", cpu="2")
    harness.wait_for_phase("Running", "comes")
    binding = harness.binding("comes")
    assert binding["spec"]["resource"]["uid"] == harness.job("comes")["metadata"]["uid"]
    harness.ask("other")
    harness.wait_for_binding("other")
    harness.wait_for_decision("other")


def test_binding_with_finalizer_stays_charged_until_deleted(harness):
    """F11: its works are deleted, but the binding is not."""
    harness.ask("runs", cpu="2")
    harness.wait_for_phase("Running", "runs")
    kept = harness.binding("runs")["metadata"]["finalizers"]
    harness.api.merge(f"{harness.bindings}/runs-job", {"metadata": {"finalizers": [*kept, HELD]}})
    harness.ask("next")
    harness.wait_for_binding("next")
    harness.api.delete(f"{harness.jobs}/runs")
    harness.wait(lambda: not harness.works_of("runs") and not harness.works_of("runs", "member2"), "works gone")
    harness.wait(lambda: harness.binding("runs")["metadata"]["finalizers"] == [HELD], "Karmada let go of it")
    harness.wait_for_decision("next")
    harness.api.merge(f"{harness.bindings}/runs-job", {"metadata": {"finalizers": None}})
    harness.wait_for_phase("Running", "next")


def test_orphaned_binding_stays_charged_while_it_exists(harness):
    """F12: the binding had no owner when the job was deleted."""
    harness.ask("runs", cpu="2")
    harness.wait_for_phase("Running", "runs")
    harness.ask("next")
    harness.wait_for_binding("next")
    # Not by orphaning, because the garbage collector may not have observed the binding yet.
    harness.api.merge(f"{harness.bindings}/runs-job", {"metadata": {"ownerReferences": None}})
    harness.api.delete(f"{harness.jobs}/runs")
    harness.wait(lambda: not harness.job("runs"), "template gone")
    harness.wait_for_decision("next")
    assert harness.targets("runs") != []
    harness.api.delete(f"{harness.bindings}/runs-job")
    harness.wait_for_phase("Running", "next")


def test_unreachable_member_gets_no_jobs_and_keeps_its_own(harness):
    """F15: unreachable, never ready, cordoned, deleted."""
    harness.go_to_pool()
    harness.join(never := f"never-{harness.queue}", cpu="4", ready="False")
    harness.join(away := f"away-{harness.queue}", cpu="4")
    for name in (never, away):
        harness.api.merge(f"{CLUSTERS}/{name}", {"metadata": {"labels": {"pool": harness.queue}}})
    harness.ask("runs")
    harness.wait_for_phase("Running", "runs")
    assert harness.targets("runs") == [away]
    harness.describe(away, ready="False")
    harness.wait(lambda: not is_ready(harness.cluster(away)), "away")
    harness.ask("waits")
    harness.wait_for_binding("waits")
    assert harness.is_paused("waits")
    harness.describe(away, ready="True")
    harness.wait_for_phase("Running", "waits")
    harness.ask("third")
    harness.wait_for_binding("third")
    assert harness.is_paused("third")


def test_moved_job_is_charged_on_its_new_cluster(harness):
    """A taint moves it, and another job uses the freed capacity."""
    room = {"cpu": "1", "memory": "64Gi", "pods": "110"}
    harness.go_to_pool()
    first, second = f"a-{harness.queue}", f"b-{harness.queue}"
    harness.join(first, **room)
    harness.api.merge(f"{CLUSTERS}/{first}", {"metadata": {"labels": {"pool": harness.queue}}})
    harness.ask("moves")
    harness.wait_for_phase("Running", "moves")
    harness.join(second, **room)
    harness.wait(lambda: is_ready(harness.cluster(second)), "the second ready")
    harness.api.merge(f"{CLUSTERS}/{second}", {"metadata": {"labels": {"pool": harness.queue}}})
    harness.taint(first, {"key": "repair", "value": "yes", "effect": "NoExecute"})
    harness.wait_for_targets(second, name="moves")
    harness.wait(lambda: not harness.tasks("moves"), "task gone")
    harness.ask("next")
    harness.wait_for_binding("next")
    assert harness.is_paused("next")
    harness.taint(first)
    harness.wait_for_phase("Running", "next")
    assert (harness.targets("moves"), harness.targets("next")) == ([second], [first])
    assert harness.is_paused("moves") is False
