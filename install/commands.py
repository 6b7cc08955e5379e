"""What each command of the installer does, step by step; every step can be repeated."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping

import msgspec
import structlog

from controller.api.configuration import ConfigurationError, VolcanoGlobalConfiguration, load_configuration
from controller.api.keys import LEASES
from controller.kube import Api, NotFound
from install import suspended_bindings
from install.credentials import issue
from install.deployments import scale_to_zero
from install.manifests import non_webhook_objects, read_folder, webhook_configurations
from install.objects import InstallError, apply_all, delete, delete_all, prune
from install.prerequisites import missing_prerequisites
from install.registration import register, wait_for_webhook
from install.rest_mapping import MAPPINGS, WEBHOOK_CONFIGURATIONS, Manifest
from install.settings import Settings
from install.verification import missing, unready

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

CONFIGURATION = "ADMISSION_CONFIGURATION"
BUNDLE = "ca.crt"
#: The controller has made it, and nobody else looks at it.
CONTROLLER_LEASE = "volcano-global-controller"
_AGENT = "volcano-global-install"
_AUTHENTICATE = (
    "set webhook.clientCa.secretName and let the Karmada API server show a client certificate to webhooks"
    " (docs/operations/security.md); until then admit only the API server with networkPolicy.karmadaApiserver"
)
#: The last first, and registrations before all others.
_REMOVAL_ORDER = tuple(reversed(tuple(MAPPINGS)))


class _Secret(msgspec.Struct):
    data: dict[str, bytes] | None = None


async def check(settings: Settings) -> None:
    """Raise all that is missing."""
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        found = await missing_prerequisites(
            karmada, interpreter=settings.interpreter, configuration=os.environ.get(CONFIGURATION)
        )
    if found:
        raise InstallError("cannot be installed:\n" + "\n".join(f"  - {each}" for each in found))
    if not settings.authenticated_callers:
        log.warning(
            "webhook callers not authenticated",
            reason="whoever reaches the webhook's port can fill its places for large reviews",
            remedy=_AUTHENTICATE,
        )
    log.info("nothing is missing")


async def apply(settings: Settings) -> None:
    """Put everything there but the webhook configurations."""
    await check(settings)
    wanted = _read_manifests(settings)
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        await apply_all(karmada, non_webhook_objects(wanted))
        await prune(
            karmada,
            wanted,
            namespace=settings.namespace,
            kinds=[kind for kind in _REMOVAL_ORDER if kind not in WEBHOOK_CONFIGURATIONS],
        )
    # Anew each time: a token of an account that was made again meanwhile looks good and is refused.
    await _issue(settings, force=True)


async def credentials(settings: Settings) -> None:
    """Renew the credentials that are due, or all of them."""
    await _issue(settings, force=settings.renew)


async def _issue(settings: Settings, *, force: bool) -> None:
    if not settings.account or settings.kubeconfig is None:
        return
    async with (
        Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada,
        Api.connect(settings.host_kubeconfig, user_agent=_AGENT) as host,
    ):
        await issue(karmada, host, settings.token_options, kubeconfig=settings.kubeconfig, force=force)


async def register_webhooks(settings: Settings) -> None:
    """Write the webhook configurations, once the webhook answers."""
    bundle = await _bundle(settings)
    if settings.address:
        await wait_for_webhook(settings.address, bundle, seconds=settings.wait_seconds)
    wanted = webhook_configurations(_read_manifests(settings))
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        await register(karmada, wanted, bundle)
        await prune(karmada, wanted, namespace=settings.namespace, kinds=sorted(WEBHOOK_CONFIGURATIONS))


async def verify(settings: Settings) -> None:
    """Raise what is not there, or not ready."""
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        found = await missing(karmada, _read_manifests(settings))
    for address in settings.probed:
        found += await asyncio.to_thread(lambda each: list(unready(each)), address)
    if found:
        raise InstallError("not as it should be:\n" + "\n".join(f"  - {each}" for each in found))
    log.info("all is there, and ready")


async def remove(settings: Settings) -> None:
    """Take everything away again, what holds others up first."""
    if settings.controller:
        async with Api.connect(settings.host_kubeconfig, user_agent=_AGENT) as host:
            await scale_to_zero(host, settings.host_namespace or "", settings.controller, seconds=settings.wait_seconds)
    wanted = _read_manifests(settings)
    async with Api.connect(settings.kubeconfig, user_agent=_AGENT) as karmada:
        await delete_all(karmada, webhook_configurations(wanted))
        await prune(karmada, (), namespace=settings.namespace, kinds=sorted(WEBHOOK_CONFIGURATIONS))
        await _resume_suspended(karmada, _configuration(), resume=settings.resume)
        await delete_all(karmada, non_webhook_objects(wanted))
        await prune(karmada, (), namespace=settings.namespace, kinds=_REMOVAL_ORDER)
        await delete(karmada, LEASES.item_path(settings.namespace, CONTROLLER_LEASE), f"Lease {CONTROLLER_LEASE}")


async def _resume_suspended(karmada: Api, configuration: VolcanoGlobalConfiguration, *, resume: bool) -> None:
    """List the bindings that volcano-global has suspended, and resume them if that is wanted."""
    found = await suspended_bindings.list_suspended(karmada, configuration)
    ours = [each for each in found if each.is_ours]
    for each in ours:
        outcome = await suspended_bindings.resume(karmada, each) if resume else "stays paused"
        log.info("binding was paused", kind=each.resource.kind, binding=each.title, now=outcome)
    if len(ours) < len(found):
        log.info(
            "bindings of kinds that do not wait for admission are suspended by others", count=len(found) - len(ours)
        )
    if ours and not resume:
        log.warning(
            "bindings stay paused",
            count=len(ours),
            remedy="set spec.suspension.scheduling of each to false, or install again",
        )


def _configuration() -> VolcanoGlobalConfiguration:
    """Return the configuration that was in force; one that cannot be read gates Volcano Jobs only."""
    text = os.environ.get(CONFIGURATION)
    try:
        return load_configuration(text) if text else VolcanoGlobalConfiguration()
    except ConfigurationError as error:
        log.warning("configuration not read; only Volcano Jobs count as gated", error=str(error))
        return VolcanoGlobalConfiguration()


async def _bundle(settings: Settings) -> bytes:
    path = f"/api/v1/namespaces/{settings.host_namespace}/secrets/{settings.certificate_secret}"
    async with Api.connect(settings.host_kubeconfig, user_agent=_AGENT) as host:
        try:
            found = msgspec.json.decode(await host.get(path), type=_Secret).data or {}
        except NotFound:
            found = {}
    if BUNDLE not in found:
        raise InstallError(
            f"Secret {settings.certificate_secret!r} has no {BUNDLE}: run `python -m certs ensure` first"
        )
    return found[BUNDLE]


def _read_manifests(settings: Settings) -> list[Manifest]:
    if settings.objects is None:
        raise InstallError("name the folder with the objects: --objects")
    return read_folder(settings.objects)


COMMANDS: Mapping[str, Callable[[Settings], Coroutine[None, None, None]]] = {
    "check": check,
    "apply": apply,
    "register": register_webhooks,
    "credentials": credentials,
    "verify": verify,
    "remove": remove,
}
