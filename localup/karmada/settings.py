"""What can be set about the stand-in."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from localup.karmada.kinds import DEPLOYMENT, VOLCANO_JOB, Kind
from localup.karmada.quirks import Quirks

_DEFAULT_QUIRKS: Final = Quirks()


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of one run; a behaviour of Karmada that can be chosen is a field here."""

    kubeconfig: Path
    templates: Sequence[Kind] = (VOLCANO_JOB, DEPLOYMENT)
    """The kinds of templates that are propagated."""
    run_time_seconds: float = 10
    """How long a job runs that does not say so itself."""
    status_period_seconds: float = 1
    """The least time between two writes of one Cluster's status; a real Karmada takes 10 s (facts, §2)."""
    multi_template: bool = False
    """The gate MultiplePodTemplatesScheduling: components on the bindings of Volcano Jobs (facts, no. 6)."""
    scheduler_name: str = "default-scheduler"
    """Whose bindings are scheduled: the others are left to somebody else."""
    quirks: Quirks = _DEFAULT_QUIRKS
    """What of Karmada's surprising behaviour is reproduced, and with what times."""
    writes_in_flight: int = 16
    """How many writes are under way at once."""
