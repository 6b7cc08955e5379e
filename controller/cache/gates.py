"""Which kinds wait for admission, and how their ends are told; as the operator configures it."""

from dataclasses import dataclass
from types import MappingProxyType

from controller.api.configuration import AdmissionConfiguration, Finished, WorkloadRule
from controller.api.keys import JOBS
from controller.cache.facts import VOLCANO_JOB, GroupKind, group_kind
from controller.engine.clusters import ApiKind

Path = tuple[str, ...]
"""Members of an object, from the outside in."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What tells that a workload is over (D8): a value at *path*, or a condition that is true."""

    path: Path = ()
    values: frozenset[str] = frozenset()
    conditions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Gate:
    """A kind that waits for admission, and where its templates say what."""

    api: ApiKind
    ending: Ending = Ending()
    queue: Path = ()
    priority_class: Path = ()
    pod_template: Path = ()


NEVER = Ending()

_ENDINGS = MappingProxyType(
    {
        VOLCANO_JOB: Ending(("state", "phase"), frozenset({"Completed", "Failed", "Terminated"})),
        GroupKind("Job.batch"): Ending(conditions=frozenset({"Complete", "Failed"})),
    }
)


class Gates:
    """All gated kinds, and the namespaces in which nothing is gated."""

    def __init__(self, configuration: AdmissionConfiguration) -> None:
        volcano_job = Gate(ApiKind(JOBS.api_version, JOBS.kind), _ENDINGS[VOLCANO_JOB])
        further = [_gate(rule) for rule in configuration.workloads]
        self._gates = {group_kind(gate.api): gate for gate in (volcano_job, *further)}
        self._exempt = configuration.exempt_namespaces

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gates) and (self._gates, self._exempt) == (other._gates, other._exempt)

    __hash__ = None  # type: ignore[assignment] # nobody looks one up

    def gate(self, kind: GroupKind) -> Gate | None:
        """Return the gate of a kind, ``None`` where it has none."""
        return self._gates.get(kind)

    @property
    def kinds(self) -> tuple[ApiKind, ...]:
        """Return all gated kinds."""
        return tuple(gate.api for gate in self._gates.values())

    def ending(self, kind: GroupKind) -> Ending:
        """Return how the end of a kind is told."""
        gate = self._gates.get(kind)
        return gate.ending if gate else NEVER

    def is_exempt(self, namespace: str) -> bool:
        """Say whether nothing is gated in *namespace*."""
        return namespace in self._exempt


def _gate(rule: WorkloadRule) -> Gate:
    api = ApiKind(rule.api_version, rule.kind)
    return Gate(
        api=api,
        ending=_ending(rule.finished) if rule.finished else _ENDINGS.get(group_kind(api), NEVER),
        queue=_path(rule.queue),
        priority_class=_path(rule.priority_class),
        pod_template=_path(rule.pod_template),
    )


def _ending(finished: Finished) -> Ending:
    return Ending(_path(finished.path), frozenset(finished.values), frozenset(finished.conditions))


def _path(text: str | None) -> Path:
    return tuple(text.split(".")) if text else ()
