"""F25, F26, F29 and F30: configuration, clock, files, memory and CPU faults of the process."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.rig.binding_state import parse_binding
from tests.rig.faults import ErrorReply
from tests.rig.harness import Harness, open_harness
from tests.rig.history import Change
from tests.waiting import LIMIT_SECONDS

GOOD = "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration\n"


async def prepared(harness: Harness, *names: str) -> None:
    await harness.karmada.queue("q", capability={"cpu": "1"})
    await harness.karmada.queue("other")
    await harness.karmada.cluster("m1", cpu="9")
    for name in names:
        await harness.karmada.job(name, "q")


async def test_invalid_configuration_is_reported_and_old_one_kept(plane, tmp_path):
    """F25: malformed, unknown keys, contradictory, deleted; then valid again."""
    file = tmp_path / "admission.yaml"
    file.write_text(f"{GOOD}tenants: [{{namespaces: ['*'], queues: [q]}}]\n")
    async with open_harness(plane, tmp_path, "--admission-configuration", file, "--poll-seconds", "0.05") as harness:
        await prepared(harness)
        await harness.karmada.job("kept-out", "other")
        await harness.controller.start()
        for number, bad in enumerate(("{", f"{GOOD}defaultQueu: other\n", f"{GOOD}patches: {{inFlight: 0}}\n")):
            file.write_text(bad)
            await said(harness, "configuration", number + 1)
            await harness.karmada.job(f"j{number}", "q")
            await harness.done(f"j{number}")
        assert harness.bindings()["kept-out"].suspended
        file.write_text(GOOD)
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
        await prepared(harness, *reversed(names))
        harness.proxy.add(ErrorReply(lambda call: call.is_write and "/j0-job" in call.path, times=1, status=403))
        part = harness.controller.part
        command = part._command
        part._command = lambda: ["-c", jump, *command()[2:]]
        await harness.controller.start()
        await harness.done(*names)
        born = {name: each["metadata"]["creationTimestamp"] for (_, name), each in harness.history.now["jobs"].items()}
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


async def said(harness: Harness, word: str, times: int) -> None:
    """Wait until the controller has logged *word* so many times."""
    async with asyncio.timeout(LIMIT_SECONDS):
        while harness.controller.part.output.count('"level":"error"') < times:  # noqa: ASYNC110 -- a file
            await asyncio.sleep(0.02)
    assert word in harness.controller.part.output


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
    async with open_harness(plane, tmp_path) as harness:
        await prepared(harness, *(f"j{number}" for number in range(5)))
        limited(harness, LIMITS[what])
        await harness.controller.start()
        for number in range(40):
            await harness.karmada.job(f"more-{number}", "other")
        await harness.done(
            *(f"j{number}" for number in range(5)), *(f"more-{number}" for number in range(40)), seconds=40
        )
        await harness.expect_pending_reasons()


async def test_blocked_event_loop_is_reported_and_recovers(plane, tmp_path):
    """F30."""
    async with open_harness(plane, tmp_path) as harness:
        await prepared(harness, "j0")
        await harness.controller.start()
        await harness.done("j0")
        harness.controller.part.freeze()
        await asyncio.sleep(2.5)
        harness.controller.part.resume()
        await harness.controller.wait_for_log("event loop blocked")
        late = await harness.controller.metric("volcano_global_event_loop_lag_seconds_sum")
        assert late > 1
        await harness.karmada.job("j1", "q")
        await harness.done("j1")
