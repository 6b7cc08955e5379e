"""Queries to an estimator, and the handling of its answers."""

import asyncio

import grpc
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
from tests.estimator.fake_estimator import FakeEstimator, serving
from tests.estimator.packing import Node
from tests.waiting import LIMIT_SECONDS

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


def nodes(*gpus: int, **parts) -> list[Node]:
    return [Node({"cpu": 64_000, "memory": 512 * GIBI, GPU: gpu * 1000}, **parts) for gpu in gpus]


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


async def ask(monkeypatch, fake: FakeEstimator, asked: Query | None = None, **parts) -> Estimate:
    async with serving(fake) as port, EstimatorHarness(monkeypatch, **parts) as harness:
        harness.ports["m1"] = port
        return await harness.submit(asked or query())


async def test_equal_pods_are_counted_by_replicas(monkeypatch):
    fake = FakeEstimator("m1", nodes(8, 8, 8, 8))

    found = await ask(monkeypatch, fake)

    assert found == Estimate(query(), 4)
    ((method, request),) = fake.requests
    assert method == messages.MAX_AVAILABLE_REPLICAS
    assert {each.key: each.value.string for each in request.replicaRequirements.resourceRequestBytes} == {
        "cpu": "500m",
        "memory": "3Gi",
        GPU: "5",
    }


async def test_different_pods_are_counted_by_gangs(monkeypatch):
    found = await ask(monkeypatch, FakeEstimator("m1", nodes(8, 8)), query(pods(5, 1), pods(3, 2)))

    assert found.count == 1


async def test_pods_beyond_the_gang_minimum_are_not_requested(monkeypatch):
    fake = FakeEstimator("m1", nodes(8, 8))
    elastic = PodSet(pods(3, 1).requests, 9, 0)

    await ask(monkeypatch, fake, query(pods(5, 1), elastic))

    assert fake.requests[0][0] == messages.MAX_AVAILABLE_REPLICAS


async def test_node_constraints_are_sent(monkeypatch):
    claim = encode_node_claim(CLAIM)
    fake = FakeEstimator("m1", [*nodes(8, labels={"pool": "gpu"}, taints=(GPU,)), *nodes(8), *nodes(8, taints=(GPU,))])

    assert (await ask(monkeypatch, fake, query(pods(4, 2, claim)))).count == 2
    sent = fake.requests[0][1].replicaRequirements.nodeClaim
    assert messages.TYPES["NodeSelector"].FromString(sent.nodeAffinityBytes) == sent.nodeAffinity
    assert sent.nodeAffinity.nodeSelectorTerms[0].matchExpressions[0].values == ["a", "b"]


async def test_gang_has_no_estimate_without_component_sets(monkeypatch):
    fake = FakeEstimator("m1", nodes(8), frozenset({messages.MAX_AVAILABLE_REPLICAS}))
    async with serving(fake) as port, EstimatorHarness(monkeypatch) as harness:
        harness.ports["m1"] = port
        mixed = query(pods(5, 1), pods(3, 2))

        assert await harness.submit(mixed) == Estimate(mixed)
        assert await harness.submit(mixed) == Estimate(mixed)
        assert (await harness.submit(query())).count == 1
        assert harness.metrics.outcomes == ["uncounted", "uncounted", "counted"]


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param({"is_failing": True}, id="error"),
        pytest.param({"answer": -1}, id="negative"),
        pytest.param({"raw": b"\xff\xff\xff"}, id="no-message"),
        pytest.param({"raw": b"\x08\x01" * 40_000}, id="very-long"),
    ],
)
async def test_failed_or_invalid_answer_is_an_error(monkeypatch, parts):
    assert await ask(monkeypatch, FakeEstimator("m1", nodes(8), **parts)) == Estimate(query(), is_silent=True)


async def test_answer_of_another_clusters_estimator_is_an_error(monkeypatch):
    assert (await ask(monkeypatch, FakeEstimator("m2", nodes(8)))).is_silent


async def test_unlimited_count_is_no_estimate(monkeypatch):
    assert await ask(monkeypatch, FakeEstimator("m1", [], answer=messages.UNLIMITED)) == Estimate(query())


async def test_unreachable_estimator_is_logged_once(monkeypatch):
    async with EstimatorHarness(monkeypatch) as harness:
        harness.ports["m1"] = 1
        with capture_logs() as logs:
            assert (await harness.submit(query())).is_silent
            assert (await harness.submit(query())).is_silent

    assert [each["cluster"] for each in logs if "estimator unavailable" in each["event"]] == ["m1"]
    assert harness.metrics.outcomes == ["failed", "failed"]


async def test_slow_estimator_does_not_block_others(monkeypatch):
    slow, quick = FakeEstimator("m1", nodes(8), gate=asyncio.Event()), FakeEstimator("m2", nodes(8))
    async with serving(slow) as first, serving(quick) as second, EstimatorHarness(monkeypatch) as harness:
        harness.ports |= {"m1": first, "m2": second}
        harness.estimators.submit([query(), query(cluster="m2")])

        assert (await harness.next()).query.cluster == "m2"
        slow.gate.set()
        assert (await harness.next()).query.cluster == "m1"


async def test_slow_estimator_times_out(monkeypatch):
    found = await ask(monkeypatch, FakeEstimator("m1", nodes(8), gate=asyncio.Event()), timeout=0.2)

    assert found.is_silent


async def test_restarted_estimator_is_queried_over_a_new_connection(monkeypatch):
    async with EstimatorHarness(monkeypatch) as harness:
        harness.ports["m1"] = 1
        assert (await harness.submit(query())).is_silent
        async with serving(FakeEstimator("m1", nodes(8))) as port:
            harness.ports["m1"] = port
            assert (await harness.submit(query())).count == 1


def _credentials(tmp_path, *, verify_client: bool) -> tuple[grpc.ServerCredentials, dict[str, object]]:
    authority = Authority(tmp_path)
    serving_pair = authority.issue("localhost", usage=ExtendedKeyUsageOID.SERVER_AUTH)
    authority.issue("tls")
    certificate, key = (file.read_bytes() for file in serving_pair)
    trusted = authority.file.read_bytes() if verify_client else None
    server = grpc.ssl_server_credentials([(key, certificate)], trusted, require_client_auth=verify_client)
    paths = {"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key"}
    return server, {name: tmp_path / path for name, path in paths.items()}


async def test_mutual_tls(monkeypatch, tmp_path):
    server, files = _credentials(tmp_path, verify_client=True)
    async with (
        serving(FakeEstimator("m1", nodes(8)), server) as port,
        EstimatorHarness(monkeypatch, **files) as harness,
    ):
        harness.ports["m1"] = port
        assert (await harness.submit(query())).count == 1


async def test_client_without_certificate_is_rejected(monkeypatch, tmp_path):
    server, files = _credentials(tmp_path, verify_client=True)
    async with (
        serving(FakeEstimator("m1", nodes(8)), server) as port,
        EstimatorHarness(monkeypatch, ca_file=files["ca_file"]) as harness,
    ):
        harness.ports["m1"] = port
        assert (await harness.submit(query())).is_silent


async def test_server_certificate_of_another_ca_is_rejected(monkeypatch, tmp_path):
    server, _ = _credentials(tmp_path, verify_client=False)
    other = tmp_path / "other"
    other.mkdir()
    _, files = _credentials(other, verify_client=False)
    async with (
        serving(FakeEstimator("m1", nodes(8)), server) as port,
        EstimatorHarness(monkeypatch, **files) as harness,
    ):
        harness.ports["m1"] = port
        assert (await harness.submit(query())).is_silent


async def test_verification_can_be_skipped(monkeypatch, tmp_path):
    server, files = _credentials(tmp_path, verify_client=True)
    del files["ca_file"]
    async with (
        serving(FakeEstimator("m1", nodes(8)), server) as port,
        EstimatorHarness(monkeypatch, insecure_skip_verify=True, **files) as harness,
    ):
        harness.ports["m1"] = port
        assert (await harness.submit(query())).count == 1


def test_host_names_are_those_of_karmada():
    assert EstimatorOptions().hosts("m1") == (
        "karmada-scheduler-estimator-m1.karmada-system.svc.cluster.local",
        "karmada-scheduler-estimator-m1.karmada-system.svc",
    )
