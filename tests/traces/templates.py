"""Generates loads in which jobs repeat templates, for tests of forecasts.

Each namespace has a few templates with a size, a median run time, a spread and a failure rate. Jobs come in bursts of
one template, more often in the busy hours of the day. Run times of a burst are alike (they share an effect that no
earlier run shows), the median of a template drifts from day to day, and failed jobs end early.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import exp, log
from random import Random

from controller.engine.state.hierarchy import Queue, QueueName
from tests.traces.load import Job, Load, LoadSize, clusters_for
from tests.traces.measurements import SECOND, load_measurements, quantile
from tests.traces.philly import NODE, gpu_tasks

HOUR = 3600 * SECOND

DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class TemplateShape:
    """What is typical of one shape of load."""

    sizes: Mapping[int, float]
    """Frequency of templates by GPUs."""
    median: Callable[[float], float]
    """Quantile function of the median run time of templates, in seconds."""
    spread: tuple[float, float]
    """Least and greatest standard deviation of the logarithm of the run time in one burst."""
    burst_effect: float
    """Standard deviation of the logarithm of what the jobs of one burst share."""
    drift: float
    """Standard deviation of the change of the logarithm of a template's median in one day."""
    failures: tuple[float, float]
    """Least and greatest share of failed jobs of a template."""
    burst: float
    """Mean number of jobs in a burst."""
    templates: int
    """Templates of a namespace."""
    busy_hours: tuple[float, ...]
    """Relative rate of bursts in each hour of the day."""


@dataclass(frozen=True, slots=True)
class TemplateJob:
    """One job, with what its template says of it."""

    job: Job
    template: str
    failed: bool
    estimate: int
    """The user's estimate in seconds; 0 without one."""


def _measured(median_quantiles: tuple[float, ...]) -> Callable[[float], float]:
    probabilities = load_measurements().probabilities
    return lambda part: min(max(quantile(part, probabilities, median_quantiles), 60.0), 6 * 3600.0)


def _philly() -> TemplateShape:
    philly = load_measurements().philly
    largest = max(philly.tenants, key=lambda tenant: tenant.gpu_time_share)
    return TemplateShape(
        sizes={int(name): part for name, part in largest.gpus.items() if int(name) <= 32},
        median=_measured(largest.durations),
        spread=(0.2, 0.8),
        burst_effect=0.4,
        drift=0.3,
        failures=(0.05, 0.35),
        burst=4.0,
        templates=5,
        busy_hours=philly.hour_of_day,
    )


def _helios() -> TemplateShape:
    """Return a shape of few large jobs with long run times, in a flat day."""
    return TemplateShape(
        sizes={1: 0.35, 2: 0.1, 4: 0.15, 8: 0.25, 16: 0.1, 32: 0.05},
        median=lambda part: min(exp(Random(part).gauss(6.9, 1.2)), 6 * 3600.0),
        spread=(0.3, 1.0),
        burst_effect=0.3,
        drift=0.2,
        failures=(0.1, 0.4),
        burst=2.5,
        templates=8,
        busy_hours=(0.8,) * 8 + (1.2,) * 8 + (1.0,) * 8,
    )


def _alibaba() -> TemplateShape:
    """Return a shape of many small jobs in large bursts, with a strong day pattern."""
    return TemplateShape(
        sizes={1: 0.6, 2: 0.2, 4: 0.1, 8: 0.1},
        median=_measured(load_measurements().alibaba.durations),
        spread=(0.1, 0.5),
        burst_effect=0.5,
        drift=0.4,
        failures=(0.02, 0.2),
        burst=8.0,
        templates=4,
        busy_hours=(0.3,) * 8 + (2.0,) * 10 + (0.7,) * 6,
    )


TEMPLATE_SHAPES: Mapping[str, Callable[[], TemplateShape]] = {
    "philly": _philly,
    "helios": _helios,
    "alibaba": _alibaba,
}


@dataclass(slots=True)
class _Template:
    name: str
    gpus: int
    log_median: float
    spread: float
    failures: float
    drift: tuple[float, ...]


class TemplateLoad:
    """A load of jobs that repeat templates, over *days*."""

    def __init__(self, shape: str, seed: int, *, jobs: int = 400, days: int = 2, load: int = 125) -> None:
        self._shape = TEMPLATE_SHAPES[shape]()
        self._random = Random(f"{shape}/{seed}")
        self._days = days
        queues = [QueueName(f"team-{letter}") for letter in "abcd"]
        namespaces = [(queue, f"{queue}-{number}") for queue in queues for number in (1, 2)]
        self._templates = {
            namespace: [self._template(f"{namespace}/t{number}") for number in range(self._shape.templates)]
            for _, namespace in namespaces
        }
        weights = [self._random.paretovariate(1.2) for _ in namespaces]
        self.jobs: dict[tuple[str, str], TemplateJob] = {}
        """The jobs by namespace and name."""
        while len(self.jobs) < jobs:
            queue, namespace = self._random.choices(namespaces, weights)[0]
            self._add_burst(queue, namespace, jobs)
        ordered = sorted((entry.job for entry in self.jobs.values()), key=lambda job: (job.at, job.name))
        size = LoadSize(jobs=jobs, queues=len(queues), clusters=3, load=load, seed=seed)
        shares = {queue: self._random.randint(1, 4) for queue in queues}
        self.load = Load(
            tuple(Queue(queue, weight=weight) for queue, weight in shares.items()),
            clusters_for(ordered, NODE, size),
            tuple(ordered),
        )

    def _template(self, name: str) -> _Template:
        random, shape = self._random, self._shape
        drift = [0.0]
        for _ in range(self._days):
            drift.append(drift[-1] + random.gauss(0, shape.drift))
        return _Template(
            name,
            random.choices(list(shape.sizes), list(shape.sizes.values()))[0],
            log(shape.median(random.random())),
            random.uniform(*shape.spread),
            random.uniform(*shape.failures),
            tuple(drift),
        )

    def _add_burst(self, queue: QueueName, namespace: str, most: int) -> None:
        random, shape = self._random, self._shape
        templates = self._templates[namespace]
        template = random.choices(templates, [1 / rank for rank in range(1, len(templates) + 1)])[0]
        hour = random.choices(range(24), shape.busy_hours)[0]
        at = (random.randrange(self._days) * 24 + hour) * HOUR + random.randrange(HOUR)
        effect = random.gauss(0, shape.burst_effect)
        has_estimate = namespace.endswith("1")
        for _ in range(min(1 + int(random.expovariate(1 / max(shape.burst - 1, 0.1))), most - len(self.jobs))):
            at += round(random.expovariate(1 / 20) * SECOND)
            day, part = divmod(at / DAY, 1)
            before, after = template.drift[min(int(day), self._days - 1)], template.drift[min(int(day) + 1, self._days)]
            location = template.log_median + before + (after - before) * part + effect
            seconds = exp(location + random.gauss(0, template.spread))
            failed = random.random() < template.failures
            runtime = seconds * random.uniform(0.02, 0.5) if failed else seconds
            runtime = min(max(runtime, 5.0), 12 * 3600.0)
            estimate = round(exp(location + random.gauss(0.7, 0.3))) if has_estimate else 0
            name = f"job-{len(self.jobs)}"
            job = Job(namespace, name, queue, gpu_tasks(template.gpus), at, round(runtime * SECOND))
            self.jobs[namespace, name] = TemplateJob(
                job, template.name, failed, max(estimate, 1) if has_estimate else 0
            )
