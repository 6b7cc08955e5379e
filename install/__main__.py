"""Installs volcano-global in a Karmada control plane, or uninstalls it: `python -m install --help`."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence

import msgspec
import structlog

from controller.api.configuration import ConfigurationError, VolcanoGlobalConfiguration, load_configuration
from controller.api.keys import CONFIG_MAPS, LEASES, PUBLISHED_CONFIGURATION, RUN_TIMES_NAME
from controller.kube.client import Api
from controller.kube.errors import ApiError
from controller.kube.kubeconfig import KubeconfigError
from install import removal
from install.checks import customization_warnings, missing, missing_prerequisites, unready
from install.credentials import CredentialsError, issue
from install.objects import (
    MAPPINGS,
    WEBHOOK_CONFIGURATIONS,
    InstallError,
    Manifest,
    ManifestError,
    apply_all,
    delete,
    delete_all,
    non_webhook_objects,
    prune,
    read_folder,
    read_secret,
    webhook_configurations,
)
from install.registration import register, wait_for_rollout, wait_for_webhook
from install.removal import scale_to_zero, stop_job, wait_until_released
from install.settings import InstallSettings, parse_flags

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

CONFIGURATION = "ADMISSION_CONFIGURATION"
BUNDLE = "ca.crt"

#: Lease of the leader election, which the controller creates.
CONTROLLER_LEASE = "volcano-global-controller"
_AGENT = "volcano-global-install"
_ROLLOUT_SECONDS = 120.0
_INTERRUPTED = 130
_AUTHENTICATE = (
    "set webhook.clientCa.secretName and configure a client certificate for webhooks in the Karmada API server"
    " (docs/operations/security.md); until then allow only the API server with networkPolicy.karmadaApiserver"
)

_MIGRATE = "docs/getting-started/compatibility.md#from-the-go-implementation"

#: Reverse order of installation: webhook configurations first.
_REMOVAL_ORDER = tuple(reversed(tuple(MAPPINGS)))

_ERRORS = (ApiError, CredentialsError, InstallError, KubeconfigError, ManifestError, msgspec.MsgspecError, OSError)


async def check(settings: InstallSettings) -> None:
    """Raise `InstallError` with all missing prerequisites."""
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        violations = await missing_prerequisites(
            karmada,
            namespace=settings.namespace,
            interpreter=settings.interpreter,
            configuration=os.environ.get(CONFIGURATION),
        )
        warnings = await customization_warnings(karmada)
    if violations:
        raise InstallError("cannot be installed:\n" + "\n".join(f"  - {violation}" for violation in violations))
    if not settings.authenticated_callers:
        log.warning(
            "webhook callers not authenticated",
            reason="every caller that reaches the webhook's port can exhaust its capacity for large reviews",
            remedy=_AUTHENTICATE,
        )
    for warning in warnings:
        log.warning("interpreter customization of others", reason=warning, remedy=_MIGRATE)
    log.info("prerequisites satisfied")


async def apply(settings: InstallSettings) -> None:
    """Apply all objects except the webhook configurations, and issue credentials."""
    await check(settings)
    manifests = _read_manifests(settings)
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        await apply_all(karmada, non_webhook_objects(manifests))
        await prune(karmada, manifests, kinds=[kind for kind in _REMOVAL_ORDER if kind not in WEBHOOK_CONFIGURATIONS])
    # Always new tokens: a token of a service account that was recreated looks valid but is refused.
    await _issue(settings, force=True)


async def credentials(settings: InstallSettings) -> None:
    """Renew the credentials that are due, or all of them with `--renew`."""
    await _issue(settings, force=settings.renew)


async def _issue(settings: InstallSettings, *, force: bool) -> None:
    if not settings.account or settings.kubeconfig is None:
        return
    async with (
        Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada,
        Api.connect(settings.host_kubeconfig, user_agent=_AGENT) as host,
    ):
        await issue(karmada, host, settings.token_options, kubeconfig=settings.kubeconfig, force=force)


async def register_webhooks(settings: InstallSettings) -> None:
    """Apply the webhook configurations once the webhook is reachable."""
    bundle = await _bundle(settings)
    if settings.address:
        await wait_for_webhook(settings.address, bundle, seconds=settings.wait_seconds)
    if settings.webhook_deployment:
        seconds = min(settings.wait_seconds, _ROLLOUT_SECONDS)
        async with Api.connect(settings.host_kubeconfig, user_agent=_AGENT) as host:
            await wait_for_rollout(host, settings.host_namespace or "", settings.webhook_deployment, seconds=seconds)
    manifests = webhook_configurations(_read_manifests(settings))
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        await register(karmada, manifests, bundle)
        await prune(karmada, manifests, kinds=sorted(WEBHOOK_CONFIGURATIONS))


async def verify(settings: InstallSettings) -> None:
    """Raise `InstallError` with missing objects and unready processes."""
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        problems = await missing(karmada, _read_manifests(settings))
    for address in settings.probed:
        problems += await asyncio.to_thread(list, unready(address))
    if problems:
        raise InstallError("the installation is incomplete:\n" + "\n".join(f"  - {problem}" for problem in problems))
    log.info("installation verified")


async def remove(settings: InstallSettings) -> None:
    """Uninstall: stop what writes, remove the webhook configurations first, then all other objects."""
    if settings.job or settings.controller:
        namespace, seconds = settings.host_namespace or "", settings.wait_seconds
        async with Api.connect(settings.host_kubeconfig, user_agent=_AGENT) as host:
            # It would register the webhook after the removal, and every new job would be refused.
            if settings.job:
                await stop_job(host, namespace, settings.job, seconds=seconds)
            if settings.controller:
                await scale_to_zero(host, namespace, settings.controller, seconds=seconds)
    manifests = _read_manifests(settings)
    lease = LEASES.item_path(settings.namespace, CONTROLLER_LEASE)
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        if settings.controller:
            await wait_until_released(karmada, lease, seconds=settings.wait_seconds)
        await delete_all(karmada, webhook_configurations(manifests))
        await prune(karmada, (), kinds=sorted(WEBHOOK_CONFIGURATIONS))
        await _resume_suspended(karmada, _configuration(), resume=settings.resume)
        await delete_all(karmada, non_webhook_objects(manifests))
        await prune(karmada, (), kinds=_REMOVAL_ORDER)
        await delete(karmada, lease, f"Lease {CONTROLLER_LEASE}")
        for name in (PUBLISHED_CONFIGURATION, RUN_TIMES_NAME):
            await delete(karmada, CONFIG_MAPS.item_path(settings.namespace, name), f"ConfigMap {name}")


async def _resume_suspended(karmada: Api, configuration: VolcanoGlobalConfiguration, *, resume: bool) -> None:
    """Log the bindings that volcano-global has suspended, and resume them with *resume*."""
    suspended = await removal.list_suspended(karmada, configuration)
    managed = [binding for binding in suspended if binding.is_managed]
    remaining = 0
    async for binding, outcome in removal.outcomes(karmada, managed, resume=resume):
        log.info("suspended binding found", kind=binding.resource.kind, binding=binding.title, outcome=outcome)
        remaining += outcome in {"stays suspended", "refused"}
    if len(managed) < len(suspended):
        log.info("ungated bindings are suspended by other controllers", count=len(suspended) - len(managed))
    if remaining:
        log.warning(
            "bindings stay suspended",
            count=remaining,
            remedy="set spec.suspension.scheduling of each to false, or install again",
        )


def _configuration() -> VolcanoGlobalConfiguration:
    """Return the configuration in force; an invalid one counts only Volcano Jobs as gated."""
    text = os.environ.get(CONFIGURATION)
    try:
        return load_configuration(text) if text else VolcanoGlobalConfiguration()
    except ConfigurationError as error:
        log.warning("configuration invalid, only Volcano Jobs count as gated", error=str(error))
        return VolcanoGlobalConfiguration()


async def _bundle(settings: InstallSettings) -> bytes:
    async with Api.connect(settings.host_kubeconfig, user_agent=_AGENT) as host:
        data = await read_secret(host, settings.host_namespace, settings.certificate_secret)
    if not data or BUNDLE not in data:
        raise InstallError(
            f"Secret {settings.certificate_secret!r} has no {BUNDLE}: run `python -m certs ensure` first"
        )
    return data[BUNDLE]


def _read_manifests(settings: InstallSettings) -> list[Manifest]:
    if settings.objects is None:
        raise InstallError("set --objects to the folder with the objects")
    return read_folder(settings.objects)


COMMANDS: Mapping[str, Callable[[InstallSettings], Coroutine[None, None, None]]] = {
    "check": check,
    "apply": apply,
    "register": register_webhooks,
    "credentials": credentials,
    "verify": verify,
    "remove": remove,
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, by default that of the process; an error prints one sentence and exits with code 1."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    settings = parse_flags(arguments)
    try:
        asyncio.run(COMMANDS[settings.command](settings))
    except _ERRORS as error:
        sys.exit(f"install: {error}")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
