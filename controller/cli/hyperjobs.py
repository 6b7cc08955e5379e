"""Splits the HyperJobs of files into the Jobs and policies that the controller would create."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.api.hyperjobs import HyperJob, HyperJobError, read_hyperjob
from controller.api.keys import HYPERJOB_GROUPS, HYPERJOB_KIND
from controller.cli.input.manifests import Manifest
from controller.controllers.hyperjob.preview import Preview, preview, preview_objects
from controller.controllers.hyperjob.split import CapacitySnapshot


@dataclass(frozen=True, slots=True)
class HyperJobSplit:
    """A HyperJob of the files and its parts."""

    manifest: Manifest
    hyperjob: HyperJob
    preview: Preview

    @property
    def objects(self) -> list[Manifest]:
        """Return the objects of its parts with its location; none if it is finished or suspended."""
        parts = preview_objects(self.hyperjob, self.preview)
        return [self._manifest(body) for child in parts for body in (child.policy, child.job)]

    def _manifest(self, body: dict[str, object]) -> Manifest:
        """Return *body* with the creation time of the HyperJob, so that its age in the queue is the same."""
        own = self.manifest.body["metadata"]
        metadata = {**body["metadata"]}  # type: ignore[dict-item] # every created manifest has metadata
        if "creationTimestamp" in own:
            metadata["creationTimestamp"] = own["creationTimestamp"]
        identity = (str(body["apiVersion"]), str(body["kind"]), self.hyperjob.metadata.namespace, metadata["name"])
        return Manifest(self.manifest.location, *identity, {**body, "metadata": metadata})


def is_hyperjob(manifest: Manifest) -> bool:
    """Return whether *manifest* is a HyperJob of either API group."""
    return manifest.kind == HYPERJOB_KIND and manifest.group in HYPERJOB_GROUPS


def split_hyperjobs(manifests: Iterable[Manifest], capacity: CapacitySnapshot) -> list[HyperJobSplit]:
    """Return the split of each HyperJob, all with the same free capacity; unreadable ones are skipped."""
    splits = []
    for manifest in manifests:
        hyperjob = read_manifest(manifest)
        if isinstance(hyperjob, HyperJob):
            splits.append(HyperJobSplit(manifest, hyperjob, preview(hyperjob, capacity)))
    return splits


def read_manifest(manifest: Manifest) -> HyperJob | str:
    """Return the HyperJob, or why it is invalid."""
    metadata = manifest.body["metadata"]
    uid = metadata.get("uid") or f"{manifest.kind}/{manifest.namespace}/{manifest.name}"
    try:
        return read_hyperjob({**manifest.body, "metadata": {**metadata, "uid": uid}})
    except HyperJobError as error:
        return str(error)


def missing_objects(splits: Sequence[HyperJobSplit], present: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects of *splits* that are not in *present*."""
    known = {(manifest.api_version, manifest.kind, manifest.namespace, manifest.name) for manifest in present}
    return [
        manifest
        for split in splits
        for manifest in split.objects
        if (manifest.api_version, manifest.kind, manifest.namespace, manifest.name) not in known
    ]
