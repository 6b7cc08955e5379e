"""Generates a load like that of Alibaba's GPU cluster: tasks that share GPUs, in several service classes.

GPUs are requested in hundredths with Koordinator's resource name. The trace has no tenants;
the job counts of queues decrease as 1/rank.
"""

from collections.abc import Iterator
from types import MappingProxyType

from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import CPU, MEMORY, MILLI
from tests.traces.helios import ranked_queues
from tests.traces.load import Job, Load, LoadSize, Task, Tasks, clusters_for, resource_amounts
from tests.traces.measurements import Alibaba, RandomStream, load_measurements, milliseconds, quantile

HUNDREDTHS_OF_A_GPU = "koordinator.sh/gpu-core"
_WHOLE = 100
_MIB = 1 << 20
_NODE = {HUNDREDTHS_OF_A_GPU: 8 * _WHOLE * MILLI, CPU: 128 * MILLI, MEMORY: 768 * 1024 * _MIB}
"""The largest of the frequent nodes of the trace, so that every task fits."""
_CLASSES = MappingProxyType({"LS": 1000, "Guaranteed": 500, "Burstable": 100, "BE": 0})
"""Priorities of the classes: latency-sensitive tasks first, best-effort tasks last."""
_MEAN_GAP = 30
"""Mean seconds between tasks; the clusters are sized accordingly."""


def alibaba_load(size: LoadSize) -> Load:
    """Return a load of *size.jobs* tasks, each of which is a job with one pod."""
    queues = tuple(Queue(name) for name in ranked_queues(size))
    jobs = tuple(_jobs(size))
    classes = {_class(name): value for name, value in _CLASSES.items()}
    return Load(queues, clusters_for(jobs, _NODE, size), jobs, classes)


def _class(name: str) -> str:
    return {"LS": "latency-sensitive", "BE": "best-effort"}.get(name, name.lower())


def _jobs(size: LoadSize) -> Iterator[Job]:
    alibaba, probabilities = load_measurements().alibaba, load_measurements().probabilities
    queues = {str(name): part for name, part in ranked_queues(size).items()}
    random, now = RandomStream(size.seed, "alibaba"), 0
    for number in range(1, size.jobs + 1):
        queue, service = QueueName(random.choose(queues)), _class(random.choose(alibaba.classes))
        runtime = milliseconds(quantile(random.uniform(), probabilities, alibaba.durations))
        yield Job(queue, f"task-{number}", queue, _tasks(alibaba, random), now, runtime, service)
        now += random.gap(_MEAN_GAP)


def _tasks(alibaba: Alibaba, random: RandomStream) -> Tasks:
    gpus = int(random.choose(alibaba.gpus))
    percent = int(random.choose(alibaba.percent_of_one_gpu)) if gpus == 1 else gpus * _WHOLE
    # CPU and memory requests are correlated: both use the same quantile.
    size, probabilities = random.uniform(), load_measurements().probabilities
    cpu = round(quantile(size, probabilities, alibaba.cpu_milli))
    memory = max(round(quantile(size, probabilities, alibaba.memory_mib)), 1) * _MIB
    request = dict(resource_amounts(cpu=cpu, memory=memory)) | (
        {HUNDREDTHS_OF_A_GPU: percent * MILLI} if percent else {}
    )
    return (Task("main", 1, tuple(sorted(request.items()))),)
