"""Mounts volumes from Secrets and ConfigMaps like the kubelet, switched atomically by one symbolic link."""

import base64
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localup.api import Api, ApiError
from tests.chart.sandbox import USER


class NotYetError(Exception):
    """The source of a volume, or a key of it, does not exist yet: the pod waits."""


def write(api: Api, namespace: str, volume: Mapping[str, Any], folder: Path) -> None:
    """Write the current contents of the volume to *folder*."""
    if "persistentVolumeClaim" in volume:
        # A folder of the host, which is shared by all pods with the claim: HOST/POD/volumes/NAME.
        claim = folder.parents[2] / "claims" / volume["persistentVolumeClaim"]["claimName"]
        claim.mkdir(parents=True, exist_ok=True)
        os.chown(claim, USER, USER)
        if not folder.is_symlink():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.symlink_to(claim)
        return
    folder.mkdir(parents=True, exist_ok=True)
    if "emptyDir" in volume:
        os.chown(folder, USER, USER)
        return
    files = _files(api, namespace, volume)
    current = folder / "..data"
    if current.exists() and {path.name: path.read_bytes() for path in current.iterdir()} == files:
        return
    version = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    version.chmod(0o755)
    for name, contents in files.items():
        file = version / name
        file.write_bytes(contents)
        os.chown(file, 0, USER)  # as with fsGroup
        file.chmod(0o440)
    _point(current, version.name)
    for name in files:
        if not (folder / name).is_symlink():
            _point(folder / name, f"..data/{name}")


def _files(api: Api, namespace: str, volume: Mapping[str, Any]) -> dict[str, bytes]:
    source = volume.get("secret") or volume["configMap"]
    kind, name = ("secrets", source["secretName"]) if "secret" in volume else ("configmaps", source["name"])
    try:
        data = api.get(f"/api/v1/namespaces/{namespace}/{kind}/{name}").get("data") or {}
    except ApiError as error:
        raise NotYetError(f"{kind} {name}: {error}") from error
    contents = {key: base64.b64decode(value) if kind == "secrets" else value.encode() for key, value in data.items()}
    if "items" not in source:
        return contents
    try:
        return {item["path"]: contents[item["key"]] for item in source["items"]}
    except KeyError as error:
        raise NotYetError(f"{kind} {name} references non-existent key {error}") from error


def _point(link: Path, target: str) -> None:
    aside = link.with_name(f"{link.name}.new")
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.rename(link)
