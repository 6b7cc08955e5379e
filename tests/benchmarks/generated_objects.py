"""Generates the API objects of a large state from a template and an index, so that a server does not store them.

The state is that of `states`: queues on several levels, clusters that the admitted workloads fill, and pending ones.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import msgspec

from controller.api.keys import ADMISSION_ANNOTATION
from controller.cache.translate.units import format_resources
from controller.engine.state.resources import MILLI, PODS, Resources
from tests.benchmarks import seed, states
from tests.traces.load import Load, Manifest, manifests

NAMESPACES = 50
VERSION = 1_000
"""resourceVersion of every generated object."""
PRIORITIES = (0, 100, 200)
_TIMES = 600


@dataclass(frozen=True, slots=True)
class Collection:
    """Generated objects of one kind, by index."""

    suffix: str
    """After the name of the job in the names of the objects."""
    count: int
    make: Callable[[int], bytes]
    """Returns the JSON of one object."""

    def key(self, index: int) -> tuple[str, str]:
        """Return namespace and name of the object with *index*."""
        return f"team-{index % NAMESPACES}", f"train-{index}{self.suffix}"

    def index(self, namespace: str, name: str) -> int | None:
        """Return the index of an object, ``None`` if there is none with that name."""
        digits = name.removeprefix("train-").removesuffix(self.suffix)
        if not digits.isdecimal() or int(digits) >= self.count or self.key(int(digits)) != (namespace, name):
            return None
        return int(digits)


class GeneratedState:
    """The jobs, bindings, queues and clusters of a state."""

    def __init__(self, size: states.Size) -> None:
        self.size = size
        self.shapes = [
            {name: amount for name, amount in shape.requests.items() if amount}
            for shape in states.shapes(size.further_resources)
        ]
        count = size.admitted + size.waiting
        self.jobs = Collection("", count, self._job)
        self.bindings = Collection("-job", count, self._binding)
        self._leaves = [name.encode() for name in states.leaves(size)]
        # Shapes and priorities alternate with different periods, as in `states.workloads`.
        self._jobs = [
            _job_template(self.shapes[index % len(self.shapes)], PRIORITIES[index % len(PRIORITIES)])
            for index in range(len(self.shapes) * len(PRIORITIES))
        ]
        self._pending, self._admitted = _binding_template(), [_binding_template(shape) for shape in self.shapes]
        self._times = [f"2026-01-{1 + hour // 24:02}T{hour % 24:02}:00:00Z".encode() for hour in range(_TIMES)]

    def manifests(self) -> Iterator[Manifest]:
        """Yield the priority classes and the queues, parents first."""
        classes = {f"p{value}": value for value in PRIORITIES}
        return manifests(Load(tuple(states.queues(self.size)), (), (), classes))

    def capacities(self) -> list[dict[str, int]]:
        """Return the capacity of each cluster, which the admitted workloads fill."""
        admitted = list(islice(states.workloads(self.size), self.size.admitted))
        return [dict(cluster.allocatable or {}) for cluster in states.full_clusters(self.size, admitted)]

    def _fields(self, index: int) -> dict[bytes, bytes]:
        """Return the values of the placeholders of a job and its binding."""
        return {
            b"index": b"%d" % index,
            b"team": b"%d" % (index % NAMESPACES),
            b"job": b"%08x-0000-4000-8000-000000000001" % index,
            b"uid": b"%08x-0000-4000-8000-000000000002" % index,
            b"time": self._times[index * len(self._times) // self.jobs.count],
            # As in `states.workloads`.
            b"queue": self._leaves[(index * 7 + index // len(self._leaves)) % len(self._leaves)],
            b"cluster": b"m%d" % (index % self.size.clusters),
        }

    def _job(self, index: int) -> bytes:
        return self._jobs[index % len(self._jobs)] % self._fields(index)

    def _binding(self, index: int) -> bytes:
        template = self._admitted[index % len(self._admitted)] if index < self.size.admitted else self._pending
        return template % self._fields(index)


def _metadata(name: str, uid: str, **more: Any) -> Manifest:
    times = {"creationTimestamp": "%(time)b", "generation": 1, "resourceVersion": str(VERSION)}
    return {"name": name, "namespace": "team-%(team)b", "uid": uid, **times, **more}


def _job_template(requests: Resources, priority: int) -> bytes:
    """Return the template of a job, all pods of which form a gang."""
    pods = requests[PODS] // MILLI
    of_one = {name: amount // pods for name, amount in requests.items() if name != PODS}
    manifest = seed.job("train-%(index)b", "%(queue)b")
    manifest["metadata"] = _metadata("train-%(index)b", "%(job)b")
    manifest["spec"] |= {"minAvailable": pods, "priorityClassName": f"p{priority}"}
    (task,) = manifest["spec"]["tasks"]
    task["replicas"] = pods
    task["template"]["spec"]["containers"][0]["resources"] = {"requests": format_resources(of_one)}
    return msgspec.json.encode(manifest)


def _binding_template(charge: Resources | None = None) -> bytes:
    """Return the template of a binding; with *charge* it is admitted and runs."""
    manifest = seed.binding("team-%(team)b", "train-%(index)b", "%(job)b")
    labels = {key: manifest["metadata"][key] for key in ("labels", "annotations")}
    manifest["metadata"] = _metadata("train-%(index)b-job", "%(uid)b", **labels)
    manifest["spec"]["placement"]["clusterAffinity"] = {}
    if charge:
        record = {
            "uid": "%(uid)b",
            "queue": "%(queue)b",
            "charge": format_resources(charge),
            "clusters": ["%(cluster)b"],
            "admittedAt": "%(time)b",
            "evictions": 0,
            "attempts": 0,
        }
        manifest["metadata"]["annotations"] |= {ADMISSION_ANNOTATION: msgspec.json.encode(record).decode()}
        manifest["spec"] |= {"suspension": {"scheduling": False}, "clusters": [{"name": "%(cluster)b"}]}
        running = {"clusterName": "%(cluster)b", "applied": True, "status": {"state": {"phase": "Running"}}}
        manifest["status"] = {"aggregatedStatus": [running]}
    return msgspec.json.encode(manifest)
