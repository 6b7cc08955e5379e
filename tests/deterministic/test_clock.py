"""The virtual event loop."""

import asyncio
import gc
import time

import pytest

from tests.deterministic.clock import EPOCH, DeadlockError, LivelockError, simulate
from tests.deterministic.processes import Process


async def _order_of_tasks() -> list[int]:
    order: list[int] = []

    async def append(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
            order.append(number)

    await asyncio.gather(*(append(number) for number in range(5)))
    return order


def test_idle_time_jumps_to_the_next_timer():
    async def main() -> tuple[float, float]:
        await asyncio.sleep(86_400 * 30)
        return time.monotonic(), time.time() - EPOCH

    assert simulate(main, 0) == pytest.approx((86_400 * 30, 86_400 * 30))


def test_ready_tasks_run_in_an_order_of_the_seed():
    orders = [tuple(simulate(_order_of_tasks, seed)) for seed in range(10)]
    assert len(set(orders)) > 5
    assert orders[1] == tuple(simulate(_order_of_tasks, 1))


def test_waiting_without_a_timer_is_a_deadlock():
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        simulate(main, 0)


def test_steps_without_passing_time_are_a_livelock():
    async def main() -> None:
        def again() -> None:
            asyncio.get_running_loop().call_soon(again)

        again()
        await asyncio.sleep(1)

    with pytest.raises(LivelockError):
        simulate(main, 0)


@pytest.mark.filterwarnings("error")
def test_killed_process_leaves_no_warning_of_its_tasks(caplog):
    async def main() -> None:
        process = Process("p", lambda: asyncio.sleep(100), failed=pytest.fail)
        process.start()
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(1)
        started = asyncio.get_running_loop().create_task(asyncio.sleep(1), context=process.context.copy())
        del started
        await asyncio.sleep(1)
        gc.collect()

    simulate(main, 1)
    gc.collect()
    assert caplog.records == []
