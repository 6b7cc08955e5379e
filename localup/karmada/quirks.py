"""Switches for surprising behaviour of Karmada, so that tests can enable or disable each.

Numbers and `§` refer to facts found in Karmada's code and in real runs. By default the stand-in behaves like a
default Karmada, only with shorter times of members.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, Self

from localup.karmada.objects import DEPLOYMENT, VOLCANO_JOB, Kind

_SECONDS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")

_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def seconds_in(text: str) -> float:
    """Return a duration in seconds.

    Raises:
        ValueError: The text is not a duration.
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text!r} is not a duration; write it like 500ms, 90s or 1h30m")
    return sum(float(count) * _SECONDS[unit] for count, unit in _PART.findall(text))


_BOOLEANS: Final = {"true": True, "on": True, "false": False, "off": False}


@dataclass(frozen=True, slots=True)
class Quirks:
    """One field per quirk; times are in seconds."""

    leak: bool = True
    """Suspension is only an event filter: bindings that are already in the scheduler's queue are scheduled (no. 1 and
    2).
    """
    backoff_first: float = 1
    """Initial backoff after a `SchedulerError`; it doubles with every failure (§1)."""
    backoff_most: float = 10
    """Maximum backoff; retries never end (§1)."""
    unschedulable_retry: float = 300
    """Bindings with too few available replicas are retried after five minutes, without regard to capacity changes
    (§1). With 0 they back off like other failures, as before v1.19 without `PriorityBasedScheduling`: from 5 ms to
    1000 s.
    """
    no_cluster_fit_retry: float = 0
    """Bindings without a feasible cluster are retried after this time; with 0, as in Karmada, only when the binding
    or a cluster changes (§1).
    """
    stale_status: bool = True
    """After an eviction the template keeps its last status, for example `Running` (§1), until it changes for another
    reason, which clears the status.
    """
    graceful_eviction: bool = True
    """Eviction tasks keep a work until their grace period ends or the job is healthy elsewhere; `Directly` removes it
    immediately and leaves the task (§1).
    """
    graceful_eviction_timeout: float = 600
    """Grace period of eviction tasks that specify none (§1)."""
    taints: bool = True
    """A cluster that is not ready gets a NoSchedule taint; workloads on it keep running (§2)."""
    taint_eviction: bool = False
    """NoExecute taints move running workloads out of a cluster (§1); off by default in Karmada."""
    application_failover: bool = True
    """`failover.application` with `propagateDeps` moves unhealthy workloads, including failed Volcano Jobs, to
    another cluster repeatedly.
    """
    affinity_terms: bool = True
    """Ordered affinities are tried in order from the last observed one (§2); otherwise only the first is used."""
    copies: bool = True
    """Without a spread constraint a job is copied to every feasible cluster (no. 7); otherwise it goes to one."""
    release: bool = True
    """Deleting a policy leaves its bindings unclaimed: they are not scheduled even when resumed (§1)."""
    preserve: bool = True
    """`preserveResourcesOnDeletion` keeps the job in its cluster when its work is deleted, so an eviction does not
    stop it (§1).
    """
    dependents: bool = True
    """`propagateDeps` creates bindings for dependencies of templates, with `requiredBy` and no placement (§1)."""
    namespaces: bool = True
    """Every namespace is propagated to every cluster, with works that belong to no binding."""
    events: bool = True
    """Bindings and templates get core/v1 events; read as events.k8s.io/v1 they have `eventTime: null` and `series:
    null`.
    """
    summary_late: float = 0
    """Delay of Cluster summaries (§2); a real Karmada updates them every 10 s."""
    pods_late: float = 0
    """Delay until an admitted job has pods; meanwhile no summary includes it (§2)."""

    @classmethod
    def parse(cls, words: Iterable[str]) -> Self:
        """Parse ``name=value`` options of the command line; times may be written ``500ms`` or ``10m``.

        Raises:
            ValueError: The name is unknown or the value invalid.
        """
        known = {field.name: field.type for field in fields(cls)}
        changes: dict[str, Any] = {}
        for word in words:
            name, _, value = word.partition("=")
            name = name.replace("-", "_")
            if name not in known:
                raise ValueError(f"unknown quirk {name!r}; known: {', '.join(known)}")
            if known[name] is bool and value not in _BOOLEANS:
                raise ValueError(f"{name}: {value!r} is neither on nor off")
            changes[name] = _BOOLEANS[value] if known[name] is bool else seconds_in(value)
        return replace(cls(), **changes)


_DEFAULT_QUIRKS: Final = Quirks()


@dataclass(frozen=True, slots=True)
class StandInSettings:
    """Options of a run."""

    kubeconfig: Path
    templates: Sequence[Kind] = (VOLCANO_JOB, DEPLOYMENT)
    """Kinds of templates that are propagated."""
    run_time_seconds: float = 10
    """Run time of jobs without a run time annotation."""
    status_period_seconds: float = 1
    """Minimum time between two status writes of a Cluster; 10 s in a real Karmada (facts, §2)."""
    multi_template: bool = False
    """Feature gate MultiplePodTemplatesScheduling: components in bindings of Volcano Jobs (facts, no. 6)."""
    scheduler_name: str = "default-scheduler"
    """Only bindings with this scheduler name are scheduled."""
    quirks: Quirks = _DEFAULT_QUIRKS
    """Reproduced quirks of Karmada and their times."""
    writes_in_flight: int = 16
    """Maximum number of concurrent writes."""
