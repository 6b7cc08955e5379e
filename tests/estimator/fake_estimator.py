"""A fake of Karmada's scheduler estimator: counts exactly, or is slow, fails or gives invalid answers."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio

from controller.api.quantity import parse_quantity
from controller.estimator import messages
from tests.estimator.packing import Node, gangs_that_fit, pods_that_fit

_SETS = messages.MAX_AVAILABLE_COMPONENT_SETS
_REPLICAS = messages.MAX_AVAILABLE_REPLICAS
_REQUESTS = {_REPLICAS: "MaxAvailableReplicasRequest", _SETS: "MaxAvailableComponentSetsRequest"}


@dataclass
class FakeEstimator:
    """The estimator of one cluster."""

    cluster: str
    nodes: Sequence[Node]
    serves: frozenset[str] = frozenset({_REPLICAS, _SETS})
    answer: int | None = None
    """What it says whatever it is asked."""
    raw: bytes | None = None
    """The same, byte for byte."""
    is_failing: bool = False
    gate: asyncio.Event | None = None
    """Before it is set, nobody gets an answer."""
    requests: list[tuple[str, Any]] = field(default_factory=list)

    async def handle(self, method: str, data: bytes, context: grpc.aio.ServicerContext) -> bytes:
        request = messages.TYPES[_REQUESTS[method]].FromString(data)
        self.requests.append((method, request))
        if self.gate is not None:
            await self.gate.wait()
        if self.is_failing:
            await context.abort(grpc.StatusCode.UNKNOWN, "failed to estimate replicas")
        if request.cluster != self.cluster:
            await context.abort(grpc.StatusCode.UNKNOWN, f"cluster name does not match, got: {request.cluster}")
        if self.raw is not None:
            return self.raw
        count = self.answer if self.answer is not None else self._count(method, request)
        return messages.TYPES["Response"](count=count).SerializeToString()

    def _count(self, method: str, request: Any) -> int:
        if method == _REPLICAS:
            asked = request.replicaRequirements
            return pods_that_fit(_amounts(asked.resourceRequestBytes), [n for n in self.nodes if _takes(n, asked)])
        gang = [(_amounts(each.replicaRequirements.resourceRequestBytes), each.replicas) for each in request.components]
        return gangs_that_fit(gang, self.nodes)


def _amounts(entries: Any) -> Mapping[str, int]:
    return {entry.key: parse_quantity(entry.key, entry.value.string) for entry in entries}


def _takes(node: Node, requirements: Any) -> bool:
    """Judge node selector and NoSchedule taints as Karmada's estimator does."""
    claim = requirements.nodeClaim
    tolerations = [messages.TYPES["Toleration"].FromString(each) for each in claim.tolerationsBytes]
    fits = all(node.labels.get(each.key) == each.value for each in claim.nodeSelector)
    return fits and all(
        any(each.key == taint and each.operator == "Exists" for each in tolerations) for taint in node.taints
    )


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, fake: FakeEstimator) -> None:
        self._standin = fake

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if details.method not in self._standin.serves:
            return None

        async def call(data: bytes, context: grpc.aio.ServicerContext) -> bytes:
            return await self._standin.handle(details.method, data, context)

        return grpc.unary_unary_rpc_method_handler(call)


@asynccontextmanager
async def serving(fake: FakeEstimator, credentials: grpc.ServerCredentials | None = None) -> AsyncIterator[int]:
    """Serve it, and return the port."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Handler(fake),))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    try:
        yield port
    finally:
        await server.stop(grace=None)
