"""Sets the environment and plugins by which the pods of all parts find each other.

A pod's rank among all pods of the HyperJob is ``HYPERJOB_RANK_OFFSET`` + ``VC_TASK_INDEX`` of Volcano's env plugin. A
plugin that needs a leader task (pytorch, mpi) is set only on the part with the leader; the other parts get the plugins
that it implies, and the address of the leader in ``HYPERJOB_MASTER``.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from controller.api.hyperjobs import PartStatus
from controller.api.volcanojobs import LEADER_TASKS, Container, JobSpec, Task

#: Plugins that every part needs: task indices in the environment, and host names of pods.
_REQUIRED_PLUGINS = ("env", "svc")
#: Plugins that a leader's plugin implies, for parts without the plugin.
_REPLACEMENT_PLUGINS: Mapping[str, tuple[str, ...]] = {"mpi": ("ssh",), "pytorch": ()}


def plugins(template: JobSpec, shared: Mapping[str, list[str]], present: Iterable[str]) -> dict[str, list[str]]:
    """Return the plugins of a part with the tasks *present*; *shared* are those of the HyperJob."""
    wanted = {**shared, **template.plugins}
    lacks_leader = bool(template.leader_tasks) and template.leader_tasks.isdisjoint(present)
    for plugin in LEADER_TASKS if lacks_leader else ():
        if wanted.pop(plugin, None) is not None:
            wanted |= {implied: wanted.get(implied, []) for implied in _REPLACEMENT_PLUGINS[plugin]}
    return wanted | {plugin: wanted.get(plugin, []) for plugin in _REQUIRED_PLUGINS}


def variables(hyperjob: str, part: PartStatus, *, before: int, master: str) -> dict[str, str]:
    """Return the environment of the pods of one task; *before* is the number of pods in earlier tasks of the part."""
    variables = {
        "HYPERJOB_NAME": hyperjob,
        "HYPERJOB_PART": str(part.index),
        "HYPERJOB_PARTS": str(part.world_parts),
        "HYPERJOB_RANK_OFFSET": str(part.rank_offset + before),
        "HYPERJOB_WORLD_SIZE": str(part.world_size),
    }
    return variables | ({"HYPERJOB_MASTER": master} if master else {})


def with_environment(task: Task, variables: Mapping[str, str]) -> Task:
    """Return *task* with *variables* in the environment of all its containers; variables set by the user stay."""
    spec = task.template.spec
    changes = {"containers": tuple(_add_variables(container, variables) for container in spec.containers)}
    if spec.init_containers:
        changes["init_containers"] = tuple(_add_variables(container, variables) for container in spec.init_containers)
    template = task.template.model_copy(update={"spec": spec.model_copy(update=changes)})
    return task.model_copy(update={"template": template})


def _add_variables(container: Container, variables: Mapping[str, str]) -> Container:
    known = {variable.get("name") for variable in container.env}
    # They come first, so that the user's variables can refer to them.
    ours: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in variables.items() if name not in known
    ]
    return container.model_copy(update={"env": (*ours, *container.env)})
