"""Implements Karmada's execution controller and the simulated member clusters.

The manifest of a Work is in its member cluster as soon as the Work is observed, and is removed when the Work is
deleted. After a restart, jobs continue from the status of their Work.
"""

import asyncio
import time
from collections.abc import Callable

import structlog

from localup.karmada.cache import STATUS, ControlPlaneCache
from localup.karmada.controller import Controller, WorkQueue
from localup.karmada.members.member import Member
from localup.karmada.members.status import health, run_from_status, status_in_member
from localup.karmada.members.summary import MemberRegistry
from localup.karmada.members.workloads import parse_workload
from localup.karmada.names import WORK_FINALIZER, cluster_of
from localup.karmada.objects import Key, Object, generation_of, is_terminating, key_of
from localup.karmada.works import (
    is_suspended,
    manifest_of,
    reported_status,
    with_applied_status,
    with_suspended_condition,
)

log = structlog.get_logger()


class ExecutionController(Controller[Key]):
    """Runs manifests of Works in simulated members and reports their status."""

    def __init__(
        self, cache: ControlPlaneCache, registry: MemberRegistry, *, run_time: float, preserves: bool = True
    ) -> None:
        super().__init__(cache)
        self.reports = WorkQueue[Key]("reports", self._report)
        self._works = cache.works
        self._registry = registry
        self._run_time = run_time
        self._preserves = preserves
        self._event_handlers: list[Callable[[str], None]] = []
        self._submitted: set[Key] = set()
        self._wake = asyncio.Event()
        cache.works.add_event_handler(self._work_changed)
        registry.add_event_handler(self._site_changed)

    def add_event_handler(self, handler: Callable[[str], None]) -> None:
        """Call *handler* with the name of a member whose workloads may have changed."""
        self._event_handlers.append(handler)

    async def run(self) -> None:
        """Advance the simulated members until cancelled."""
        while True:
            await self._pause()
            self._wake.clear()
            self._advance(time.time())

    def _advance(self, now: float) -> None:
        changed, self._submitted = self._submitted, set()
        for name, registered in self._registry.members.items():
            changed |= registered.member.advance(now)
            for handler in self._event_handlers:
                handler(name)
        for key in changed:
            self.reports.add(key)

    async def _pause(self) -> None:
        """Wait until a member changes or the next job ends."""
        ends = [
            end
            for registered in self._registry.members.values()
            if (end := registered.member.next_change()) is not None
        ]
        try:
            async with asyncio.timeout(max(0, min(ends) - time.time()) if ends else None):
                await self._wake.wait()
        except TimeoutError:
            return

    def _work_changed(self, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None:
            self._remove(old)
        elif new is not None and (old is None or generation_of(old) != generation_of(new)):
            self.queue.add(key_of(new))

    def _site_changed(self, name: str) -> None:
        self._wake.set()
        for work in self._works:
            if cluster_of(key_of(work).namespace) == name:
                self.queue.add(key_of(work))

    async def reconcile(self, key: Key) -> None:
        """Submit the manifest of a Work to its member, or remove it."""
        work = self._works.get(key)
        registered = self._registry.members.get(cluster_of(key.namespace))
        if work is None or registered is None or not registered.is_reachable:
            return
        if is_terminating(work):
            self._remove(work)
            await self.cache.remove_finalizer(work, WORK_FINALIZER)
        elif is_suspended(work):
            await self.cache.update(work, with_suspended_condition(work, now=time.time()), part=STATUS)
        else:
            self._submit(work, registered.member)

    def _submit(self, work: Object, member: Member[Key]) -> None:
        key, manifest = key_of(work), manifest_of(work)
        try:
            workload = parse_workload(manifest, run_time=self._run_time)
        except ValueError as error:
            log.error("manifest invalid", work=str(key), error=str(error))  # noqa: TRY400 -- the error is complete without a traceback
            return
        run = None if key in member.runs else run_from_status(manifest, reported_status(work) or {}, workload)
        if run is not None:
            member.adopt(key, run)
        else:
            member.submit(key, workload, time.time())
        self._submitted.add(key)
        self._wake.set()

    def _remove(self, work: Object) -> None:
        registered = self._registry.members.get(cluster_of(key_of(work).namespace))
        if registered is not None and not (self._preserves and work["spec"].get("preserveResourcesOnDeletion")):
            registered.member.remove(key_of(work))
            self._wake.set()

    async def _report(self, key: Key) -> None:
        work = self._works.get(key)
        registered = self._registry.members.get(cluster_of(key.namespace))
        run = registered.member.runs.get(key) if registered else None
        if work is None or run is None or is_terminating(work):
            return
        manifest = manifest_of(work)
        updated = with_applied_status(work, status_in_member(manifest, run), health(manifest, run), now=time.time())
        if await self.cache.update(work, updated, part=STATUS) is not work:
            log.info("job status reported", work=str(key), phase=str(run.phase), running=run.running)
