"""The gang case: distributed training jobs of two parameter servers and four workers, on room for nine pods.

Two of them never fit at once. Admitted pod by pod they take each other's
room and none may ever start; admitted whole they finish one after another.
The case is from the talk that introduced gang scheduling in Volcano, where
two of five such jobs finished.
"""

from controller.engine.queues import Queue, QueueName
from controller.engine.resources import CPU, MILLI
from controller.simulator.generators.load import Job, Load, Task, empty_cluster, resource_amounts

_ROOM = 9
_RUNTIME = 60_000
_POD = resource_amounts(cpu=MILLI)
_TASKS = Task("ps", 2, _POD), Task("worker", 4, _POD)


def gang_load(jobs: int = 5) -> Load:
    """Return so many such jobs, all submitted at once, one CPU a pod."""
    queue = QueueName("training")
    return Load(
        queues=(Queue(queue),),
        clusters=(empty_cluster("member1", {CPU: _ROOM * MILLI}),),
        jobs=tuple(Job("training", f"job-{number}", queue, _TASKS, 0, _RUNTIME) for number in range(1, jobs + 1)),
    )
