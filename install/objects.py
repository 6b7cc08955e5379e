"""Objects onto the control plane, and away from it again: only ours, and only where nobody else's would be lost."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import structlog

from controller.kube import Api, ApiError, Conflict, NotFound
from install.polling import poll_until
from install.rest_mapping import MANAGED_BY, MAPPINGS, Manifest, is_managed, name_of, path_of

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

FIELD_MANAGER = "volcano-global-install"
#: Never changed where somebody else has brought them, and never made again over what an operator has changed.
_NEVER_OVERWRITTEN = frozenset({"CustomResourceDefinition", "Queue"})
_SERVED_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.2


class InstallError(Exception):
    """It was not carried out; the message says what and what to do."""


async def apply_all(api: Api, manifests: Iterable[Manifest]) -> None:
    """Apply *manifests* in their order; what somebody else has brought stays as it is, and is told."""
    for manifest in manifests:
        if await _must_not_overwrite(api, manifest):
            log.warning("left as it is", object=name_of(manifest), reason="somebody else has brought it")
            continue
        body = msgspec.json.encode(manifest)
        await api.apply(path_of(manifest), body, field_manager=FIELD_MANAGER)
        log.info("applied", object=name_of(manifest))
        if manifest["kind"] == "CustomResourceDefinition":
            await _wait_until_served(api, manifest)


async def delete_all(api: Api, manifests: Sequence[Manifest]) -> None:
    """Remove what is ours of *manifests*, the last first; what is in use stays, and is told."""
    for manifest in reversed(manifests):
        found = await _find(api, path_of(manifest))
        if found is None or not is_managed(found):
            continue
        if in_use := await _in_use(api, manifest):
            log.warning("kept", object=name_of(manifest), reason=in_use)
            continue
        await delete(api, path_of(manifest), name_of(manifest))


async def prune(api: Api, wanted: Iterable[Manifest], *, namespace: str, kinds: Iterable[str]) -> None:
    """Remove what an earlier version, or another choice of values, has left: ours of *kinds*, but not *wanted*."""
    wanted_paths = {path_of(each) for each in wanted}
    for kind in kinds:
        place = MAPPINGS[kind]
        if not place.is_pruned:
            continue
        folder = place.collection(namespace)
        for found in await _list_managed(api, folder):
            path = f"{folder}/{found['metadata']['name']}"
            if path not in wanted_paths:
                await delete(api, path, f"{kind} {found['metadata']['name']}")


async def delete(api: Api, path: str, name: str) -> None:
    """Delete the object at *path*, which may be gone; *name* is what it is called in the log."""
    try:
        await api.delete(path)
    except NotFound:
        return
    log.info("removed", object=name)


async def _list_managed(api: Api, folder: str) -> list[Manifest]:
    try:
        answer = await api.get(folder, {"labelSelector": "=".join(MANAGED_BY)})
    except NotFound:  # a kind that this Karmada does not have
        return []
    items: list[Manifest] = msgspec.json.decode(answer)["items"]
    return items


async def _must_not_overwrite(api: Api, manifest: Manifest) -> bool:
    if manifest["kind"] not in _NEVER_OVERWRITTEN:
        return False
    found = await _find(api, path_of(manifest))
    return found is not None and (not is_managed(found) or manifest["kind"] == "Queue")


async def _find(api: Api, path: str) -> Manifest | None:
    try:
        found: Manifest = msgspec.json.decode(await api.get(path))
    except NotFound:
        return None
    return found


async def _in_use(api: Api, manifest: Manifest) -> str | None:
    """Return who still needs the object, or ``None``."""
    if manifest["kind"] == "CustomResourceDefinition":
        return await _has_any(api, _collection_of(manifest), f"there are still {manifest['spec']['names']['plural']}")
    if manifest["kind"] == "Queue":
        return await _has_any(api, "/apis/batch.volcano.sh/v1alpha1/jobs", "there are still Volcano Jobs")
    return None


async def _has_any(api: Api, path: str, sentence: str) -> str | None:
    try:
        page = await api.list_page(path, limit=1)
    except NotFound:
        return None
    return sentence if page.items else None


def _collection_of(definition: Manifest) -> str:
    spec: dict[str, Any] = definition["spec"]
    version = next(each["name"] for each in spec["versions"] if each["served"])
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


async def _wait_until_served(api: Api, definition: Manifest) -> None:
    """Wait until the kind is known: what comes next may be of it."""
    path = _collection_of(definition)
    if not await poll_until(lambda: _is_served(api, path), seconds=_SERVED_TIMEOUT_SECONDS, every=_POLL_SECONDS):
        message = (
            f"{name_of(definition)} is stored, but not served within {_SERVED_TIMEOUT_SECONDS:g} s; look at its status"
        )
        raise InstallError(message)


async def _is_served(api: Api, path: str) -> bool:
    try:
        await api.list_page(path, limit=1)
    except (NotFound, Conflict):
        return False
    except ApiError as error:
        # While a definition is being taken up, lists are told to come again.
        log.info("definition not served yet", reason=str(error))
        return False
    return True
