"""Reads the objects to install from a folder with the rendered files of the chart."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from install.rest_mapping import MANAGED_BY, MAPPINGS, WEBHOOK_CONFIGURATIONS, Manifest

# The C loader is faster, and definitions are long.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ORDER = {kind: index for index, kind in enumerate(MAPPINGS)}


class ManifestError(Exception):
    """A file holds an object that cannot be installed; the message names it."""


def read_folder(folder: Path) -> list[Manifest]:
    """Return the labelled objects of all YAML files in *folder*, in the order in which they are applied."""
    manifests = [_with_label(manifest, file) for file in sorted(folder.glob("*.yaml")) for manifest in _documents(file)]
    if not manifests:
        raise ManifestError(f"{folder} contains no manifests: mount the objects of the chart there")
    return sorted(manifests, key=lambda manifest: _ORDER[manifest["kind"]])


def webhook_configurations(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the webhook configurations among *manifests*."""
    return [manifest for manifest in manifests if manifest["kind"] in WEBHOOK_CONFIGURATIONS]


def non_webhook_objects(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return all *manifests* except the webhook configurations."""
    return [manifest for manifest in manifests if manifest["kind"] not in WEBHOOK_CONFIGURATIONS]


def _documents(file: Path) -> Iterator[Manifest]:
    with file.open() as text:
        for document in yaml.load_all(text, Loader=_LOADER):
            if document is not None:
                yield document


def _with_label(manifest: Manifest, file: Path) -> Manifest:
    if manifest.get("kind") not in MAPPINGS:
        raise ManifestError(f"{file.name}: {manifest.get('kind')!r} is not a kind that can be installed")
    metadata = manifest["metadata"]
    labels = {**(metadata.get("labels") or {}), MANAGED_BY[0]: MANAGED_BY[1]}
    return {**manifest, "metadata": {**metadata, "labels": labels}}
