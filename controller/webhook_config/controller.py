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
    is_repair_enabled: Callable[[], bool]
    """Whether the operator wants the configurations put right."""
    record_event: Callable[[EventMessage], None]


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
        dependencies: WebhookConfigDependencies,
        *,
        file: DesiredConfigFile,
        metrics: Metrics,
        watch_options: WatchOptions,
    ) -> None:
        self._api = api
        self._dependencies = dependencies
        self._metrics = metrics
        self._file = file
        self._desired = dict(file.current)
        self._reported: dict[str, tuple[str, ...]] = {}
        """What was said last to be wrong, by kind."""
        self._ca_bundles: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._backoff = Backoff(initial=1, maximum=30)
        self._observed = {kind: Collection(_observe, lambda *_: self._wake.set()) for kind in _KINDS}
        self._informers = {
            kind: Informer(
                api,
                resource.path,
                decode=_observe,
                sink=self._observed[kind],
                selectors={"fieldSelector": f"metadata.name={NAME}"},
                options=watch_options,
            )
            for kind, resource in _KINDS.items()
        }

    async def follow_file(self, *, poll_seconds: float) -> NoReturn:
        """Read the file again and again until cancelled; one that cannot be read leaves the last in force."""
        await self._file.follow(self._set_desired, poll_seconds=poll_seconds)

    def _set_desired(self, desired: Mapping[str, Mapping[str, Any]]) -> None:
        if desired:
            self._desired = {**self._desired, **desired}
            self.wake()

    async def run(self) -> NoReturn:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers.values():
                group.create_task(informer.run())
            for informer in self._informers.values():
                await informer.synced.wait()
            while True:
                self._wake.clear()
                if await self._reconcile():
                    await self._wake.wait()
        raise AssertionError("the registration is watched until we are cancelled")

    def wake(self) -> None:
        """Look again: it is our turn to write now, or the operator has changed his mind."""
        self._wake.set()

    async def _reconcile(self) -> bool:
        """Say what is wrong, and put it right if we may; say whether there is nothing left to try."""
        for kind, collection in self._observed.items():
            observed = collection.get(NAME)
            self._adopt_observed(kind, observed)
            self._remember_ca_bundles(observed)
            self._report(kind, observed, tuple(self._violations(kind, observed)))
        if not (self._file.current and self._dependencies.is_repair_enabled() and self._dependencies.may_write()):
            return True
        try:
            for kind in [kind for kind, violations in self._reported.items() if violations]:
                await self._repair(kind)
        except ApiError as error:
            delay = self._backoff.next_delay(at_least=error.retry_after)
            log.warning("webhook configuration not put right", error=str(error), again_in=round(delay, 1))
            await asyncio.sleep(delay)
            return False
        return True

    def _adopt_observed(self, kind: str, observed: ObservedConfiguration | None) -> None:
        """Take what is found first for right, where no file says what is."""
        if kind not in self._desired and observed is not None and not self._validate(kind, observed.manifest):
            self._desired[kind] = observed.manifest

    def _remember_ca_bundles(self, observed: ObservedConfiguration | None) -> None:
        """Remember the bundles, which nothing else would tell once they are gone."""
        webhooks = observed.manifest.get("webhooks") or () if observed else ()
        told = {each["name"]: each.get("clientConfig", {}).get("caBundle") for each in webhooks}
        self._ca_bundles.update({name: bundle for name, bundle in told.items() if bundle})

    def _violations(self, kind: str, observed: ObservedConfiguration | None) -> list[str]:
        manifest = observed.manifest if observed else None
        desired = self._desired.get(kind)
        return diff(desired, manifest) if desired is not None else self._validate(kind, manifest)

    def _validate(self, kind: str, manifest: Mapping[str, Any] | None) -> list[str]:
        """Return what cannot be right; only the mutating one pauses anything."""
        if kind == MUTATING_WEBHOOKS.kind or manifest is None:
            return validate(manifest)
        return []

    def _report(self, kind: str, observed: ObservedConfiguration | None, violations: tuple[str, ...]) -> None:
        before = self._reported.get(kind)
        self._reported[kind] = violations
        self._metrics.set_webhook_registered(kind, right=not violations)
        if violations == (before or ()):
            return
        if not violations:
            log.info("webhook configuration right again", kind=kind, name=NAME)
            return
        # Who runs without the webhook knows that it is not there.
        speak = log.error if kind in self._desired else log.warning
        speak(
            "webhook configuration wrong",
            kind=kind,
            name=NAME,
            violations=violations[:_MAX_SHOWN],
            count=len(violations),
        )
        if self._dependencies.may_write() and kind in self._desired:
            self._dependencies.record_event(_event_message(_KINDS[kind], observed.uid if observed else "", violations))

    async def _repair(self, kind: str) -> None:
        """Write all webhooks anew, with the bundles that were last seen; without any nothing is made.

        An API server that is told to ask a webhook, and not whom to believe, refuses every job.
        """
        resource, observed = _KINDS[kind], self._observed[kind].get(NAME)
        if observed is None and not self._ca_bundles:
            log.error(
                "webhook configuration not put right",
                kind=kind,
                error="it is gone, and which authority its callers should believe was not seen before",
                remedy="helm upgrade registers again",
            )
            return
        webhooks = [_with_bundle(each, self._ca_bundles) for each in self._desired[kind]["webhooks"]]
        if observed is None:
            body = msgspec.json.encode({**self._desired[kind], "webhooks": webhooks})
            raw = await self._api.create(resource.path, body)
        else:
            metadata = {"uid": observed.uid, "resourceVersion": str(observed.resource_version)}
            body = msgspec.json.encode({"metadata": metadata, "webhooks": webhooks})
            raw = await self._api.patch(resource.item_path("", NAME), body, kind="merge")
        made = _observe(raw)
        self._observed[kind].upsert(made)
        log.warning("webhook configuration put right", kind=kind, name=NAME)
        self._report(kind, made, tuple(self._violations(kind, made)))


def _with_bundle(webhook: Mapping[str, Any], bundles: Mapping[str, str]) -> dict[str, Any]:
    """Return *webhook* with its bundle; one that has lost it takes another's, for `certs` publishes the same in all."""
    bundle = bundles.get(webhook["name"]) or next(iter(bundles.values()), None)
    client = dict(webhook["clientConfig"])
    return {**webhook, "clientConfig": {**client, "caBundle": bundle} if bundle else client}


def _event_message(resource: Resource, uid: str, violations: tuple[str, ...]) -> EventMessage:
    about = Reference(resource.api_version, resource.kind, "", NAME, uid)
    more = f"; and {len(violations) - _MAX_SHOWN} more" if len(violations) > _MAX_SHOWN else ""
    note = f"{'; '.join(violations[:_MAX_SHOWN])}{more}"
    return EventMessage(resource.kind, "warned", "Watch", "RegistrationWrong", (about,), lambda: note, "Warning")


def _observe(raw: bytes) -> ObservedConfiguration:
    manifest = msgspec.json.decode(raw)
    meta = manifest["metadata"]
    return ObservedConfiguration(meta["name"], meta["uid"], int(meta["resourceVersion"]), manifest)
