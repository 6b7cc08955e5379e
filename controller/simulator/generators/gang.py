"""Generates training jobs of two parameter servers and four workers, on capacity for nine pods.

Two jobs never fit at the same time. With admission pod by pod, partially placed jobs block each
other; with gang admission they finish one after another. The case is from the talk that
introduced gang scheduling in Volcano, where two of five such jobs finished.
"""

from controller.engine.state.hierarchy import Queue, QueueName
from controller.engine.state.resources import CPU, MILLI
from controller.simulator.generators.load import GeneratedJob, GeneratedTask, Load, empty_cluster, resource_amounts

_CAPACITY = 9
_RUNTIME = 60_000
_POD = resource_amounts(cpu=MILLI)
_TASKS = GeneratedTask("ps", 2, _POD), GeneratedTask("worker", 4, _POD)


def gang_load(jobs: int = 5) -> Load:
    """Return a load of *jobs* such jobs, submitted at the same time, with one CPU for each pod."""
    queue = QueueName("training")
    return Load(
        queues=(Queue(queue),),
        clusters=(empty_cluster("member1", {CPU: _CAPACITY * MILLI}),),
        jobs=tuple(
            GeneratedJob("training", f"job-{number}", queue, _TASKS, 0, _RUNTIME) for number in range(1, jobs + 1)
        ),
    )
