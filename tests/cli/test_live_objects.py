"""Commands on live objects with invalid fields, which must not hide valid objects."""

import functools
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest

from controller.api import keys
from controller.api.bindings import ResourceBinding
from controller.api.clusters import Cluster
from controller.api.configuration import VolcanoGlobalConfiguration, configuration_revision, published_data
from controller.api.events import Event
from controller.api.hyperjobs import HYPERJOB_RESOURCES, BatchHyperJobSpec, HyperJobSpec, HyperJobStatus
from controller.api.jobs import Job
from controller.api.queues import PriorityClass, Queue
from controller.cli.input import live
from controller.kube.client import Api
from controller.kube.errors import Forbidden, NotFound, Unauthorized
from controller.kube.events import REPORTING_CONTROLLER
from tests.cli.manifests import NOW, binding, cluster, job, priority_class, queue, units
from tests.controllers.hyperjob.objects import document, replicated, task
from tests.invalid_objects import FEW_VALUES, VALUES, field_paths, invalid_variants

DEFAULTS = VolcanoGlobalConfiguration()
PUBLISHED = keys.CONFIG_MAPS.item_path("karmada-system", keys.PUBLISHED_CONFIGURATION)
NOTE = f"note: configuration revision {configuration_revision(DEFAULTS)}, published by the controller\n"
EVENTS = keys.EVENTS.item_path("ml", "").rstrip("/")
OUTPUTS = ["table", "json"]
CAPTURED = {
    "apiVersion": "events.k8s.io/v1",
    "kind": "Event",
    "metadata": {"name": "e", "namespace": "ml", "creationTimestamp": "2026-03-01T09:00:00Z"},
    "deprecatedCount": 1,
    "deprecatedFirstTimestamp": "2026-03-01T09:00:00Z",
    "deprecatedLastTimestamp": "2026-03-01T09:00:00Z",
    "deprecatedSource": {"component": "default-scheduler"},
    "eventTime": None,
    "note": "Binding has been scheduled successfully. Result: {east}",
    "reason": "ScheduleBindingSucceed",
    "reportingController": "default-scheduler",
    "series": None,
    "type": "Normal",
}
"""A core/v1 event of Karmada's scheduler, read as events.k8s.io/v1."""
OURS = {
    **{name: value for name, value in CAPTURED.items() if not name.startswith("deprecated")},
    "eventTime": "2026-03-01T09:30:00.000000Z",
    "reportingController": REPORTING_CONTROLLER,
    "reason": "Admitted",
    "note": "admitted to east by queue 'a'",
    "series": {"count": 3, "lastObservedTime": "2026-03-01T09:40:00.000000Z"},
}


def with_uid(document, uid="valid"):
    document["metadata"]["uid"] = uid
    return document


class Server:
    """An API server with the objects of *lists* by path, valid or not, beside a few valid ones."""

    def __init__(self, lists=None):
        self.lists = {
            keys.QUEUES.path: [queue("a", weight=1)],
            keys.CLUSTERS.path: [cluster("east", units(8))],
            keys.JOBS.path: [job("good", units(2), queue="a"), job("other", units(20), queue="a")],
            keys.RESOURCE_BINDINGS.path: [
                with_uid(binding(name, suspended=True), f"of-{name}") for name in ("good", "other")
            ],
        }
        for path, objects in (lists or {}).items():
            self.lists[path] = [*self.lists.get(path, ()), *objects]
        self.items = {PUBLISHED: {"data": published_data(DEFAULTS)}}

    async def get(self, path, _=None):
        if path not in self.items:
            raise NotFound(path, 404, "not found")
        return msgspec.json.encode(self.items[path])

    async def list_items(self, path, *_, **__):
        for item in self.lists.get(path, ()):
            # The json module, because msgspec does not write integers beyond 64 bits.
            yield json.dumps(item).encode()


@pytest.fixture
def look(run, monkeypatch):
    """Return a function that runs a command on a server."""

    def look(server, *arguments):
        @asynccontextmanager
        async def connect(*_, **__):
            yield server

        monkeypatch.setattr(Api, "connect", connect)
        return run(*arguments, "--now", NOW)

    return look


@pytest.fixture
def read_once(monkeypatch):
    """Read and plan the live state once, for all commands of a test."""
    snapshots, live_snapshot = [], live.live_snapshot

    @functools.wraps(live_snapshot)
    async def snapshot_once(*arguments, **options):
        if not snapshots:
            snapshots.append(await live_snapshot(*arguments, **options))
        return snapshots[0]

    monkeypatch.setattr(live, "live_snapshot", snapshot_once)


def test_configuration_of_a_newer_controller_names_the_remedy(look):
    server, newer = Server(), {**published_data(DEFAULTS)}
    newer["configuration.json"] = newer["configuration.json"].replace("{", '{"keyOfTheFuture":1,', 1)
    server.items[PUBLISHED] = {"data": newer}
    ended = look(server, "queues")
    assert ended.code == 0
    assert ended.err.startswith(
        "note: the default configuration is used, because this program does not know the configuration of the"
        " controller, use its version (the VolcanoGlobalConfiguration cannot be used: keyOfTheFuture: "
    )


def named(kind, valid, values=VALUES):
    """Return the invalid variants of *valid*, with distinct names and uids where these fields are valid."""
    valid = with_uid(valid)
    variants = [variant for _, variant in invalid_variants(kind, valid, values)]
    for number, variant in enumerate(variants):
        metadata = variant.get("metadata")
        if isinstance(metadata, dict):
            if metadata.get("name") == valid["metadata"]["name"]:
                metadata["name"] = f"bad-{number}"
            if metadata.get("uid") == valid["metadata"]["uid"]:
                metadata["uid"] = f"uid-{number}"
    return variants


def bindings():
    """Return invalid bindings of pending and of admitted jobs."""
    record = {"uid": "valid", "queue": "a", "charge": {"cpu": "1"}, "clusters": ["east"]}
    admitted = binding("good", clusters=["east"], phase="Pending", record=record)
    return [variant for one in (binding("good", suspended=True), admitted) for variant in named(ResourceBinding, one)]


def jobs(values=VALUES):
    """Return invalid jobs and their bindings."""
    variants = named(Job, job("job", units(1), queue="a", priority="high"), values)
    names = [variant["metadata"].get("name") for variant in variants if isinstance(variant.get("metadata"), dict)]
    known = sorted({name for name in names if isinstance(name, str) and name})
    bound = [with_uid(binding(name, suspended=True), f"of-{name}") for name in known]
    return {keys.JOBS.path: variants, keys.RESOURCE_BINDINGS.path: bound}


def graded():
    models = [{"grade": 0, "ranges": [{"name": "cpu", "min": "0", "max": "64"}]}]
    made = cluster("valid", units(4), resourceModels=models, taints=[{"key": "k", "effect": "NoSchedule"}])
    made["status"]["resourceSummary"]["allocatableModelings"] = [{"grade": 0, "count": 2}]
    return made


INPUTS = {
    "bindings": lambda: {keys.RESOURCE_BINDINGS.path: bindings()},
    "cluster-bindings": lambda: {keys.CLUSTER_RESOURCE_BINDINGS.path: bindings()},
    "jobs": jobs,
    "clusters": lambda: {keys.CLUSTERS.path: named(Cluster, graded())},
    "queues": lambda: {keys.QUEUES.path: named(Queue, queue("valid", weight=1, capability=units(4)))},
    "classes": lambda: {keys.PRIORITY_CLASSES.path: named(PriorityClass, priority_class("valid", 5))},
}
REASONS = {"ExceedsTotalCapacity", "ExceedsQueueLimit", "ExceedsEveryCluster", "InsufficientCapacity"}


@pytest.mark.parametrize("invalid_input", INPUTS)
def test_invalid_objects_do_not_hide_valid_ones(look, read_once, invalid_input):
    server = Server(INPUTS[invalid_input]())
    for command, valid in {"plan": "good", "queues": "a", "pending": "other", "clusters": "east"}.items():
        for output in OUTPUTS:
            ended = look(server, command, "-o", output)
            assert (ended.code, ended.err) == (0, NOTE), command
            assert valid in ended.out
    # Last, because it takes back the decisions of the plan.
    for output in OUTPUTS:
        ended = look(server, "explain", "job", "other", "-n", "ml", "-o", output)
        assert (ended.code, ended.err) == (0, NOTE)
        assert any(reason in ended.out for reason in REASONS)


def test_jobs_with_invalid_fields_are_explained(look, read_once):
    server = Server(jobs(FEW_VALUES))
    waiting = {
        f"{workload['namespace']}/{workload['name']}"
        for workload in look(server, "pending", "-o", "json").answer["pending"]
    }
    assert "ml/other" in waiting
    for name in sorted(waiting):
        assert look(server, "explain", "job", name).code in {0, 1}, name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param("queue/a.spec.weight=abc", 'Queue a: spec.weight: "abc" is not a whole number', id="type"),
        pytest.param("queue/a.spec.weight=-1", "Queue a: spec.weight: -1 is not between 0 and 65535", id="bounds"),
        pytest.param("job/ml/good.spec.tasks[9].replicas=4", "there is no item [9]; the list has 1", id="missing-item"),
        pytest.param(
            "cluster/east.status.resourceSummary.allocatable.cpu=x",
            'Cluster east: status.resourceSummary.allocatable.cpu: "x" is not a quantity',
            id="quantity",
        ),
    ],
)
def test_what_if_refuses_to_make_live_objects_invalid(look, change, message):
    ended = look(Server(), "plan", "--what-if", change)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param(
            "hyperjob/ml/llm.spec.maxDomains=2",
            "hyperjob/ml/llm: only cluster, clusterresourcebinding, job, queue, resourcebinding of a control plane can "
            "be changed; name files with -f",
            id="kind",
        ),
        pytest.param("queue/none.spec.weight=2", "queue/none does not exist", id="name"),
    ],
)
def test_what_if_names_kinds_that_are_not_read_live(look, change, why):
    ended = look(Server(), "plan", "--what-if", change)
    assert (ended.code, ended.err.splitlines()[-1]) == (2, f"--what-if: {why}")


def test_what_if_ignores_what_was_invalid_before(look):
    server = Server({keys.QUEUES.path: [queue("b", weight=1, priority=-1)]})
    assert look(server, "plan", "--what-if", "queue/b.spec.weight=2").code == 0


def test_invalid_events_do_not_hide_recorded_events(look, read_once):
    invalid_events = [variant for valid in (CAPTURED, OURS) for _, variant in invalid_variants(Event, valid)]
    server = Server({EVENTS: [CAPTURED, *invalid_events, OURS]})
    for output in OUTPUTS:
        ended = look(server, "explain", "job", "good", "-n", "ml", "-o", output)
        assert (ended.code, ended.err) == (0, NOTE)
        assert "admitted to east by queue" in ended.text


def test_events_within_a_second_are_in_their_order(look):
    times = {"Admitted": "2026-03-01T09:30:00.690000Z", "HyperJobIncomplete": "2026-03-01T09:30:00.656000Z"}
    events = [{**OURS, "series": None, "reason": reason, "eventTime": time} for reason, time in times.items()]
    answer = look(Server({EVENTS: events}), "explain", "job", "good", "-n", "ml", "-o", "json").answer
    assert [event["reason"] for event in answer["events"]] == ["HyperJobIncomplete", "Admitted"]


def test_core_events_of_karmada_are_ignored(look):
    ended = look(Server({EVENTS: [CAPTURED, OURS]}), "explain", "job", "good", "-n", "ml", "-o", "json")
    assert ended.answer["events"] == [
        {"last": "2026-03-01T09:40:00Z", "reason": "Admitted", "note": OURS["note"], "count": 3}
    ]


def test_invalid_hyperjob_does_not_crash_the_command(look, read_once):
    server = Server()
    valid = document(replicated("t", task(replicas=2), splitPolicy={"mode": "auto"}), name="llm")
    for resource, kind in zip(HYPERJOB_RESOURCES, (HyperJobSpec, BatchHyperJobSpec), strict=True):
        variants = [
            *({**valid, "spec": spec} for _, spec in invalid_variants(kind, valid["spec"], FEW_VALUES)),
            *({**valid, "status": status} for _, status in invalid_variants(HyperJobStatus, {}, FEW_VALUES)),
        ]
        for variant in variants:
            path = resource.item_path("ml", "llm")
            server.items = {path: {**variant, "apiVersion": resource.api_version, "kind": "HyperJob"}}
            ended = look(server, "explain", "hyperjob", "llm", "-n", "ml")
            assert ended.code in {0, 1}
            assert ended.code == 0 or ended.err.removeprefix(NOTE).count("\n") == 1


def test_missing_hyperjob_is_reported_with_a_similar_name(look):
    hyperjob = document(replicated("t", task(replicas=2), splitPolicy={"mode": "auto"}), name="llm")
    server = Server({HYPERJOB_RESOURCES[0].path: [hyperjob]})
    ended = look(server, "explain", "hyperjob", "llm", "-n", "default")
    assert (ended.code, ended.err) == (1, "HyperJob default/llm does not exist; did you mean ml/llm?\n")


class Refusing(Server):
    """An API server that refuses every request with *error*."""

    access = SimpleNamespace(authorization="Bearer token")

    def __init__(self, error):
        super().__init__()
        self.error = error

    async def get(self, path, _=None):
        if path == PUBLISHED and isinstance(self.error, Forbidden):
            return await super().get(path)
        raise self.error

    async def list_items(self, *_, **__):
        raise self.error
        yield b""


def test_hyperjobs_that_may_not_be_listed_are_noted(look):
    class Partial(Server):
        async def list_items(self, path, *arguments, **options):
            if path == HYPERJOB_RESOURCES[0].path:
                raise Forbidden(f"GET {path}", 403, "no")
            async for item in super().list_items(path, *arguments, **options):
                yield item

    ended = look(Partial(), "plan")
    assert ended.code == 0
    assert "note: you may not list hyperjobs.training.volcano.sh: the plan admits parts" in ended.err


def test_refused_credentials_are_reported_with_a_remedy(look):
    ended = look(Refusing(Unauthorized("GET /x", 401, "Unauthorized")), "plan")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("GET /x: 401 Unauthorized: the credentials are wrong or have expired; sign in again")


def test_each_refusal_of_a_tenant_is_on_a_line_of_its_own(look):
    ended = look(Refusing(Forbidden("GET /x", 403, "no")), "pending", "-n", "ml")
    assert ended.code == 1
    # No note about a configuration, with which nothing is planned.
    first, second = ended.err.splitlines()
    assert first == "GET /x: 403 no"
    assert second.startswith("the visibility endpoint: the address of the visibility endpoint is not known: ")


def test_field_paths_include_nested_fields():
    paths = set(field_paths(ResourceBinding))
    assert ("spec", "placement", "clusterAffinity", "labelSelector", "matchExpressions", 0, "values", 0) in paths
    assert ("status", "aggregatedStatus", 0, "status") in paths
    assert ("metadata", "ownerReferences", 0, "uid") in paths
