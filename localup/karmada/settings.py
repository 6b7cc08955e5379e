"""Settings of the stand-in: what it propagates, and times of Karmada and of member clusters in seconds."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from controller.api.keys import Resource
from controller.simulator.trace import parse_duration
from localup.karmada.objects import TEMPLATES


def seconds_in(text: str) -> float:
    """Return a duration such as ``500ms`` or ``1h30m`` in seconds; raise `ValueError` if it is none."""
    return parse_duration(text) / 1000


def _known(template: str) -> str:
    if template not in TEMPLATES:
        raise ValueError(f"it is none of {', '.join(TEMPLATES)}")
    return template


Seconds = Annotated[float, BeforeValidator(lambda value: seconds_in(value) if isinstance(value, str) else value)]


class StandInSettings(BaseModel):
    """Settings of one run; by default like Karmada's, only with shorter times of members."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kubeconfig: Path | None = Field(None, description="kubeconfig of the API server")
    run_time: Seconds = Field(10, description="run time of jobs without a run time annotation")
    status_period: Seconds = Field(
        1, description="minimum time between two writes of a Cluster's status; 10s in a real Karmada"
    )
    graceful_eviction_timeout: Seconds = Field(600, description="grace period of evictions that name none")
    taint_eviction: bool = Field(default=False, description="evict by NoExecute taints, as Karmada does if enabled")
    unreported_jobs: bool = Field(
        default=False, description="leave the status of Volcano Jobs in the members, as Karmada 1.15 and older do"
    )
    template: tuple[Annotated[str, AfterValidator(_known)], ...] = Field(
        ("volcano-job", "deployment"), description=f"kind to propagate, may be repeated: {', '.join(TEMPLATES)}"
    )

    @property
    def templates(self) -> list[Resource]:
        """The kinds that are propagated."""
        return [TEMPLATES[name] for name in self.template]
