"""The affinity of workloads that Karmada places itself: it excludes the clusters without their data.

As upstream's controller does it, the excluded clusters are added to those of the policy in the binding, and recorded in
an annotation, so that they can be removed again. Karmada overwrites the placement when it applies the policy again.
"""

from collections.abc import Collection, Iterator
from typing import Any

from controller.api.keys import DATA_EXCLUDED_ANNOTATION, DATA_PLACEMENT_ANNOTATION

Manifest = dict[str, Any]
Operations = list[dict[str, Any]]

_PLACEMENT = "/spec/placement"


def affinity_patch(binding: Manifest, lacking: Collection[str] | None, *, follows: bool) -> Operations | None:
    """Return the JSON Patch after which *binding* excludes the *lacking* clusters, ``None`` if nothing changes.

    ``None`` for *lacking*: the workload has no claims any more. A binding that is placed keeps the clusters that were
    excluded before, unless it *follows* its data.
    """
    metadata, spec = binding["metadata"], binding.get("spec") or {}
    placement = spec.get("placement")
    if not isinstance(placement, dict):
        return None
    annotations = metadata.get("annotations") or {}
    recorded = _recorded(annotations)
    if recorded is None and lacking is None:
        return None
    wanted = set(lacking or ())
    if recorded is not None and lacking is not None and spec.get("clusters") and not follows:
        wanted = recorded
    affinities, ours = list(_affinities(placement)), recorded or set()
    if not all(ours.issubset(affinity.get("exclude") or ()) for _, affinity in affinities):
        ours = set()  # Karmada has applied the policy again, which excludes by itself what is excluded now
    # What the policy excludes by itself is not recorded, so that it stays when the claims are deleted.
    by_policy = [set(affinity.get("exclude") or ()) - ours for _, affinity in affinities]
    wanted = wanted - set.intersection(*by_policy) if by_policy else wanted
    changes = [
        operation for path, affinity in affinities for operation in _change(path, affinity, remove=ours, wanted=wanted)
    ]
    if lacking is not None and not affinities and wanted:
        changes.append(_operation("add", f"{_PLACEMENT}/clusterAffinity", {"exclude": sorted(wanted)}))
    changes += _annotate(metadata, None if lacking is None else wanted)
    if not changes:
        return None
    return [_operation("test", "/metadata/resourceVersion", metadata["resourceVersion"]), *changes]


def _recorded(annotations: dict[str, str]) -> set[str] | None:
    """Return the clusters that were excluded for their lack of data, ``None`` if the binding was never changed."""
    if DATA_PLACEMENT_ANNOTATION not in annotations:
        return None
    return {name for name in annotations.get(DATA_EXCLUDED_ANNOTATION, "").split(",") if name}


def _affinities(placement: Manifest) -> Iterator[tuple[str, Manifest]]:
    """Yield each affinity of *placement* with its path."""
    own = placement.get("clusterAffinity")
    if isinstance(own, dict):
        yield f"{_PLACEMENT}/clusterAffinity", own
    for index, term in enumerate(placement.get("clusterAffinities") or ()):
        path = f"{_PLACEMENT}/clusterAffinities/{index}"
        yield path, term
        for place, overflow in enumerate(term.get("overflowAffinities") or ()):
            yield f"{path}/overflowAffinities/{place}", overflow


def _change(path: str, affinity: Manifest, *, remove: set[str], wanted: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the change of the excluded clusters of one affinity; those of the policy stay, in their order."""
    before = list(affinity.get("exclude") or ())
    own = [name for name in before if name not in remove or name in wanted]
    after = [*own, *sorted(wanted.difference(own))]
    if before == after:
        return
    if after:
        yield _operation("replace" if "exclude" in affinity else "add", f"{path}/exclude", after)
    else:
        yield {"op": "remove", "path": f"{path}/exclude"}


def _annotate(metadata: Manifest, excluded: set[str] | None) -> Iterator[dict[str, Any]]:
    """Yield the changes of the annotations; ``None`` removes them."""
    annotations = metadata.get("annotations")
    values = {}
    if excluded is not None:
        values = {DATA_PLACEMENT_ANNOTATION: "true", DATA_EXCLUDED_ANNOTATION: ",".join(sorted(excluded))}
    if annotations is None:
        if values:
            yield _operation("add", "/metadata/annotations", values)
        return
    for key in (DATA_PLACEMENT_ANNOTATION, DATA_EXCLUDED_ANNOTATION):
        path = f"/metadata/annotations/{key.replace('/', '~1')}"
        if key in values and annotations.get(key) != values[key]:
            yield _operation("add", path, values[key])
        elif key not in values and key in annotations:
            yield {"op": "remove", "path": path}


def _operation(verb: str, path: str, value: Any) -> dict[str, Any]:
    return {"op": verb, "path": path, "value": value}
