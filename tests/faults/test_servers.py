"""F1, F2 and F3: API server and store are killed, hang, or are restored from a backup."""

import asyncio
import shutil

import pytest

from localup.processes import Server
from tests.rig.faults import DropReply, writes
from tests.rig.harness import open_harness

NAMES = ("j0", "j1", "j2", "j3")
#: Capacity for one of these jobs.
FULL = {"cpu": "9", "capability": {"cpu": "1"}}


async def test_killed_api_server_is_waited_for(own_plane, tmp_path):
    """It is killed after it has executed the first write, whose answer is lost."""
    async with open_harness(own_plane, tmp_path) as harness:
        harness.proxy.add(DropReply(writes, 1))
        await harness.start(*NAMES, **FULL)
        await harness.history.until(lambda _: harness.proxy.writes, "the first write")
        await asyncio.to_thread(own_plane.kill)
        harness.proxy.close_connections()
        await harness.controller.wait_for_log("watch failed")
        await asyncio.to_thread(own_plane.restart)
        await harness.done(*NAMES)
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.3)


async def test_killed_store_loses_nothing(own_plane, tmp_path):
    async with open_harness(own_plane, tmp_path) as harness:
        await harness.start(*NAMES, **FULL)
        await harness.done("j0")
        await asyncio.to_thread(own_plane.etcd.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(own_plane.etcd.restart)
        await harness.done(*NAMES)


async def test_restored_backup_is_accepted(own_plane, tmp_path):
    """Jobs admitted since the backup are suspended again, pending ones may be missing; all are queued again."""
    async with open_harness(own_plane, tmp_path, plays=False) as harness:
        await harness.prepare(cpu="9", capability={"cpu": "2"})
        await harness.karmada.job("old", "q", cpu=2, endless=True)
        etcd = own_plane.etcd
        copy = tmp_path / "copy"
        await asyncio.to_thread(own_plane.kill)
        await asyncio.to_thread(etcd.kill)
        shutil.copytree(etcd.data, copy)
        await asyncio.to_thread(etcd.restart)
        await asyncio.to_thread(own_plane.restart)
        await harness.controller.start()
        await harness.admitted("old")
        for number in range(20):
            await harness.karmada.job(f"new{number}", "q", cpu=1)
        await harness.check_invariants()
        await asyncio.to_thread(own_plane.kill)
        await asyncio.to_thread(etcd.kill)
        shutil.rmtree(etcd.data)
        shutil.copytree(copy, etcd.data)
        await harness.restart_history()
        await asyncio.to_thread(etcd.restart)
        await asyncio.to_thread(own_plane.restart)
        await harness.until(lambda seen: list(seen) == ["old"] and seen["old"].admitted, "the old one again")
        await harness.karmada.job("other", "q", cpu=1)
        await harness.expect_pending_reasons()
        assert harness.bindings()["other"].suspended


@pytest.mark.long
async def test_hanging_api_server_is_left_without_stale_decisions(own_plane, tmp_path):
    """The controller's server stops sending events while another one accepts writes."""
    async with open_harness(own_plane, tmp_path) as harness:
        await harness.prepare(*NAMES, **FULL)
        second = Server("kube-apiserver", own_plane.folder / "second.log")

        def is_ready() -> bool:
            return True

        await asyncio.to_thread(second.serve, own_plane._command, is_ready)
        first, harness.proxy.target = harness.proxy.target, f"https://127.0.0.1:{second.ports[0]}"
        try:
            await harness.controller.begin()
            await harness.done("j0")
            second.freeze()
            await harness.karmada.job("late", "q")
            harness.proxy.target = first
            await harness.done(*NAMES, "late")
        finally:
            second.close()
