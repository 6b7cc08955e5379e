"""Watches the two webhook configurations, and reports or repairs a missing or changed one.

The desired configurations are read from a file, which an upgrade changes too. Without a file, the first observed
configuration is the desired one if it suspends bindings. Repair must be enabled and needs the file.
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
from controller.controllers.webhook_config.comparison import diff, has_ca_bundle, validate
from controller.kube.client import Api
from controller.kube.collection import Collection
from controller.kube.config_file import WatchedFile
from controller.kube.errors import ApiError
from controller.kube.events import EventMessage, Reference
from controller.kube.informer import WatchOptions, audited_informer
from controller.kube.timing import Backoff
from controller.reporting.metrics import ControllerMetrics

NAME = "volcano-global"
_KINDS = {resource.kind: resource for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)}
_MAX_SHOWN = 5

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()


class ObservedConfiguration(NamedTuple):
    """A webhook configuration at one resourceVersion."""

    key: str
    uid: str
    resource_version: int
    manifest: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WebhookConfigDependencies:
    """The parts of the process that the controller needs."""

    may_write: Callable[[], bool]
    is_repair_enabled: Callable[[], bool]
    """Whether the operator has enabled the repair of the configurations."""
    record_event: Callable[[EventMessage], None]


class DesiredConfigFile(WatchedFile[Mapping[str, Mapping[str, Any]]]):
    """The file with the desired webhook configurations, by kind."""

    NAME = "webhook registration"

    def __init__(self, path: Path | None) -> None:
        super().__init__(path, {})

    def parse(self, text: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the configurations in *text*. Raises `ValueError`."""
        try:
            documents = list(yaml.safe_load_all(text))
        except yaml.YAMLError as error:
            raise ValueError(f"the {self.NAME} is not valid YAML: {error}") from error
        objects = [item for item in documents if isinstance(item, dict)]
        desired = {kind: item for kind in _KINDS for item in objects if item.get("kind") == kind}
        for kind, item in desired.items():
            webhooks = item.get("webhooks")
            if not isinstance(webhooks, list) or not webhooks or not all(map(_is_webhook, webhooks)):
                raise ValueError(f"the {self.NAME} has no webhooks with name, clientConfig and rules in its {kind}")
        return desired


class WebhookConfigController:
    """Watches, compares, reports and repairs while ``run`` is running."""

    def __init__(
        self,
        api: Api,
        dependencies: WebhookConfigDependencies,
        *,
        file: DesiredConfigFile,
        metrics: ControllerMetrics,
        watch_options: WatchOptions,
    ) -> None:
        self._api = api
        self._dependencies = dependencies
        self._metrics = metrics
        self._file = file
        self._desired = dict(file.current)
        self._reported: dict[str, tuple[str, ...]] = {}
        """The violations that were logged last, by kind."""
        self._published: dict[str, tuple[str, ...]] = {}
        """The violations with an event of this leader, by kind."""
        self._ca_bundles: dict[str, str] = {}
        self._futile: dict[str, bytes] = {}
        """The last repair of each kind that left violations; the same one would leave them again."""
        self._wake = asyncio.Event()
        self._backoff = Backoff(initial=1, maximum=30)
        self._observed = {
            kind: Collection(_observe, lambda *_: self._wake.set(), key=lambda _, name: name) for kind in _KINDS
        }
        self._informers = {
            kind: audited_informer(
                api,
                resource.path,
                self._observed[kind],
                selectors={"fieldSelector": f"metadata.name={NAME}"},
                options=watch_options,
            )
            for kind, resource in _KINDS.items()
        }

    async def follow_file(self, *, poll_seconds: float) -> NoReturn:
        """Reload the file until cancelled; an invalid file leaves the last content in force."""
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
        raise AssertionError("the controller runs until it is cancelled")

    def wake(self) -> None:
        """Reconcile after a change of leadership or of the operator's configuration."""
        self._wake.set()

    async def _reconcile(self) -> bool:
        """Report violations and repair them if enabled; return whether no retry is needed."""
        for kind, collection in self._observed.items():
            observed = collection.get(NAME)
            self._adopt_observed(kind, observed)
            self._remember_ca_bundles(observed)
            self._report(kind, observed, tuple(self._violations(kind, observed)))
        if not (self._file.current and self._dependencies.is_repair_enabled() and self._dependencies.may_write()):
            return True
        try:
            for kind, violations in tuple(self._reported.items()):
                if violations and kind in self._file.current:
                    await self._repair(kind)
        except ApiError as error:
            delay = self._backoff.next_delay(at_least=error.retry_after)
            log.warning("webhook configuration not repaired", error=str(error), again_in=round(delay, 1))
            await asyncio.sleep(delay)
            return False
        self._backoff.reset()
        return True

    def _adopt_observed(self, kind: str, observed: ObservedConfiguration | None) -> None:
        """Use the first valid observed configuration as the desired one, if there is no file."""
        if kind not in self._desired and observed is not None and not self._validate(kind, observed.manifest):
            self._desired[kind] = observed.manifest

    def _remember_ca_bundles(self, observed: ObservedConfiguration | None) -> None:
        """Store the CA bundles, which cannot be recovered after a deletion."""
        webhooks = observed.manifest.get("webhooks") or () if observed else ()
        self._ca_bundles.update(
            {webhook["name"]: webhook["clientConfig"]["caBundle"] for webhook in webhooks if has_ca_bundle(webhook)}
        )

    def _violations(self, kind: str, observed: ObservedConfiguration | None) -> list[str]:
        manifest = observed.manifest if observed else None
        desired = self._desired.get(kind)
        return diff(desired, manifest) if desired is not None else self._validate(kind, manifest)

    def _validate(self, kind: str, manifest: Mapping[str, Any] | None) -> list[str]:
        """Return the violations that need no desired configuration; only the mutating webhook suspends bindings."""
        if kind == MUTATING_WEBHOOKS.kind or manifest is None:
            return validate(manifest)
        return []

    def _report(self, kind: str, observed: ObservedConfiguration | None, violations: tuple[str, ...]) -> None:
        before = self._reported.get(kind, ())
        self._reported[kind] = violations
        self._metrics.set_webhook_registered(kind, right=not violations)
        if violations != before:
            self._log(kind, violations)
        if not violations or not self._dependencies.may_write():
            self._published.pop(kind, None)
        elif kind in self._desired and violations != self._published.get(kind):
            self._published[kind] = violations
            self._dependencies.record_event(_event_message(_KINDS[kind], observed.uid if observed else "", violations))

    def _log(self, kind: str, violations: tuple[str, ...]) -> None:
        if not violations:
            log.info("webhook configuration valid again", kind=kind, name=NAME)
            return
        # An installation without the webhook has no desired configuration: a warning suffices.
        log_violations = log.error if kind in self._desired else log.warning
        log_violations(
            "webhook configuration invalid",
            kind=kind,
            name=NAME,
            violations=violations[:_MAX_SHOWN],
            count=len(violations),
        )

    async def _repair(self, kind: str) -> None:
        """Write all webhooks with the CA bundles that were observed last; without any bundle nothing is created.

        An API server with a webhook and without its CA bundle rejects every job. A violation that a repair leaves, such
        as a CA bundle that was never published, is only reported until the configuration changes.
        """
        resource, observed = _KINDS[kind], self._observed[kind].get(NAME)
        if observed is None and not self._ca_bundles:
            log.error(
                "webhook configuration not repaired",
                kind=kind,
                error="it was deleted, and its CA bundle was never observed",
                remedy="run helm upgrade to register it again",
            )
            return
        webhooks = [_with_bundle(webhook, self._ca_bundles) for webhook in self._desired[kind]["webhooks"]]
        if observed is None:
            body = msgspec.json.encode({**self._desired[kind], "webhooks": webhooks})
            raw = await self._api.create(resource.path, body)
        else:
            metadata = {"uid": observed.uid, "resourceVersion": str(observed.resource_version)}
            body = msgspec.json.encode({"metadata": metadata, "webhooks": webhooks})
            if body == self._futile.get(kind):
                return
            raw = await self._api.patch(resource.item_path("", NAME), body, kind="merge")
        made = _observe(raw)
        self._observed[kind].upsert(made)
        violations = tuple(self._violations(kind, made))
        if violations:
            self._futile[kind] = body
        else:
            log.warning("webhook configuration repaired", kind=kind, name=NAME)
        self._report(kind, made, violations)


def _is_webhook(item: object) -> bool:
    """Return whether *item* has what is compared and repaired."""
    if not isinstance(item, dict):
        return False
    name, client, rules = (item.get(field) for field in ("name", "clientConfig", "rules"))
    are_rules = isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules)
    return isinstance(name, str) and isinstance(client, dict) and are_rules


def _with_bundle(webhook: Mapping[str, Any], bundles: Mapping[str, str]) -> dict[str, Any]:
    """Return *webhook* with its CA bundle, or with that of another webhook: `certs` publishes the same one in all."""
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
