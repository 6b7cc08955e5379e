"""What the demo has shown, or what went wrong and whose log says more. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from localup.demo.story import Stage, Way

_STUCK: Final[dict[Stage, tuple[str, str]]] = {
    Stage.SUBMITTED: ("has no binding", "karmada"),
    Stage.PAUSED: ("is paused, and the controller says nothing of it", "controller"),
    Stage.ADMITTED: ("was admitted to {cluster} and does not start", "karmada"),
    Stage.RUNNING: ("runs on {cluster} and does not end", "karmada"),
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that should not be so, and the process whose log may say why."""

    text: str
    suspect: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome: no trouble is success."""

    troubles: Sequence[Trouble]
    ran: int
    forever: Sequence[Way]

    @property
    def suspects(self) -> list[str]:
        """The processes whose logs are worth a look, the most suspected first."""
        counted = [trouble.suspect for trouble in self.troubles]
        return sorted(set(counted), key=lambda name: (-counted.count(name), name))


def judge(ways: Iterable[Way], broken: Iterable[str]) -> Verdict:
    """Return what to say of the ways of all jobs and of what was seen broken."""
    known = list(ways)
    seen = [Trouble(text, "webhook" if "stored unpaused" in text else "controller") for text in dict.fromkeys(broken)]
    stuck = [_stuck(way) for way in known if not way.is_settled]
    return Verdict(
        troubles=[*seen, *stuck],
        ran=sum(way.stage is Stage.FINISHED for way in known),
        forever=[way for way in known if way.is_settled and way.role.forever is not None],
    )


def _stuck(way: Way) -> Trouble:
    """Return where a job is stuck that should have gone on."""
    name = way.role.name
    if way.stage is Stage.FINISHED:
        return Trouble(f"{name} has run, although it should wait as {way.role.forever}", "controller")
    if way.stage is Stage.WAITING and way.complaint:
        expected = f" instead of {way.role.forever}" if way.role.forever else ""
        return Trouble(f"{name} waits as {way.complaint.reason}{expected}: {way.complaint.message}", "controller")
    text, suspect = _STUCK[way.stage]
    return Trouble(f"{name} {text.format(cluster=way.cluster or 'no cluster')}", suspect)
