"""The HyperJobs among files, and the Jobs and policies that the controller would make of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.api.hyperjobs import HyperJob, HyperJobError, read_hyperjob
from controller.api.keys import HYPERJOB_GROUPS, HYPERJOB_KIND
from controller.cli.manifests import Manifest
from controller.hyperjob.preview import Preview, parts_of, preview
from controller.hyperjob.split import Prospects


@dataclass(frozen=True, slots=True)
class HyperJobSplit:
    """One HyperJob of the files and what it would become."""

    manifest: Manifest
    hyperjob: HyperJob
    preview: Preview

    @property
    def objects(self) -> list[Manifest]:
        """Return its parts as manifests that stand where it stands; none once it is over or suspended."""
        made = parts_of(self.hyperjob, self.preview)
        return [self._manifest(body) for child in made for body in (child.policy, child.job)]

    def _manifest(self, body: dict[str, object]) -> Manifest:
        """Return *body* as if it had been made when the HyperJob was: its age in the queue is the HyperJob's."""
        said = self.manifest.body["metadata"]
        metadata = {**body["metadata"]}  # type: ignore[dict-item] # a manifest of ours has one
        if "creationTimestamp" in said:
            metadata["creationTimestamp"] = said["creationTimestamp"]
        about = (str(body["apiVersion"]), str(body["kind"]), self.hyperjob.metadata.namespace, metadata["name"])
        return Manifest(self.manifest.place, *about, {**body, "metadata": metadata})


def is_hyperjob(manifest: Manifest) -> bool:
    """Say whether *manifest* is a HyperJob in either spelling."""
    return manifest.kind == HYPERJOB_KIND and manifest.group in HYPERJOB_GROUPS


def split_hyperjobs(manifests: Iterable[Manifest], prospects: Prospects) -> list[HyperJobSplit]:
    """Return what becomes of each HyperJob, all of them judged by the same room; those unreadable are left out."""
    found = []
    for manifest in manifests:
        hyperjob = read_manifest(manifest)
        if isinstance(hyperjob, HyperJob):
            found.append(HyperJobSplit(manifest, hyperjob, preview(hyperjob, prospects)))
    return found


def read_manifest(manifest: Manifest) -> HyperJob | str:
    """Return the HyperJob, or what is wrong with it."""
    metadata = manifest.body["metadata"]
    uid = metadata.get("uid") or f"{manifest.kind}/{manifest.namespace}/{manifest.name}"
    try:
        return read_hyperjob({**manifest.body, "metadata": {**metadata, "uid": uid}})
    except HyperJobError as error:
        return str(error)


def missing_objects(made: Sequence[HyperJobSplit], present: Iterable[Manifest]) -> list[Manifest]:
    """Return the objects of *made* that are not among those *present*."""
    known = {(each.api_version, each.kind, each.namespace, each.name) for each in present}
    return [
        each
        for split in made
        for each in split.objects
        if (each.api_version, each.kind, each.namespace, each.name) not in known
    ]
