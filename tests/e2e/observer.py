"""Observer of bindings with its own watch, independent of the controller.

It stores every state of every binding in order, so that assertions about "any moment" cover all of them.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

import msgspec

from controller.api.keys import ADMISSION_ANNOTATION, RESOURCE_BINDINGS
from controller.kube.client import Api
from tests.waiting import LIMIT_SECONDS
from tests.watching import Watcher, watching

FINISHED = frozenset({"Completed", "Failed", "Terminated"})


@dataclass(frozen=True, slots=True)
class BindingSnapshot:
    """Binding in one of its states; *job* is the template's name."""

    uid: str
    job: str
    suspended: bool
    dispatching: bool
    clusters: tuple[str, ...]
    phases: tuple[str, ...]
    record: dict | None
    deleted: bool = False

    @property
    def is_admitted(self) -> bool:
        return not self.suspended and not self.deleted

    @property
    def is_finished(self) -> bool:
        return bool(self.phases) and all(phase in FINISHED for phase in self.phases)

    @property
    def holds(self) -> bool:
        """Return whether it is charged in this state."""
        return self.is_admitted and not self.is_finished


@dataclass
class Observer(Watcher):
    """All snapshots of the bindings in one namespace, delivered by an informer."""

    namespace: str
    moments: list[BindingSnapshot] = field(default_factory=list)
    now: dict[str, BindingSnapshot] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def watching(self, api: Api) -> AbstractAsyncContextManager[None]:
        """Watch the bindings while the block runs."""
        return watching(api, RESOURCE_BINDINGS.item_path(self.namespace, "").rstrip("/"), self, decode=read)

    def upsert(self, moment: BindingSnapshot) -> None:
        self.moments.append(moment)
        self.now[moment.job] = moment
        self._changed.set()

    def remove(self, moment: BindingSnapshot) -> None:
        self.now.pop(moment.job, None)
        self.moments.append(replace(moment, deleted=True))
        self._changed.set()

    async def until(self, question: Callable[["Observer"], bool], what: str, *, seconds: float = LIMIT_SECONDS) -> None:
        """Wait until the condition holds; the error shows the current state."""
        try:
            async with asyncio.timeout(seconds):
                while not question(self):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError as error:
            raise AssertionError(f"{what}: not within {seconds:g} s; now {self.now}") from error

    def admitted(self) -> list[str]:
        """Return the names of currently admitted jobs, including finished ones."""
        return sorted(name for name, moment in self.now.items() if moment.is_admitted)

    def finished(self) -> list[str]:
        """Return the names of finished jobs."""
        return sorted(name for name, moment in self.now.items() if moment.is_finished)

    def order(self) -> list[str]:
        """Return the jobs in order of their first admission."""
        seen: dict[str, None] = {}
        for moment in self.moments:
            if moment.is_admitted:
                seen.setdefault(moment.job)
        return list(seen)


def read(raw: bytes) -> BindingSnapshot:
    """Parse a binding."""
    obj = msgspec.json.decode(raw)
    meta, spec, status = obj["metadata"], obj["spec"], obj.get("status", {})
    suspension = spec.get("suspension", {})
    record = meta.get("annotations", {}).get(ADMISSION_ANNOTATION)
    return BindingSnapshot(
        uid=meta["uid"],
        job=spec["resource"]["name"],
        suspended=suspension.get("scheduling", False),
        dispatching=suspension.get("dispatching", False),
        clusters=tuple(cluster["name"] for cluster in spec.get("clusters") or ()),
        phases=tuple(
            (item.get("status") or {}).get("state", {}).get("phase", "") for item in status.get("aggregatedStatus", ())
        ),
        record=msgspec.json.decode(record) if record else None,
    )
