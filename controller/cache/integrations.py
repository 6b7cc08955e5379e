"""Managed kinds, and how each kind reports that it finished, from the configuration."""

from dataclasses import dataclass
from types import MappingProxyType

from controller.api.configuration import Finished, IntegrationRule, VolcanoGlobalConfiguration
from controller.api.keys import JOBS
from controller.cache.objects import BATCH_JOB, POD, VOLCANO_JOB, GroupKind, group_kind
from controller.engine.state.clusters import ApiKind

FieldPath = tuple[str, ...]
"""Path of a field of an object, from the outermost name inwards."""


@dataclass(frozen=True, slots=True)
class FinishedRule:
    """How a status says that a workload finished (D8): a value at *path*, or a true condition."""

    path: FieldPath = ()
    values: frozenset[str] = frozenset()
    conditions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Integration:
    """A kind that needs admission, and the paths of its queue, priority class and pod template."""

    api: ApiKind
    finished_rule: FinishedRule = FinishedRule()
    queue: FieldPath = ()
    priority_class: FieldPath = ()
    pod_template: FieldPath = ()


NEVER_FINISHED = FinishedRule()

_POD_PRIORITY_CLASS = ("spec", "priorityClassName")

_DEFAULT_FINISHED_RULES = MappingProxyType(
    {
        VOLCANO_JOB: FinishedRule(("state", "phase"), frozenset({"Completed", "Failed", "Terminated"})),
        BATCH_JOB: FinishedRule(conditions=frozenset({"Complete", "Failed"})),
        POD: FinishedRule(("phase",), frozenset({"Succeeded", "Failed"})),
    }
)


class Integrations:
    """All managed kinds, and the namespaces in which nothing is managed."""

    def __init__(self, configuration: VolcanoGlobalConfiguration) -> None:
        volcano_job = Integration(ApiKind(JOBS.api_version, JOBS.kind), _DEFAULT_FINISHED_RULES[VOLCANO_JOB])
        further = [_integration(rule) for rule in configuration.integrations]
        self._integrations = {group_kind(integration.api): integration for integration in (volcano_job, *further)}
        self._exempt_namespaces = configuration.exempt_namespaces

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Integrations) and (self._integrations, self._exempt_namespaces) == (
            other._integrations,
            other._exempt_namespaces,
        )

    __hash__ = None  # type: ignore[assignment] # never used as a key

    def get(self, kind: GroupKind) -> Integration | None:
        """Return the integration of a kind, ``None`` if the kind is not managed."""
        return self._integrations.get(kind)

    @property
    def kinds(self) -> tuple[ApiKind, ...]:
        """All managed kinds."""
        return tuple(integration.api for integration in self._integrations.values())

    def finished_rule(self, kind: GroupKind) -> FinishedRule:
        """Return how the status of a kind says that it finished."""
        integration = self._integrations.get(kind)
        return integration.finished_rule if integration else NEVER_FINISHED

    def is_exempt(self, namespace: str) -> bool:
        """Whether *namespace* is exempt from admission."""
        return namespace in self._exempt_namespaces


def _integration(rule: IntegrationRule) -> Integration:
    api = ApiKind(rule.api_version, rule.kind)
    return Integration(
        api=api,
        finished_rule=_finished_rule(rule.finished)
        if rule.finished
        else _DEFAULT_FINISHED_RULES.get(group_kind(api), NEVER_FINISHED),
        queue=_split_path(rule.queue),
        # A Pod is its own template.
        priority_class=_POD_PRIORITY_CLASS if group_kind(api) == POD else _split_path(rule.priority_class),
        pod_template=_split_path(rule.pod_template),
    )


def _finished_rule(finished: Finished) -> FinishedRule:
    return FinishedRule(_split_path(finished.path), frozenset(finished.values), frozenset(finished.conditions))


def _split_path(text: str | None) -> FieldPath:
    return tuple(text.split(".")) if text else ()
