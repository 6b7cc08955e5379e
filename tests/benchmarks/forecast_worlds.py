"""Simulates worlds of jobs that repeat templates, and compares forecast starts with the starts in the simulation."""

from collections.abc import Iterator
from dataclasses import dataclass

from controller.engine.checkpoint import Checkpoint, restore, take_checkpoint
from controller.engine.engine import Engine
from controller.engine.state.workloads import Workload, WorkloadUid
from controller.forecast.futures import ForecastOptions, Future, StartForecast, StartForecaster
from controller.forecast.run_times import JobProfile, Outcome, Run, RunTimes
from controller.forecast.sampling import RepeatedArrivals, RunTimeSampler
from controller.simulator.jobs import JobAction
from controller.simulator.simulation import Simulation, SimulationResult
from controller.simulator.trace import SimulationSettings
from tests.traces.load import to_trace
from tests.traces.templates import HOUR, TemplateJob, TemplateLoad

#: When starts are forecast, in hours: after the first half of the load, from which run times and arrivals are learned.
#: The load lasts 48 hours, so it does not end within the horizon of the forecasts.
MOMENT = 24

#: The engine's time at the start: not zero, which stands for an unknown time.
START = 1_000_000_000_000

_NEVER = 10**15


@dataclass(frozen=True, slots=True)
class Case:
    """One pending workload: forecasts and the actual time to its start, in milliseconds."""

    shape: str
    seed: int
    depth: float
    """Its position divided by the length of its queue."""
    actual: int
    p10: int
    p50: int
    p90: int
    by_rate: int
    """Its position divided by the rate of starts in its queue during the last day."""
    by_limits: int
    """The forecast with time limits that are three times the run times, as Slurm makes it."""

    @property
    def is_inside(self) -> bool:
        """Return whether the actual start is in the interval from p10 to p90."""
        return self.p10 <= self.actual <= self.p90


def profile_of(job: TemplateJob) -> JobProfile:
    """Return what the learner knows of a job."""
    gpus = sum(task.replicas * dict(task.request).get("nvidia.com/gpu", 0) for task in job.job.tasks)
    return JobProfile(job.job.queue, job.job.namespace, job.template, f"nvidia.com/gpu={gpus // 1000}", job.estimate)


class World:
    """One simulated world, with the engine's checkpoint at the moment of the forecasts."""

    def __init__(self, shape: str, seed: int, *, jobs: int = 250) -> None:
        self.shape, self.seed = shape, seed
        self.load = TemplateLoad(shape, seed, jobs=jobs)
        self.checkpoint: tuple[int, Checkpoint] | None = None
        simulation = Simulation(
            to_trace(self.load.load, start=START),
            SimulationSettings(status_period=0),
            observe=lambda metrics, waiting, now: self._observe(simulation.engine, now),
        )
        self.result: SimulationResult = simulation.run()
        self.admitted = {
            entry.workload.uid: (entry.workload.queue, entry.at)
            for entry in self.result.log
            if entry.action is JobAction.ADMIT
        }

    def _observe(self, engine: Engine, now: int) -> None:
        """Take a checkpoint after the first cycle at or after the moment."""
        if self.checkpoint is None and now >= MOMENT * HOUR:
            self.checkpoint = now, take_checkpoint(engine)

    def learned(self, now: int) -> RunTimes:
        """Return the run times learned from the ends until *now*."""
        run_times = RunTimes()
        for entry in self.result.log:
            if entry.at > now:
                break
            if entry.action is JobAction.FINISH:
                job = self._job(entry.workload)
                outcome = Outcome.FAILED if job.failed else Outcome.COMPLETED
                run_times.record(profile_of(job), Run(max(job.job.runtime // 1000, 1), outcome, job.estimate))
        return run_times

    def cases(self, futures: int) -> Iterator[Case]:
        """Yield the forecasts of all pending workloads at the moment."""
        if self.checkpoint is None:
            return
        now, saved = self.checkpoint
        engine = restore(saved.policy, saved.queues, saved.workloads, saved.history, START + now)
        engine.plan(START + now)
        targets = [
            workload.uid for queue in engine.queues_with_pending() for workload in engine.pending_workloads(queue)
        ]
        if targets:
            yield from self._cases(engine, now, targets, futures)

    def _cases(self, engine: Engine, now: int, targets: list[WorkloadUid], futures: int) -> Iterator[Case]:
        forecaster = StartForecaster(engine, START + now)
        run_times = self.learned(now)
        sampler = RunTimeSampler(run_times, self._profile_of, seed=self.seed)
        arrivals = RepeatedArrivals(list(engine.workloads.values()), START + now, seed=self.seed)
        *_, learned = forecaster.forecasts(targets, sampler.futures(futures, arrivals))
        *_, limits = forecaster.forecasts(targets, [Future(lambda workload, ran: 3 * self._runtime(workload))])
        day = 24 * HOUR
        for queue in engine.queues_with_pending():
            rate = sum(at_queue == queue and now - day < at <= now for at_queue, at in self.admitted.values())
            pending = engine.pending_workloads(queue)
            for position, workload in enumerate(pending, start=1):
                yield self._case(
                    workload, now, (position, len(pending), rate), learned[workload.uid], limits[workload.uid]
                )

    def _case(
        self, workload: Workload, now: int, place: tuple[int, int, int], learned: StartForecast, limits: StartForecast
    ) -> Case:
        position, length, rate = place
        horizon = ForecastOptions().horizon

        def wait(at: int | None, otherwise: int) -> int:
            return otherwise if at is None else at - START - now

        return Case(
            self.shape,
            self.seed,
            position / length,
            actual=self.admitted[workload.uid][1] - now,
            p10=wait(learned.p10, horizon),
            p50=wait(learned.p50, horizon),
            p90=wait(learned.p90, _NEVER),
            by_rate=position * 24 * HOUR // max(rate, 1),
            by_limits=wait(limits.p50, horizon),
        )

    def _job(self, workload: Workload) -> TemplateJob:
        return self.load.jobs[workload.namespace, workload.name]

    def _profile_of(self, workload: Workload) -> JobProfile:
        return profile_of(self._job(workload))

    def _runtime(self, workload: Workload) -> int:
        return self._job(workload).job.runtime
