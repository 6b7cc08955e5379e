"""F25, F26, F29 and F30: configuration, clock, files, memory and CPU faults of the process."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rig.binding_state import parse_binding
from tests.rig.faults import ErrorReply
from tests.rig.harness import CONFIGURATION, Harness, open_harness
from tests.rig.history import Change

#: Capacity for one job of the queue ``q``.
FULL = {"cpu": "9", "capability": {"cpu": "1"}}
INVALID = (
    "{",
    json.dumps({**CONFIGURATION, "defaultQueu": "other"}),
    json.dumps({**CONFIGURATION, "patches": {"inFlight": 0}}),
)


async def test_invalid_configuration_is_reported_and_old_one_kept(plane, tmp_path):
    """F25: malformed, unknown keys, contradictory, deleted; then valid again."""
    tenants = {"tenants": [{"namespaces": ["*"], "queues": ["q"]}]}
    async with open_harness(plane, tmp_path, configuration=tenants) as harness:
        await harness.karmada.queue("other")
        await harness.karmada.job("kept-out", "other")
        await harness.start(**FULL)
        for number, invalid in enumerate(INVALID):
            harness.configuration.write_text(invalid)
            await harness.controller.wait_for_log('"level":"error"', times=number + 1)
            assert "configuration" in harness.controller.part.output
            await harness.karmada.job(f"j{number}", "q")
            await harness.done(f"j{number}")
        assert harness.bindings()["kept-out"].suspended
        harness.configure()
        await harness.done("kept-out")
        await harness.expect_no_writes(seconds=0.3)


async def test_clock_jumps_change_no_order_and_no_waiting_time(plane, tmp_path):
    """F26: ten minutes every other second; jobs of equal creation time are ordered by name."""
    jump = """
import sys, time
nanoseconds, began = time.time_ns, time.monotonic()
def jumping(): return nanoseconds() + (600 * 10**9 if int(time.monotonic() - began) % 2 else -600 * 10**9)
time.time_ns, time.time = jumping, lambda: jumping() / 10**9
import runpy
runpy.run_module("controller", run_name="__main__", alter_sys=True)
"""
    async with open_harness(plane, tmp_path) as harness:
        names = [f"j{number}" for number in range(4)]
        await harness.prepare(*reversed(names), **FULL)
        harness.proxy.add(ErrorReply(lambda call: call.is_write and "/j0-job" in call.path, times=1, status=403))
        part = harness.controller.part
        command = part._command
        part._command = lambda: ["-c", jump, *command()[2:]]
        await harness.controller.start()
        await harness.done(*names)
        born = {name: job["metadata"]["creationTimestamp"] for (_, name), job in harness.history.now["jobs"].items()}
        gone = [
            change.key[1].removesuffix("-job") for change in harness.history.of("resourcebindings") if admits(change)
        ]
        assert sorted(gone) == names
        later = [name for name in gone if name != "j0"]
        assert later == sorted(later, key=lambda name: (born[name], name))
        await harness.karmada.job("j9", "q")
        await harness.done("j9")
        await harness.expect_pending_reasons()


def admits(change: Change) -> bool:
    before, after = (parse_binding(item) if item else None for item in (change.before, change.after))
    return after is not None and after.admitted and not (before and before.admitted)


def limited(harness: Harness, shell: str) -> None:
    """Start the first controller through a shell that limits its resources."""
    part = harness.controller.part
    command = part._command

    def through() -> Sequence[str | Path]:
        program = f"import os, sys, resource\n{shell}\nos.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
        return ["-c", program, *command()]

    part._command = through


LIMITS = {
    "64-files": "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
    "no-disk-for-logs": "fd = os.open('/dev/full', os.O_WRONLY); os.dup2(fd, 1); os.dup2(fd, 2)",
    "closed-outputs": "os.close(1); os.close(2)",
    "256-mib-of-memory": "resource.setrlimit(resource.RLIMIT_DATA, (2**28, 2**28))",
    "1-gib-of-addresses": "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))",
}


@pytest.mark.parametrize(
    "what",
    [pytest.param(name, marks=() if name == "no-disk-for-logs" else pytest.mark.long) for name in LIMITS],
)
async def test_controller_works_with_scarce_resources(plane, tmp_path, what):
    """F29."""
    names, more = [f"j{number}" for number in range(5)], [f"more-{number}" for number in range(40)]
    async with open_harness(plane, tmp_path) as harness:
        await harness.karmada.queue("other")
        limited(harness, LIMITS[what])
        await harness.start(*names, **FULL)
        for name in more:
            await harness.karmada.job(name, "other")
        await harness.done(*names, *more)
        await harness.expect_pending_reasons()


async def test_blocked_event_loop_is_reported_and_recovers(plane, tmp_path):
    """F30."""
    async with open_harness(plane, tmp_path) as harness:
        await harness.start("j0", **FULL)
        await harness.done("j0")
        harness.controller.part.freeze()
        await asyncio.sleep(2.5)
        harness.controller.part.resume()
        await harness.controller.wait_for_log("event loop blocked")
        late = await harness.controller.metric("volcano_global_event_loop_lag_seconds_sum")
        assert late > 1
        await harness.karmada.job("j1", "q")
        await harness.done("j1")
