"""Queries to an estimator, and the handling of its answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography.x509.oid import ExtendedKeyUsageOID
from structlog.testing import capture_logs

from controller.api.jobs import (
    NodeClaim,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Toleration,
    encode_node_claim,
)
from controller.engine.state.clusters import ClusterName
from controller.engine.state.estimates import Estimate, Query
from controller.engine.state.requests import PodSet
from controller.estimator import client, messages
from controller.estimator.dispatcher import EstimatorDispatcher
from controller.estimator.options import EstimatorOptions
from tests.authority import Authority
from tests.waiting import LIMIT_SECONDS, poll

GPU = "nvidia.com/gpu"
GIBI = 2**30
CLAIM = NodeClaim(
    node_selector={"pool": "gpu"},
    node_affinity=NodeSelector([NodeSelectorTerm([NodeSelectorRequirement("zone", "In", ["a", "b"])])]),
    tolerations=[Toleration(key=GPU, operator="Exists", effect="NoSchedule")],
)


def pods(gpu: int, count: int, claim: str | None = "") -> PodSet:
    request = (("cpu", 500), ("memory", 3 * GIBI), (GPU, gpu * 1000), ("pods", 1000))
    return PodSet(request, count, count, claim)


def query(*sets: PodSet, cluster: str = "m1") -> Query:
    return Query(ClusterName(cluster), sets or (pods(5, 6),), 1)


REQUESTS = {
    messages.MAX_AVAILABLE_REPLICAS: "MaxAvailableReplicasRequest",
    messages.MAX_AVAILABLE_COMPONENT_SETS: "MaxAvailableComponentSetsRequest",
}


class Counted:
    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def count_estimate(self, outcome: str, *, seconds: float) -> None:
        assert seconds >= 0
        self.outcomes.append(outcome)


class EstimatorHarness:
    """Estimators over stand-ins of which the test knows the ports."""

    def __init__(self, monkeypatch, *, timeout: float = LIMIT_SECONDS, **options) -> None:
        self.answers: asyncio.Queue[Estimate] = asyncio.Queue()
        self.metrics = Counted()
        self.ports: dict[str, int] = {}
        self.access = EstimatorOptions(timeout_seconds=timeout, **options)

        connect_to = client.connect

        async def connect(options: EstimatorOptions, cluster: str):
            port = self.ports[cluster]
            return await connect_to(EstimatorOptions(**{**_fields(options), "port": port}), cluster)

        async def host(*_: object) -> str:
            return "localhost"

        monkeypatch.setattr(client, "connect", connect)
        monkeypatch.setattr(client, "_resolve_host", host)
        self.estimators = EstimatorDispatcher(self.access, self.answers.put_nowait, metrics=self.metrics)

    async def __aenter__(self):
        self._task = asyncio.create_task(self.estimators.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def next(self) -> Estimate:
        async with asyncio.timeout(LIMIT_SECONDS):
            return await self.answers.get()

    async def submit(self, asked: Query) -> Estimate:
        self.estimators.submit([asked])
        return await self.next()


def _fields(options: EstimatorOptions) -> dict[str, object]:
    return {name: getattr(options, name) for name in EstimatorOptions.__dataclass_fields__}


@dataclass
class FakeEstimator(grpc.GenericRpcHandler):
    """The estimator of one cluster, which records requests and always answers the same."""

    cluster: str = "m1"
    answer: int = 4
    serves: frozenset[str] = frozenset(REQUESTS)
    raw: bytes | None = None
    is_failing: bool = False
    gate: asyncio.Event | None = None
    """Before it is set, no request is answered."""
    requests: list[tuple[str, Any]] = field(default_factory=list)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method not in self.serves:
            return None
        return grpc.unary_unary_rpc_method_handler(partial(self.handle, details.method))

    async def handle(self, method: str, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        request = messages.TYPES[REQUESTS[method]].FromString(data)
        self.requests.append((method, request))
        if self.gate is not None:
            await self.gate.wait()
        if self.is_failing:
            await context.abort(grpc.StatusCode.UNKNOWN, "failed to estimate replicas")
        if request.cluster != self.cluster:
            await context.abort(grpc.StatusCode.UNKNOWN, f"cluster name does not match, got: {request.cluster}")
        return messages.TYPES["Response"](count=self.answer).SerializeToString() if self.raw is None else self.raw


@asynccontextmanager
async def serving(fake: FakeEstimator, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[int]:
    """Serve *fake*, and yield the port."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((fake,))
    address = "127.0.0.1:0"
    port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=None)


async def ask(monkeypatch, fake: FakeEstimator, *sets: PodSet, **options) -> Estimate:
    async with serving(fake) as port, EstimatorHarness(monkeypatch, **options) as harness:
        harness.ports["m1"] = port
        return await harness.submit(query(*sets))


def amounts(requirements: Any) -> dict[str, str]:
    return {entry.key: entry.value.string for entry in requirements.resourceRequestBytes}


ELASTIC = PodSet(pods(3, 1).requests, 9, 0)


@pytest.mark.parametrize("sets", [(pods(5, 6),), (pods(5, 1), ELASTIC)], ids=["gang", "pods-beyond-the-gang-minimum"])
async def test_equal_pods_are_counted_by_replicas(monkeypatch, sets):
    fake = FakeEstimator()
    assert (await ask(monkeypatch, fake, *sets)).count == 4
    ((method, request),) = fake.requests
    assert method == messages.MAX_AVAILABLE_REPLICAS
    assert amounts(request.replicaRequirements) == {"cpu": "500m", "memory": "3Gi", GPU: "5"}


async def test_different_pods_are_counted_by_gangs(monkeypatch):
    fake = FakeEstimator(answer=1)
    assert (await ask(monkeypatch, fake, pods(5, 1), pods(3, 2))).count == 1
    ((method, request),) = fake.requests
    assert method == messages.MAX_AVAILABLE_COMPONENT_SETS
    sets = [(amounts(component.replicaRequirements)[GPU], component.replicas) for component in request.components]
    assert sets == [("5", 1), ("3", 2)]


async def test_node_constraints_are_sent(monkeypatch):
    fake = FakeEstimator()
    await ask(monkeypatch, fake, pods(4, 2, encode_node_claim(CLAIM)))
    sent = fake.requests[0][1].replicaRequirements.nodeClaim
    assert [(entry.key, entry.value) for entry in sent.nodeSelector] == [("pool", "gpu")]
    (toleration,) = map(messages.TYPES["Toleration"].FromString, sent.tolerationsBytes)
    assert (toleration.key, toleration.operator, toleration.effect) == (GPU, "Exists", "NoSchedule")
    assert messages.TYPES["NodeSelector"].FromString(sent.nodeAffinityBytes) == sent.nodeAffinity
    assert sent.nodeAffinity.nodeSelectorTerms[0].matchExpressions[0].values == ["a", "b"]


async def test_gang_has_no_estimate_without_component_sets(monkeypatch):
    fake = FakeEstimator(serves=frozenset({messages.MAX_AVAILABLE_REPLICAS}))
    async with serving(fake) as port, EstimatorHarness(monkeypatch) as harness:
        harness.ports["m1"] = port
        mixed = query(pods(5, 1), pods(3, 2))
        assert await harness.submit(mixed) == Estimate(mixed)
        assert await harness.submit(mixed) == Estimate(mixed)
        assert (await harness.submit(query())).count == 4
        assert harness.metrics.outcomes == ["uncounted", "uncounted", "counted"]


@pytest.mark.parametrize(
    ("fake", "is_silent"),
    [
        pytest.param(FakeEstimator(answer=messages.UNLIMITED), False, id="no-limit"),
        pytest.param(FakeEstimator(is_failing=True), True, id="error"),
        pytest.param(FakeEstimator(answer=-1), True, id="negative"),
        pytest.param(FakeEstimator(raw=b"\xff\xff\xff"), True, id="no-message"),
        pytest.param(FakeEstimator(raw=b"\x08\x01" * 40_000), True, id="very-long"),
        pytest.param(FakeEstimator("m2"), True, id="estimator-of-another-cluster"),
    ],
)
async def test_answer_without_a_count_is_no_estimate(monkeypatch, fake, is_silent):
    assert await ask(monkeypatch, fake) == Estimate(query(), is_silent=is_silent)


async def test_unreachable_estimator_is_logged_once_and_asked_again(monkeypatch):
    async with EstimatorHarness(monkeypatch) as harness:
        harness.ports["m1"] = 1
        with capture_logs() as logs:
            assert (await harness.submit(query())).is_silent
            assert (await harness.submit(query())).is_silent
        async with serving(FakeEstimator()) as port:
            harness.ports["m1"] = port
            assert (await harness.submit(query())).count == 4
    assert [line["cluster"] for line in logs if "estimator unavailable" in line["event"]] == ["m1"]
    assert harness.metrics.outcomes == ["failed", "failed", "counted"]


async def test_slow_estimator_does_not_block_others(monkeypatch):
    slow, quick = FakeEstimator(gate=asyncio.Event()), FakeEstimator("m2")
    async with serving(slow) as first, serving(quick) as second, EstimatorHarness(monkeypatch) as harness:
        harness.ports |= {"m1": first, "m2": second}
        harness.estimators.submit([query(), query(cluster="m2")])
        assert (await harness.next()).query.cluster == "m2"
        slow.gate.set()
        assert (await harness.next()).query.cluster == "m1"
    assert (await ask(monkeypatch, FakeEstimator(gate=asyncio.Event()), timeout=0.2)).is_silent


async def test_estimator_is_connected_again_after_a_timeout(monkeypatch):
    hanging = FakeEstimator(gate=asyncio.Event())
    harness = EstimatorHarness(monkeypatch, timeout=0.5)
    async with serving(hanging) as first, serving(FakeEstimator()) as second, harness:
        harness.ports["m1"] = first
        assert (await harness.submit(query())).is_silent
        harness.ports["m1"] = second
        assert (await harness.submit(query())).count == 4
    assert harness.metrics.outcomes == ["late", "counted"]


async def test_connection_stays_where_others_are_answered(monkeypatch):
    """One query that no estimator answers in time does not cut off the queries of other tenants."""
    fake = FakeEstimator(gate=asyncio.Event())
    async with serving(fake) as port, EstimatorHarness(monkeypatch, timeout=2) as harness:
        harness.ports["m1"] = port
        harness.estimators.submit([query()])
        await poll(lambda: fake.requests, "the query that is not answered")
        fake.gate = None
        assert (await harness.submit(query(pods(1, 2)))).count == 4
        assert (await harness.next()).is_silent
        harness.ports.clear()
        assert (await harness.submit(query(pods(2, 2)))).count == 4


CLIENT = {"cert_file": "tls.crt", "key_file": "tls.key"}


@pytest.mark.parametrize(
    ("require_client", "client", "is_silent"),
    [
        pytest.param(True, {"ca_file": "ca.crt", **CLIENT}, False, id="mutual-tls"),
        pytest.param(True, {"ca_file": "ca.crt"}, True, id="client-without-certificate"),
        pytest.param(False, {"ca_file": "other/ca.crt", **CLIENT}, True, id="server-of-another-ca"),
        pytest.param(True, {"insecure_skip_verify": True, **CLIENT}, False, id="verification-skipped"),
    ],
)
async def test_certificates_are_verified_unless_skipped(monkeypatch, tmp_path, require_client, client, is_silent):
    authority, _ = Authority(tmp_path), Authority(tmp_path / "other")
    certificate, key = authority.issue("localhost", usage=ExtendedKeyUsageOID.SERVER_AUTH)
    authority.issue("tls")
    trusted = authority.file.read_bytes() if require_client else None
    pair = [(key.read_bytes(), certificate.read_bytes())]
    server = grpc.ssl_server_credentials(pair, trusted, require_client_auth=require_client)
    options = {name: tmp_path / value if name.endswith("_file") else value for name, value in client.items()}
    async with serving(FakeEstimator(), server) as port, EstimatorHarness(monkeypatch, **options) as harness:
        harness.ports["m1"] = port
        assert (await harness.submit(query())).is_silent is is_silent


def test_host_names_are_those_of_karmada():
    assert EstimatorOptions().hosts("m1") == (
        "karmada-scheduler-estimator-m1.karmada-system.svc.cluster.local",
        "karmada-scheduler-estimator-m1.karmada-system.svc",
    )
