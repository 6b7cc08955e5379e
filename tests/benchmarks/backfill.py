"""Compares admission with EASY backfill (O9), with head reservations alone, and without both, on simulated loads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean

from controller.engine.plan import Plan
from controller.engine.policy import Backfill, HeadReservationPolicy, Policy
from controller.engine.state.workloads import WorkloadUid
from controller.simulator.metrics import IdleCause
from controller.simulator.simulation import Simulation, SimulationResult
from controller.simulator.trace import SimulationSettings, Trace
from tests.benchmarks.figures import Figure
from tests.simulator.traces import START, cluster, job, queue
from tests.traces.helios import helios_load
from tests.traces.load import LoadSize, to_trace

HOUR = 3_600_000
DAY = 24 * HOUR
NEVER = HeadReservationPolicy(after_ms=1000 * DAY)
VARIANTS: Mapping[str, Policy] = {
    "without": Policy(head_reservation=NEVER),
    "reservations": Policy(backfill=Backfill(enabled=False)),
    "backfill": Policy(),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one variant of the policy does with one load."""

    mean_wait: float
    """In seconds, of all jobs; a job that never started counts until the end."""
    p99_wait: float
    finished: int
    utilisation: float
    idle_reserved: float
    """Fraction of the capacity that was idle for reservations."""
    starts: Mapping[WorkloadUid, int]
    """When each job started first, in milliseconds."""
    reserved: tuple[WorkloadUid, ...]
    """The jobs with a reservation, the first one first."""


def helios_world(*, jobs: int = 1000, seed: int = 1) -> Trace:
    """Return a load of Helios-shaped jobs."""
    return to_trace(helios_load(LoadSize(seed=seed, jobs=jobs)), start=START)


def whole_cluster_world(*, days: int = 1, seed: int = 1) -> Trace:
    """Return one job of three days, one that needs the whole cluster, and a stream of small ones."""
    random = Random(seed)
    small = (
        job(f"small-{number}", at=60 * number, runs=round(random.uniform(60, 640)))
        for number in range(1, days * 24 * 60)
    )
    return Trace(
        queues=(queue(),),
        clusters=(cluster(cpu=8),),
        submissions=(job("long", runs=3 * 86_400), job("whole", 8, at=60, runs=3600), *small),
        start=START,
    )


def run(trace: Trace, policy: Policy, *, until: int | None = None, resource: str) -> Outcome:
    """Simulate *trace* with *policy*."""
    reserved: dict[WorkloadUid, None] = {}
    simulation = Simulation(replace(trace, policy=policy), SimulationSettings(until=until))
    engine = simulation.engine
    plan_of = engine.plan

    def plan(now: int, *, most: int | None = None) -> Plan:
        made = plan_of(now, most=most)
        reserved.update((note.workload.uid, None) for note in made.record_updates if note.reservation is not None)
        return made

    engine.plan = plan  # type: ignore[method-assign]
    return _outcome(simulation.run(), tuple(reserved), resource)


def _outcome(result: SimulationResult, reserved: tuple[WorkloadUid, ...], resource: str) -> Outcome:
    waits = sorted(simulated.waited_until(result.ended_at) / 1000 for simulated in result.jobs)
    starts: dict[WorkloadUid, int] = {}
    for entry in result.log:
        if entry.action == "Admit":
            starts.setdefault(entry.workload.uid, entry.at)
    capacity = sum((member.allocatable or {}).get(resource, 0) for member in result.trace.clusters) * result.ended_at
    used = sum(simulated.served_until(result.ended_at).get(resource, 0) for simulated in result.jobs)
    idle = result.idle.areas.get(IdleCause.RESERVED, {}).get(resource, 0)
    return Outcome(
        mean_wait=fmean(waits),
        p99_wait=waits[int(0.99 * (len(waits) - 1))],
        finished=result.jobs.finished,
        utilisation=used / capacity,
        idle_reserved=idle / capacity,
        starts=starts,
        reserved=reserved,
    )


def compare(trace: Trace, *, until: int | None = None, resource: str) -> dict[str, Outcome]:
    """Simulate *trace* with each variant."""
    return {name: run(trace, policy, until=until, resource=resource) for name, policy in VARIANTS.items()}


def start_ratio(outcomes: Mapping[str, Outcome]) -> float | None:
    """Return the start of the job that is reserved first, relative to its start without reservations."""
    for uid in (*outcomes["backfill"].reserved, *outcomes["reservations"].reserved):
        starts = [outcomes[name].starts.get(uid) for name in ("backfill", "without")]
        if starts[0] is not None and starts[1]:
            return starts[0] / starts[1]
        if starts[0] is not None:
            return 0.0
    return None


def measure(*, quick: bool) -> list[Figure]:
    """Simulate both worlds; return the figures."""
    helios = compare(helios_world(jobs=150 if quick else 1000), resource="nvidia.com/gpu")
    whole = compare(whole_cluster_world(), until=(6 if quick else 24) * HOUR, resource="cpu")
    return [*_figures("helios", helios), *_figures("whole_cluster", whole)]


def _figures(world: str, outcomes: Mapping[str, Outcome]) -> Iterable[Figure]:
    plain, alone, easy = (outcomes[name] for name in ("without", "reservations", "backfill"))
    yield Figure(f"backfill_{world}_mean_wait_seconds", easy.mean_wait, "s", "<= 1.1 of without", plain.mean_wait)
    yield Figure(f"reservations_{world}_mean_wait_seconds", alone.mean_wait, "s", "", plain.mean_wait)
    yield Figure(f"backfill_{world}_p99_wait_seconds", easy.p99_wait, "s", "", plain.p99_wait)
    yield Figure(f"backfill_{world}_finished", easy.finished, "jobs", "", plain.finished)
    yield Figure(f"backfill_{world}_utilisation", easy.utilisation, "of capacity", "", plain.utilisation)
    yield Figure(f"reservations_{world}_utilisation", alone.utilisation, "of capacity", "", plain.utilisation)
    yield Figure(f"reservations_{world}_idle_reserved", alone.idle_reserved, "of capacity", "")
    ratio = start_ratio(outcomes)
    if ratio is not None:
        yield Figure(f"backfill_{world}_reserved_start_ratio", ratio, "of without", "<= 1")
