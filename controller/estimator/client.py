"""Client of the estimator of one cluster, which remembers the methods that it does not serve."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import grpc
import grpc.aio

from controller.engine.state.estimates import Estimate, Query
from controller.estimator import messages
from controller.estimator.connection import connect
from controller.estimator.messages import ResponseError
from controller.estimator.options import EstimatorError, EstimatorOptions

#: A method that was not served is retried after this time, because the estimator may have been upgraded.
_RETRY_UNSERVED_SECONDS: Final = 600

Connect = Callable[[], Awaitable[grpc.aio.Channel]]


def new_client(options: EstimatorOptions, cluster: str, clock: Callable[[], float]) -> "Client":
    """Return a client of the estimator of *cluster*."""
    return Client(lambda: connect(options, cluster), timeout=options.timeout_seconds, clock=clock)


class Client:
    """Client of one estimator; it reconnects after a failure."""

    def __init__(self, connect: Connect, *, timeout: float, clock: Callable[[], float]) -> None:
        self._connect = connect
        self._timeout = timeout
        self._clock = clock
        self._channel: grpc.aio.Channel | None = None
        self._unserved: dict[str, float] = {}
        """Methods that the estimator does not serve, with the time of the last attempt."""

    async def estimate(self, query: Query) -> Estimate:
        """Return what the estimator counts. Raises `EstimatorError`.

        A gang of equal pods is counted by replicas, which is exact and costs the server one pass over its nodes; a gang
        of different pods is counted as a whole.
        """
        if len(query.gang) == 1:
            method, request = messages.MAX_AVAILABLE_REPLICAS, messages.replicas_request(query)
        else:
            method, request = messages.MAX_AVAILABLE_COMPONENT_SETS, messages.component_sets_request(query)
        tried_at = self._unserved.get(method)
        if tried_at is not None and self._clock() < tried_at + _RETRY_UNSERVED_SECONDS:
            return Estimate(query)
        try:
            return Estimate(query, messages.count(await self._call(method, request)))
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                self._unserved[method] = self._clock()
                return Estimate(query)
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                await self.close()
            is_late = error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            raise EstimatorError(f"{error.code().name}: {(error.details() or '')[:300]}", is_timeout=is_late) from error
        except ResponseError as error:
            raise EstimatorError(str(error)) from error
        except (OSError, ValueError) as error:
            raise EstimatorError(f"{type(error).__name__}: {error}") from error

    async def _call(self, method: str, request: bytes) -> bytes:
        if self._channel is None:
            channel = await self._connect()
            if self._channel is None:
                self._channel = channel
            else:
                await channel.close()
        call: Any = self._channel.unary_unary(method)
        try:
            answer: bytes = await call(request, timeout=self._timeout)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise EstimatorError("the connection was closed") from None
        return answer

    async def close(self) -> None:
        """Close the connection; the next query opens another one."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
