"""What the pods of a part are told, so that parts find each other: environment, and the plugins that make it work.

A pod's rank among all pods of the HyperJob is ``HYPERJOB_RANK_OFFSET`` +
``VC_TASK_INDEX`` of Volcano's env plugin. A plugin that looks for a leading task
(pytorch, mpi) stays with the part that has it; the other parts get what its
pods need of Volcano besides, and find the leader at ``HYPERJOB_MASTER``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.api.hyperjobstatus import PartStatus
from controller.api.volcanojobs import LEADER_TASKS, Container, JobSpec, Task

#: What every part needs: its index in the environment, and names for its pods.
_REQUIRED_PLUGINS = ("env", "svc")
#: What a leader's plugin brings along, for parts that do without the plugin.
_REPLACEMENT_PLUGINS: Mapping[str, tuple[str, ...]] = {"mpi": ("ssh",), "pytorch": ()}


def plugins(template: JobSpec, shared: Mapping[str, list[str]], present: Iterable[str]) -> dict[str, list[str]]:
    """Return the plugins of a part that has the tasks *present*; *shared* are those of the whole HyperJob."""
    wanted = {**shared, **template.plugins}
    lacks_leader = bool(template.leader_tasks) and template.leader_tasks.isdisjoint(present)
    for plugin in LEADER_TASKS if lacks_leader else ():
        if wanted.pop(plugin, None) is not None:
            wanted |= {each: wanted.get(each, []) for each in _REPLACEMENT_PLUGINS[plugin]}
    return wanted | {plugin: wanted.get(plugin, []) for plugin in _REQUIRED_PLUGINS}


def variables(hyperjob: str, part: PartStatus, *, before: int, master: str) -> dict[str, str]:
    """Return the environment of the pods of one task; *before* counts the pods of the tasks before it in the part."""
    variables = {
        "HYPERJOB_NAME": hyperjob,
        "HYPERJOB_PART": str(part.index),
        "HYPERJOB_PARTS": str(part.world_parts),
        "HYPERJOB_RANK_OFFSET": str(part.rank_offset + before),
        "HYPERJOB_WORLD_SIZE": str(part.world_size),
    }
    return variables | ({"HYPERJOB_MASTER": master} if master else {})


def with_environment(task: Task, variables: Mapping[str, str]) -> Task:
    """Return *task* with *told* in the environment of all its containers; what the user has set prevails."""
    spec = task.template.spec
    changes = {"containers": tuple(_add_variables(each, variables) for each in spec.containers)}
    if spec.init_containers:
        changes["init_containers"] = tuple(_add_variables(each, variables) for each in spec.init_containers)
    template = task.template.model_copy(update={"spec": spec.model_copy(update=changes)})
    return task.model_copy(update={"template": template})


def _add_variables(container: Container, variables: Mapping[str, str]) -> Container:
    known = {variable.get("name") for variable in container.env}
    # First, so that the user's own variables may refer to them.
    ours: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in variables.items() if name not in known
    ]
    return container.model_copy(update={"env": (*ours, *container.env)})
