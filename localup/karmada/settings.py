"""Settings of the stand-in."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localup.karmada.kinds import DEPLOYMENT, VOLCANO_JOB, Kind
from localup.karmada.quirks import Quirks

_DEFAULT_QUIRKS: Final = Quirks()


@dataclass(frozen=True, slots=True)
class Settings:
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
