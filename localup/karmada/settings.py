"""Settings of the stand-in: what it propagates, and times of Karmada and of member clusters in seconds."""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.api.keys import JOBS, Resource
from controller.simulator.trace import parse_duration
from localup.karmada.objects import DEPLOYMENTS


def seconds_in(text: str) -> float:
    """Return a duration such as ``500ms`` or ``1h30m`` in seconds; raise `ValueError` if it is none."""
    return parse_duration(text) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInSettings:
    """Settings of one run; by default like Karmada's, only with shorter times of members.

    Attributes:
        templates: Kinds of templates that are propagated.
        run_time: Run time of jobs without a run time annotation.
        status_period: Minimum time between two status writes of a Cluster; 10 s in a real Karmada (facts, §2).
        summary_late: Delay of Cluster summaries after a change of a member's workloads (§2).
        pods_late: Delay until an admitted job has pods; meanwhile no summary includes it (§2).
        graceful_eviction_timeout: Grace period of eviction tasks that specify none (§1).
        taint_eviction: Whether NoExecute taints move running workloads (§1); off by default in Karmada.
    """

    templates: Sequence[Resource] = (JOBS, DEPLOYMENTS)
    run_time: float = 10
    status_period: float = 1
    summary_late: float = 0
    pods_late: float = 0
    graceful_eviction_timeout: float = 600
    taint_eviction: bool = False
