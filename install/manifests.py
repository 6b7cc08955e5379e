"""The objects to install, as the chart has rendered them into a folder; reads them and writes nothing."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

from install.rest_mapping import MANAGED_BY, MAPPINGS, WEBHOOK_CONFIGURATIONS, Manifest

# The one in C: definitions are long.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ORDER = {kind: place for place, kind in enumerate(MAPPINGS)}


class ManifestError(Exception):
    """A file holds something that is not installed by us; the message names it."""


def read_folder(folder: Path) -> list[Manifest]:
    """Return the objects of all YAML files in *folder*, marked as ours, in the order in which they are applied."""
    found = [_with_label(each, file) for file in sorted(folder.glob("*.yaml")) for each in _documents(file)]
    if not found:
        raise ManifestError(f"{folder} holds no manifests; mount the chart's objects there")
    return sorted(found, key=lambda each: _ORDER[each["kind"]])


def webhook_configurations(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return the webhook configurations among *manifests*."""
    return [each for each in manifests if each["kind"] in WEBHOOK_CONFIGURATIONS]


def non_webhook_objects(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Return all but the webhook configurations."""
    return [each for each in manifests if each["kind"] not in WEBHOOK_CONFIGURATIONS]


def _documents(file: Path) -> Iterator[Manifest]:
    with file.open() as text:
        for document in yaml.load_all(text, Loader=_LOADER):
            if document is not None:
                yield document


def _with_label(manifest: Manifest, file: Path) -> Manifest:
    if manifest.get("kind") not in MAPPINGS:
        raise ManifestError(f"{file.name}: {manifest.get('kind')!r} is no kind that is installed from here")
    metadata = manifest["metadata"]
    labels = {**(metadata.get("labels") or {}), MANAGED_BY[0]: MANAGED_BY[1]}
    return {**manifest, "metadata": {**metadata, "labels": labels}}
