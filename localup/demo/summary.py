"""What is said when the play is over."""

from math import inf
from typing import Final

from localup.demo import setup, table
from localup.demo.console import DemoConsole
from localup.demo.result import DemoResult
from localup.demo.timeline import JobProgress, JobStage
from localup.demo.view import View
from localup.processes import tail
from localup.stack import Stack

_TENANTS: Final = ("team-a", "team-b")
_URGENT: Final = "urgent"


def print_summary(narrator: DemoConsole, view: View, verdict: DemoResult, stack: Stack) -> None:
    """Print the final tables, what was to be seen, and the verdict with the logs that it points to."""
    jobs = [way for way in view.story.ways.values() if not way.role.family]
    families = view.families.all.values()
    narrator.show(table.peak_table(view.usage, setup.queues()), table.job_table(jobs), table.hyperjob_table(families))
    for text in (_weights_sentence(view), _priority_sentence(view), _reclaim_sentence(view)):
        if text:
            narrator.say(text)
    if verdict.troubles:
        _print_failure(narrator, verdict, stack)
    else:
        _print_success(narrator, view, verdict)


def _weights_sentence(view: View) -> str:
    ways = view.story.ways.values()
    reclaimed_at = min((way.times[JobStage.SUBMITTED] for way in ways if way.role.reclaims), default=inf)
    found = view.usage.contended(*_TENANTS, table.CPU, before=reclaimed_at)
    if found is None:
        return ""
    lasted, *held = found
    amounts = " and ".join(
        f"{name} held {float(amount) / 1000:.1f}" for name, amount in zip(_TENANTS, held, strict=True)
    )
    ratio = f", 1 : {float(held[1] / held[0]):.1f}" if held[0] else ""
    return f"weights 1 and 3: for {lasted:.1f} s both tenants had jobs waiting; of the CPUs {amounts} on average{ratio}"


def _priority_sentence(view: View) -> str:
    ways = view.story.ways.values()
    waits = [way.waited for way in ways if way.role.queue == _URGENT and way.waited is not None]
    others = [way.waited for way in ways if way.role.queue in _TENANTS and way.waited is not None]
    if not waits or not others:
        return ""
    longest = [f"{max(each):.1f} s" for each in (waits, others)]
    return f"priority: the jobs of queue urgent waited {longest[0]} at most, those of the tenants {longest[1]}"


def _reclaim_sentence(view: View) -> str:
    ways = view.story.ways.values()
    gone = sum(way.evictions for way in ways)
    served = sum(way.role.reclaims and way.stage is JobStage.FINISHED for way in ways)
    return f"reclaim: {gone} jobs had to go for {served} of a queue that was entitled to their room" if gone else ""


def _print_success(narrator: DemoConsole, view: View, verdict: DemoResult) -> None:
    narrator.say(
        f"\n{verdict.ran} jobs have run; {len(verdict.forever)} wait for ever, as they should:", style="bold green"
    )
    for way in verdict.forever:
        narrator.say(f"  {_pending_text(way)}")
    for family in verdict.hyperjobs:
        waited = f", and none of them while it waited as {family.reasons[0]}" if family.reasons else ""
        narrator.say(f"HyperJob {family.name}: {len(family.split)} parts were admitted in one plan{waited}")
    narrator.say(
        f"seen in the demo's own watch, at each of {view.books.seen} versions of the bindings: no queue above its "
        "capability, no cluster above what it has, no gang started in part, nothing started that was not admitted"
    )


def _pending_text(way: JobProgress) -> str:
    if way.stage is not JobStage.WAITING or way.complaint is None:
        return way.role.name
    return f"{way.role.name} {way.complaint.reason}: {way.complaint.message}"


def _print_failure(narrator: DemoConsole, verdict: DemoResult, stack: Stack) -> None:
    narrator.say(f"\nthe demo has failed, with {len(verdict.troubles)} troubles:", style="bold red")
    for trouble in verdict.troubles:
        narrator.say(f"  {trouble.text}")
    for suspect in verdict.suspects:
        narrator.say(f"the last lines of the log of {suspect}:")
        narrator.say(tail(stack.log(suspect)))
