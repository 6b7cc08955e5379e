"""Prints the summary at the end of the demo."""

from math import inf
from typing import Final

from localup.demo import setup, table
from localup.demo.checks import DemoResult
from localup.demo.console import DemoConsole
from localup.demo.progress import JobProgress, JobStage
from localup.demo.view import View
from localup.processes import tail
from localup.stack import Stack

_TENANTS: Final = ("team-a", "team-b")
_URGENT: Final = "urgent"


def print_summary(console: DemoConsole, view: View, result: DemoResult, stack: Stack) -> None:
    """Print the final tables, the observed ratios, and the result with excerpts of the relevant logs."""
    jobs = [progress for progress in view.timeline.jobs.values() if not progress.spec.hyperjob]
    hyperjobs = view.hyperjobs.all.values()
    console.print_tables(
        table.peak_table(view.usage, setup.queues()), table.job_table(jobs), table.hyperjob_table(hyperjobs)
    )
    for text in (_weights_sentence(view), _priority_sentence(view), _reclaim_sentence(view)):
        if text:
            console.print(text)
    if result.problems:
        _print_failure(console, result, stack)
    else:
        _print_success(console, view, result)


def _weights_sentence(view: View) -> str:
    jobs = view.timeline.jobs.values()
    reclaimed_at = min((progress.times[JobStage.SUBMITTED] for progress in jobs if progress.spec.reclaims), default=inf)
    found = view.usage.contention(*_TENANTS, table.CPU, before=reclaimed_at)
    if found is None:
        return ""
    lasted, *held = found
    amounts = " and ".join(f"{name} {float(amount) / 1000:.1f}" for name, amount in zip(_TENANTS, held, strict=True))
    ratio = f", 1 : {float(held[1] / held[0]):.1f}" if held[0] else ""
    return f"weights 1 and 3: for {lasted:.1f} s both tenants had pending jobs; average CPUs: {amounts}{ratio}"


def _priority_sentence(view: View) -> str:
    jobs = view.timeline.jobs.values()
    waits = [progress.waited for progress in jobs if progress.spec.queue == _URGENT and progress.waited is not None]
    others = [progress.waited for progress in jobs if progress.spec.queue in _TENANTS and progress.waited is not None]
    if not waits or not others:
        return ""
    longest = [f"{max(item):.1f} s" for item in (waits, others)]
    return f"priority: jobs of queue urgent waited {longest[0]} at most, jobs of the tenants {longest[1]}"


def _reclaim_sentence(view: View) -> str:
    jobs = view.timeline.jobs.values()
    evicted = sum(progress.evictions for progress in jobs)
    served = sum(progress.spec.reclaims and progress.stage is JobStage.FINISHED for progress in jobs)
    return (
        f"reclaim: {evicted} jobs were evicted to admit {served} jobs of a queue within its fair share"
        if evicted
        else ""
    )


def _print_success(console: DemoConsole, view: View, result: DemoResult) -> None:
    console.print(
        f"\n{result.ran} jobs have run; {len(result.inadmissible)} stay pending as expected:",
        style="bold green",
    )
    for progress in result.inadmissible:
        console.print(f"  {_pending_text(progress)}")
    for hyperjob in result.hyperjobs:
        waited = f", none of them while it was pending as {hyperjob.reasons[0]}" if hyperjob.reasons else ""
        console.print(f"HyperJob {hyperjob.name}: {len(hyperjob.split)} parts were admitted in one plan{waited}")
    console.print(
        f"invariants: verified at each of {view.invariants.versions_observed} observed versions of the bindings. No "
        "queue exceeded its capability, no cluster its capacity; no gang started partially and nothing ran unadmitted"
    )


def _pending_text(progress: JobProgress) -> str:
    if progress.stage is not JobStage.PENDING or progress.pending_reason is None:
        return progress.spec.name
    return f"{progress.spec.name} {progress.pending_reason.reason}: {progress.pending_reason.message}"


def _print_failure(console: DemoConsole, result: DemoResult, stack: Stack) -> None:
    console.print(f"\nthe demo failed with {len(result.problems)} problems:", style="bold red")
    for problem in result.problems:
        console.print(f"  {problem.text}")
    for suspect in result.logs_to_check:
        console.print(f"last lines of the log of {suspect}:")
        console.print(tail(stack.log(suspect)))
