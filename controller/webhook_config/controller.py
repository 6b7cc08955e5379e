"""Watches our two webhook configurations and says at once when one of them is gone or altered.

What they should be like says a file, as they were installed, read again when it
changes: an upgrade changes both. Without one it is what was found first, as far
as that pauses bindings at all. Where repair is switched on and a file tells how,
they are put right.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec
import structlog
import yaml

from controller.api.keys import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, Resource
from controller.backoff import Backoff
from controller.cache.collection import Collection
from controller.cache.informer import Informer, WatchOptions
from controller.events.message import EventMessage, Reference
from controller.kube import Api, ApiError
from controller.metrics import Metrics
from controller.watched_file import WatchedFile
from controller.webhook_config.comparison import diff, validate

NAME = "volcano-global"
_KINDS = {each.kind: each for each in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
_MAX_SHOWN = 5

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ObservedConfiguration(NamedTuple):
    """A webhook configuration as it was at one resourceVersion."""

    key: str
    uid: str
    resource_version: int
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WebhookConfigDependencies:
    """What the guard asks of the rest of the controller."""

    may_write: Callable[[], bool]
    repairs: Callable[[], bool]
    """Whether the operator wants the configurations put right."""
    tell: Callable[[EventMessage], None]


class DesiredConfigFile(WatchedFile[Mapping[str, Mapping[str, Any]]]):
    """The file that says what the webhook configurations should be like, by kind."""

    NAME = "webhook registration"

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, {})

    def parse(self, text: str) -> Mapping[str, Mapping[str, Any]]:
        """Return what *text* says. Raises `ValueError`."""
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            raise ValueError(f"the {self.NAME} is no YAML: {error}") from error
        return {each["kind"]: each for each in documents if isinstance(each, dict) and each.get("kind") in _KINDS}


class WebhookConfigReconciler:
    """Watches, compares and tells; ``run`` must be running."""

    def __init__(
        self,
        api: Api,
        surroundings: WebhookConfigDependencies,
        *,
        file: DesiredConfigFile,
        metrics: Metrics,
        pace: WatchOptions,
    ) -> None:
        self._api = api
        self._about = surroundings
        self._metrics = metrics
        self._file = file
        self._wanted = dict(file.current)
        self._told: dict[str, tuple[str, ...]] = {}
        """What was said last to be wrong, by kind."""
        self._bundles: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._backoff = Backoff(first=1, most=30)
        self._seen = {kind: Collection(_observe, lambda *_: self._wake.set()) for kind in _KINDS}
        self._informers = {
            kind: Informer(
                api,
                resource.path,
                decode=_observe,
                sink=self._seen[kind],
                selectors={"fieldSelector": f"metadata.name={NAME}"},
                pace=pace,
            )
            for kind, resource in _KINDS.items()
        }

    async def follow(self, *, poll_seconds: float) -> NoReturn:
        """Read the file again and again until cancelled; one that cannot be read leaves the last in force."""
        await self._file.follow(self._want, poll_seconds=poll_seconds)

    def _want(self, wanted: Mapping[str, Mapping[str, Any]]) -> None:
        if wanted:
            self._wanted = {**self._wanted, **wanted}
            self.look()

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())
            for informer in self._informers.values():
                await informer.synced.wait()
            while True:
                self._wake.clear()
                if await self._look():
                    await self._wake.wait()
        raise AssertionError("the registration is watched until we are cancelled")

    def look(self) -> None:
        """Look again: it is our turn to write now, or the operator has changed his mind."""
        self._wake.set()

    async def _look(self) -> bool:
        """Say what is wrong, and put it right if we may; say whether there is nothing left to try."""
        for kind, collection in self._seen.items():
            found = collection.get(NAME)
            self._learn(kind, found)
            self._keep_bundles(found)
            self._tell(kind, found, tuple(self._trouble(kind, found)))
        if not (self._file.current and self._about.repairs() and self._about.may_write()):
            return True
        try:
            for kind in [kind for kind, trouble in self._told.items() if trouble]:
                await self._repair(kind)
        except ApiError as error:
            delay = self._backoff.failed(at_least=error.retry_after)
            log.warning("webhook configuration not put right", error=str(error), again_in=round(delay, 1))
            await asyncio.sleep(delay)
            return False
        return True

    def _learn(self, kind: str, found: ObservedConfiguration | None) -> None:
        """Take what is found first for right, where no file says what is."""
        if kind not in self._wanted and found is not None and not self._shortcomings(kind, found.manifest):
            self._wanted[kind] = found.manifest

    def _keep_bundles(self, found: ObservedConfiguration | None) -> None:
        """Remember the bundles, which nothing else would tell once they are gone."""
        webhooks = found.manifest.get("webhooks") or () if found else ()
        told = {each["name"]: each.get("clientConfig", {}).get("caBundle") for each in webhooks}
        self._bundles.update({name: bundle for name, bundle in told.items() if bundle})

    def _trouble(self, kind: str, found: ObservedConfiguration | None) -> list[str]:
        manifest = found.manifest if found else None
        wanted = self._wanted.get(kind)
        return diff(wanted, manifest) if wanted is not None else self._shortcomings(kind, manifest)

    def _shortcomings(self, kind: str, manifest: Mapping[str, Any] | None) -> list[str]:
        """Return what cannot be right; only the mutating one pauses anything."""
        if kind == MUTATING_WEBHOOKS.kind or manifest is None:
            return validate(manifest)
        return []

    def _tell(self, kind: str, found: ObservedConfiguration | None, trouble: tuple[str, ...]) -> None:
        before = self._told.get(kind)
        self._told[kind] = trouble
        self._metrics.show_registration(kind, right=not trouble)
        if trouble == (before or ()):
            return
        if not trouble:
            log.info("webhook configuration right again", kind=kind, name=NAME)
            return
        # Who runs without the webhook knows that it is not there.
        speak = log.error if kind in self._wanted else log.warning
        speak("webhook configuration wrong", kind=kind, name=NAME, trouble=trouble[:_MAX_SHOWN], count=len(trouble))
        if self._about.may_write() and kind in self._wanted:
            self._about.tell(_event_message(_KINDS[kind], found.uid if found else "", trouble))

    async def _repair(self, kind: str) -> None:
        """Write all webhooks anew, with the bundles that were last seen; without any nothing is made.

        An API server that is told to ask a webhook, and not whom to believe, refuses every job.
        """
        resource, found = _KINDS[kind], self._seen[kind].get(NAME)
        if found is None and not self._bundles:
            log.error(
                "webhook configuration not put right",
                kind=kind,
                error="it is gone, and which authority its callers should believe was not seen before",
                remedy="helm upgrade registers again",
            )
            return
        webhooks = [_with_bundle(each, self._bundles) for each in self._wanted[kind]["webhooks"]]
        if found is None:
            body = msgspec.json.encode({**self._wanted[kind], "webhooks": webhooks})
            raw = await self._api.create(resource.path, body)
        else:
            metadata = {"uid": found.uid, "resourceVersion": str(found.resource_version)}
            body = msgspec.json.encode({"metadata": metadata, "webhooks": webhooks})
            raw = await self._api.patch(resource.item_path("", NAME), body, kind="merge")
        made = _observe(raw)
        self._seen[kind].upsert(made)
        log.warning("webhook configuration put right", kind=kind, name=NAME)
        self._tell(kind, made, tuple(self._trouble(kind, made)))


def _with_bundle(webhook: Mapping[str, Any], bundles: Mapping[str, str]) -> dict[str, Any]:
    """Return *webhook* with its bundle; one that has lost it takes another's, for `certs` publishes the same in all."""
    bundle = bundles.get(webhook["name"]) or next(iter(bundles.values()), None)
    client = dict(webhook["clientConfig"])
    return {**webhook, "clientConfig": {**client, "caBundle": bundle} if bundle else client}


def _event_message(resource: Resource, uid: str, trouble: tuple[str, ...]) -> EventMessage:
    about = Reference(resource.api_version, resource.kind, "", NAME, uid)
    more = f"; and {len(trouble) - _MAX_SHOWN} more" if len(trouble) > _MAX_SHOWN else ""
    note = f"{'; '.join(trouble[:_MAX_SHOWN])}{more}"
    return EventMessage(resource.kind, "warned", "Watch", "RegistrationWrong", (about,), lambda: note, "Warning")


def _observe(raw: bytes) -> ObservedConfiguration:
    manifest = msgspec.json.decode(raw)
    meta = manifest["metadata"]
    return ObservedConfiguration(meta["name"], meta["uid"], int(meta["resourceVersion"]), manifest)
