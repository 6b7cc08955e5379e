"""TC1 and F21: changes and deletions of the webhook configurations are detected, and repaired where that is enabled."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.keys import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from controller.kube.errors import NotFound
from localup.controlplane import ControlPlane
from localup.credentials import issue
from tests.controllers.webhook_config.test_comparison import FILE
from tests.integration.events import wait_for_event
from tests.rig.harness import Harness, open_harness
from tests.waiting import poll

ROLE = FILE.with_name("repair.yaml")
MUTATING = MUTATING_WEBHOOKS.item_path("", "volcano-global")
REPAIR = {"repair": {"webhookConfiguration": True}}


@pytest.fixture(scope="module")
def plane(fresh_control_plane: Callable[..., ControlPlane]) -> Iterator[ControlPlane]:
    """Return a separate control plane, as no webhook serves at the registered address."""
    return fresh_control_plane(controllers=False, audit=True)


def registration(tmp_path: Path) -> list[dict[str, Any]]:
    """Return the installed configurations with a CA bundle."""
    keys = tmp_path / "webhook-keys"
    keys.mkdir(exist_ok=True)
    bundle = base64.b64encode(issue(keys).ca.encode()).decode()
    configurations = list(
        yaml.safe_load_all(FILE.read_text().replace("https://webhook.invalid", "https://127.0.0.1:1"))
    )
    for webhook in [webhook for item in configurations for webhook in item["webhooks"]]:
        webhook["clientConfig"]["caBundle"] = bundle
    return configurations


async def register(harness: Harness, configurations: list[dict[str, Any]]) -> None:
    for configuration, resource in zip(configurations, (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS), strict=True):
        await harness.karmada.delete(resource.item_path("", "volcano-global"))
        await harness.karmada.create(resource.path, configuration)


async def wait_for_metric(harness: Harness, right: float, *, kind: str = "Mutating") -> None:
    """Wait until the metric has the value *right*."""
    name = f'volcano_global_webhook_registered{{configuration="{kind}WebhookConfiguration"}}'
    await poll(
        lambda: harness.controller.metric(name),
        f"{kind} webhook: {right}",
        until=lambda seen: seen == right,
        log=harness.controller.log,
    )


def first(webhooks: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {"webhooks": [{**webhooks[0], **changes}, *webhooks[1:]]}


CHANGES: tuple[Callable[[list[dict[str, Any]]], dict[str, Any]], ...] = (
    lambda webhooks: first(webhooks, failurePolicy="Ignore"),
    lambda webhooks: first(webhooks, matchConditions=[{"name": "never", "expression": "false"}]),
    lambda webhooks: {"webhooks": webhooks[1:]},
)


@pytest.mark.parametrize("with_file", [True, False], ids=["as-installed", "as-found"])
async def test_webhook_change_and_its_revert_are_detected_at_once(plane, tmp_path, with_file):
    """The first change happens before the controller starts."""
    file = tmp_path / "webhooks.yaml"
    configurations = registration(tmp_path)
    file.write_text(yaml.safe_dump_all(configurations))
    flags = ("--webhook-registration", file) if with_file else ()
    async with open_harness(plane, tmp_path, *flags, plays=False) as harness:
        await register(harness, configurations)
        webhooks = configurations[0]["webhooks"]
        for change in CHANGES:
            await harness.karmada.merge(MUTATING, change(webhooks))
            if change is CHANGES[0]:
                await harness.controller.start()
            await wait_for_metric(harness, 0)
            await harness.karmada.merge(MUTATING, {"webhooks": webhooks})
            await wait_for_metric(harness, 1)
        await wait_for_metric(harness, 1, kind="Validating")
        await harness.karmada.delete(MUTATING)
        await wait_for_metric(harness, 0)
        await wait_for_event(
            harness, "RegistrationWrong", "MutatingWebhookConfiguration", "volcano-global", namespace="default"
        )
        await harness.controller.wait_for_log("it is not there")
        await harness.karmada.delete(VALIDATING_WEBHOOKS.item_path("", "volcano-global"))
        await wait_for_metric(harness, 0, kind="Validating")


def repairing(plane: ControlPlane, tmp_path: Path) -> Path:
    """Grant the controller the permission to repair; return the file of the desired configurations."""
    file = tmp_path / "webhooks.yaml"
    file.write_text(FILE.read_text().replace("https://webhook.invalid", "https://127.0.0.1:1"))
    for item in yaml.safe_load_all(ROLE.read_text()):
        plural = f"{item['kind'].lower()}s"
        plane.admin.apply(f"/apis/rbac.authorization.k8s.io/v1/{plural}/{item['metadata']['name']}", item)
    return file


async def test_upgrade_of_webhook_configuration_is_not_reverted(plane, tmp_path):
    configurations = registration(tmp_path)
    file = repairing(plane, tmp_path)
    async with open_harness(
        plane, tmp_path, "--webhook-registration", file, configuration=REPAIR, plays=False
    ) as harness:
        await register(harness, configurations)
        await harness.controller.start()
        await wait_for_metric(harness, 1)
        condition = "object.spec.resource.kind in ['Job', 'Deployment']"
        gated = [{"name": "gated-kind", "expression": condition}]
        old = configurations[0]["webhooks"][0]["matchConditions"][0]["expression"]
        desired = list(yaml.safe_load_all(file.read_text()))
        desired[0]["webhooks"][0]["matchConditions"] = gated
        # The configuration changes first and is reverted; the kubelet updates the mounted file later.
        await harness.karmada.merge(MUTATING, first(configurations[0]["webhooks"], matchConditions=gated))
        await wait_for_condition(harness, old)
        file.write_text("webhooks: [")
        await harness.controller.wait_for_log("webhook registration not loaded, the old one stays in force")
        file.write_text(yaml.safe_dump_all(desired))
        await wait_for_condition(harness, condition)
        await wait_for_metric(harness, 1)


async def wait_for_condition(harness: Harness, condition: str) -> None:
    """Wait until the match condition of the webhook for bindings is *condition*."""

    def is_there(configuration: dict[str, Any]) -> bool:
        return configuration["webhooks"][0]["matchConditions"][0]["expression"] == condition

    await poll(lambda: harness.karmada.read(MUTATING), condition, until=is_there)


async def test_deleted_webhook_without_known_ca_is_not_recreated(plane, tmp_path):
    file = repairing(plane, tmp_path)
    async with open_harness(
        plane, tmp_path, "--webhook-registration", file, configuration=REPAIR, plays=False
    ) as harness:
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            await harness.karmada.delete(resource.item_path("", "volcano-global"))
        await harness.controller.start()
        await harness.controller.wait_for_log("it was deleted, and its CA bundle was never observed")
        with pytest.raises(NotFound):
            await harness.karmada.api.get(MUTATING)


async def test_changed_webhook_is_repaired_where_enabled(plane, tmp_path):
    configurations = registration(tmp_path)
    file = repairing(plane, tmp_path)
    async with open_harness(
        plane, tmp_path, "--webhook-registration", file, configuration=REPAIR, plays=False
    ) as harness:
        await register(harness, configurations)
        await harness.controller.start()
        await wait_for_metric(harness, 1)
        bundle = configurations[0]["webhooks"][0]["clientConfig"]["caBundle"]
        changes = (
            harness.karmada.merge(MUTATING, first(configurations[0]["webhooks"], failurePolicy="Ignore")),
            harness.karmada.delete(MUTATING),
        )
        for number, change in enumerate(changes, start=1):
            await change
            await harness.controller.wait_for_log("webhook configuration repaired", times=number)
            await wait_for_metric(harness, 1)
            configuration = await harness.karmada.read(MUTATING)
            assert [webhook["failurePolicy"] for webhook in configuration["webhooks"]][:2] == ["Fail", "Fail"]
            assert {webhook["clientConfig"]["caBundle"] for webhook in configuration["webhooks"]} == {bundle}
