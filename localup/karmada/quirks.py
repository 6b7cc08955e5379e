"""What Karmada does that surprises, each as a switch, so that a test can have it or be spared.

The numbers and `§` point to the facts about Karmada that were found in its code
and in real runs. Without any switch the stand-in does what a Karmada with its
own defaults does; only the times of members are shorter.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

from localup.karmada.durations import seconds_in

_BOOLEANS: Final = {"true": True, "on": True, "false": False, "off": False}


@dataclass(frozen=True, slots=True)
class Quirks:
    """One field for each behaviour; times are seconds."""

    leak: bool = True
    """Suspension is an event filter and nothing else: what is in the scheduler's queue already is still placed
    (no. 1 and 2)."""
    backoff_first: float = 1
    """An attempt that ends in `SchedulerError` is repeated after this time, which doubles with every failure (§1)."""
    backoff_most: float = 10
    """The longest pause between two such attempts; they never end (§1)."""
    unschedulable_retry: float = 300
    """What had not enough replicas is tried again after five minutes, and no change of capacity is noticed (§1).
    With 0 it backs off like any other failure: before v1.19, where nobody switched `PriorityBasedScheduling` on,
    everything does, from 5 ms up to 1000 s."""
    no_cluster_fit_retry: float = 0
    """What fitted no cluster is tried again after this time; 0 as in Karmada: not at all, until the binding or a
    cluster changes (§1)."""
    stale_status: bool = True
    """After an eviction the template goes on saying what it said last, for instance `Running` (§1), until it is
    changed for another reason: then its status is cleared."""
    graceful_eviction: bool = True
    """Eviction tasks keep a work until their grace is over or the job is healthy elsewhere; `Directly` takes it at
    once and leaves the task (§1)."""
    graceful_eviction_timeout: float = 600
    """The grace of an eviction task that names none (§1)."""
    taints: bool = True
    """A cluster that is not ready is tainted against new work, and what runs there is left alone (§2)."""
    taint_eviction: bool = False
    """A taint with the effect NoExecute moves what runs in a cluster, without asking anybody (§1); Karmada has it
    off by itself."""
    application_failover: bool = True
    """`failover.application`, together with `propagateDeps`, moves what stays unhealthy out of its cluster, a failed
    Volcano Job as well: again and again."""
    affinity_terms: bool = True
    """Ordered affinities are tried one after the other, from the one observed last (§2); else only the first."""
    copies: bool = True
    """Without a spread constraint a job is copied whole to every candidate (no. 7); else it goes to one."""
    release: bool = True
    """A policy that goes leaves its bindings unclaimed: nobody places them, though they are resumed (§1)."""
    preserve: bool = True
    """`preserveResourcesOnDeletion` leaves the job in its cluster when its work goes: an eviction does not stop it
    (§1)."""
    dependents: bool = True
    """`propagateDeps` gives what a template needs a binding of its own, with `requiredBy` and without a placement
    (§1)."""
    namespaces: bool = True
    """Every namespace is sent to every cluster, as a work that belongs to no binding."""
    events: bool = True
    """Bindings and templates get core/v1 events: read as events.k8s.io/v1 they have `eventTime: null` and `series:
    null`."""
    summary_late: float = 0
    """A Cluster's summary tells what happened so much later (§2); a real Karmada looks every 10 s."""
    pods_late: float = 0
    """A job that fits has no pods for so long, and no summary shows it meanwhile (§2)."""

    @classmethod
    def parse(cls, words: Iterable[str]) -> Self:
        """Read ``name=value`` words, as the command line has them; a time may be written ``500ms`` or ``10m``.

        Raises:
            ValueError: There is no such behaviour, or the value is none of its.
        """
        known = {field.name: field.type for field in fields(cls)}
        changes: dict[str, Any] = {}
        for word in words:
            name, _, value = word.partition("=")
            name = name.replace("-", "_")
            if name not in known:
                raise ValueError(f"no behaviour {name!r}; there are {', '.join(known)}")
            if known[name] is bool and value not in _BOOLEANS:
                raise ValueError(f"{name}: {value!r} is neither on nor off")
            changes[name] = _BOOLEANS[value] if known[name] is bool else seconds_in(value)
        return replace(cls(), **changes)
