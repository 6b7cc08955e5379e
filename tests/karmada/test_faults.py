"""Faults that come from Karmada or go through it, with our controller at work, and judged by the rig's observer.

F10, F11, F12, F15 and F16 where Karmada makes, moves and removes what they are about.
"""

import uuid

import pytest

from controller.api.keys import QUEUES
from localup.apply import wait_until
from localup.managed_process import ProcessOptions
from localup.namespaces import create_namespace, delete_namespace
from localup.processes import tail
from localup.stack import Stack
from tests.karmada.conftest import OPTIONS, REAL_OPTIONS, SIZES
from tests.karmada.harness import LONG, Harness
from tests.karmada.invariant_observer import InvariantObserver
from tests.localup.karmada.harness import CLUSTERS, create_cluster, is_ready

HELD = "tests.volcano-global.io/held"
SHORT = {"volcano-global.io/runtime": "1s"}


@pytest.fixture(scope="module")
def whole(fresh_control_plane, programs):
    """Yield everything at work, and the observer of all of it."""
    plane = fresh_control_plane(audit=True)
    ours = {"controller": ProcessOptions(flags=["--write-seconds", "0.5"])}
    with (
        InvariantObserver(plane) as judge,
        Stack(plane, karmada=programs or True, options={**(REAL_OPTIONS if programs else OPTIONS), **ours}) as stack,
    ):
        for name, allocatable in SIZES.items():
            create_cluster(plane.admin, name, allocatable)
        wait_until(lambda: all(is_ready(each) for each in plane.admin.get(CLUSTERS)["items"]), "members")
        yield stack, judge


class Submitter(Harness):
    """One namespace and one queue, in which our controller decides."""

    queue = ""

    def job(self, name="train"):
        return self.look(f"{self.jobs}/{name}") or {}

    def ask(self, name, *, cpu="1", replicas=1, annotations=LONG):
        """Submit a job to the queue."""
        self.submit(name, cpu=cpu, replicas=replicas, annotations=annotations, queue=self.queue)

    def go_to_pool(self):
        """Have the jobs of the namespace go to members of its own."""
        selector = {"labelSelector": {"matchLabels": {"pool": self.queue}}, "clusterNames": None}
        self.change_policy(placement={"clusterAffinity": selector})

    def is_paused(self, name):
        return self.binding(name)["spec"]["suspension"]["scheduling"]

    def wait_for_decision(self, name):
        """Wait until somebody who came later was admitted, so that *name* was looked at; then he is over."""
        probe = f"probe-{uuid.uuid4().hex[:6]}"
        self.submit(probe, cpu="1m", replicas=1, annotations=SHORT, queue=f"{self.queue}-probe")
        self.wait_for_phase("Completed", probe)
        assert self.is_paused(name)


@pytest.fixture
def desk(whole):
    stack, judge = whole
    stack.check()
    name = f"team-{uuid.uuid4().hex[:8]}"
    create_namespace(stack.plane.admin, name)
    desk = Submitter(stack.plane.admin, name)
    desk.queue = name
    head = {"apiVersion": QUEUES.api_version, "kind": "Queue"}
    desk.make(QUEUES.path, head | {"metadata": {"name": name}, "spec": {"weight": 1, "capability": {"cpu": "2"}}})
    desk.make(QUEUES.path, head | {"metadata": {"name": f"{name}-probe"}, "spec": {"weight": 1}})
    desk.propagate()
    yield desk
    desk.clear()
    delete_namespace(stack.plane.admin, name)
    for part in (stack.controller, stack.karmada):
        print(f"--- {part.name}", tail(part.log, lines=30), sep="\n")  # noqa: T201 -- for the report of a failure
    stack.check()
    assert judge.found() == []


def test_a_job_that_comes_again_and_again_under_its_name_is_judged_anew_each_time(desk):
    """F10: queued, decided upon, placed, running; the last one runs, and its room is counted once."""
    for number in range(12):
        desk.ask("comes", cpu="2")
        if number % 3 == 0:
            desk.wait_for_phase("Running", "comes")
        elif number % 3 == 1:
            desk.wait_for_binding("comes")
        desk.api.delete(f"{desk.jobs}/comes")
        desk.wait(lambda: not desk.job("comes"), "the old one gone")
    desk.ask("comes", cpu="2")
    desk.wait_for_phase("Running", "comes")
    binding = desk.binding("comes")
    assert binding["spec"]["resource"]["uid"] == desk.job("comes")["metadata"]["uid"]
    desk.ask("other")
    desk.wait_for_binding("other")
    desk.wait_for_decision("other")


def test_a_binding_that_somebody_holds_on_to_stays_charged_until_it_is_gone(desk):
    """F11: its works are gone already, but it is not."""
    desk.ask("runs", cpu="2")
    desk.wait_for_phase("Running", "runs")
    kept = desk.binding("runs")["metadata"]["finalizers"]
    desk.api.merge(f"{desk.bindings}/runs-job", {"metadata": {"finalizers": [*kept, HELD]}})
    desk.ask("next")
    desk.wait_for_binding("next")
    desk.api.delete(f"{desk.jobs}/runs")
    desk.wait(lambda: not desk.works_of("runs") and not desk.works_of("runs", "member2"), "works gone")
    desk.wait(lambda: desk.binding("runs")["metadata"]["finalizers"] == [HELD], "Karmada let go of it")
    desk.wait_for_decision("next")
    desk.api.merge(f"{desk.bindings}/runs-job", {"metadata": {"finalizers": None}})
    desk.wait_for_phase("Running", "next")


def test_a_binding_whose_template_is_gone_stays_charged_as_long_as_it_is_there(desk):
    """F12: the binding belonged to nobody when the job was deleted."""
    desk.ask("runs", cpu="2")
    desk.wait_for_phase("Running", "runs")
    desk.ask("next")
    desk.wait_for_binding("next")
    # Not by orphaning it: the garbage collector may not have heard of the binding yet.
    desk.api.merge(f"{desk.bindings}/runs-job", {"metadata": {"ownerReferences": None}})
    desk.api.delete(f"{desk.jobs}/runs")
    desk.wait(lambda: not desk.job("runs"), "template gone")
    desk.wait_for_decision("next")
    assert desk.targets("runs") != []
    desk.api.delete(f"{desk.bindings}/runs-job")
    desk.wait_for_phase("Running", "next")


def test_a_member_that_is_away_takes_nobody_and_keeps_what_it_has(desk):
    """F15: away, never ready, cordoned, gone."""
    desk.go_to_pool()
    desk.join(never := f"never-{desk.queue}", cpu="4", ready="False")
    desk.join(away := f"away-{desk.queue}", cpu="4")
    for name in (never, away):
        desk.api.merge(f"{CLUSTERS}/{name}", {"metadata": {"labels": {"pool": desk.queue}}})
    desk.ask("runs")
    desk.wait_for_phase("Running", "runs")
    assert desk.targets("runs") == [away]
    desk.describe(away, ready="False")
    desk.wait(lambda: not is_ready(desk.cluster(away)), "away")
    desk.ask("waits")
    desk.wait_for_binding("waits")
    assert desk.is_paused("waits")
    desk.describe(away, ready="True")
    desk.wait_for_phase("Running", "waits")
    desk.ask("third")
    desk.wait_for_binding("third")
    assert desk.is_paused("third")


def test_what_karmada_moves_is_charged_where_it_runs(desk):
    """A taint takes it elsewhere, and the room it had is another's."""
    room = {"cpu": "1", "memory": "64Gi", "pods": "110"}
    desk.go_to_pool()
    first, second = f"a-{desk.queue}", f"b-{desk.queue}"
    desk.join(first, **room)
    desk.api.merge(f"{CLUSTERS}/{first}", {"metadata": {"labels": {"pool": desk.queue}}})
    desk.ask("moves")
    desk.wait_for_phase("Running", "moves")
    desk.join(second, **room)
    desk.wait(lambda: is_ready(desk.cluster(second)), "the second ready")
    desk.api.merge(f"{CLUSTERS}/{second}", {"metadata": {"labels": {"pool": desk.queue}}})
    desk.taint(first, {"key": "repair", "value": "yes", "effect": "NoExecute"})
    desk.wait_for_targets(second, name="moves")
    desk.wait(lambda: not desk.tasks("moves"), "task gone")
    desk.ask("next")
    desk.wait_for_binding("next")
    assert desk.is_paused("next")
    desk.taint(first)
    desk.wait_for_phase("Running", "next")
    assert (desk.targets("moves"), desk.targets("next")) == ([second], [first])
    assert desk.is_paused("moves") is False
