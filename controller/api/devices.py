"""Defaults the limits of devices: Kubernetes does not overcommit them, so each request needs an equal limit."""

from controller.api.volcanojobs import Container, JobSpec, Task

_KUBERNETES_DOMAIN = "kubernetes.io/"


def is_device(resource: str) -> bool:
    """Whether Kubernetes treats *resource* as an extended resource, such as nvidia.com/gpu."""
    return "/" in resource and _KUBERNETES_DOMAIN not in resource


def default_device_limits(job: JobSpec) -> JobSpec:
    """Return *job* with a limit for each device that has only a request.

    HyperJobs are often written like that, also in upstream's examples; the API server would reject the pods.
    """
    return (
        job.model_copy(update={"tasks": tuple(_complete_task(task) for task in job.tasks)})
        if _lacks_limits(job)
        else job
    )


def _lacks_limits(job: JobSpec) -> bool:
    return any(_missing_limits(container) for task in job.tasks for container in _containers(task))


def _containers(task: Task) -> tuple[Container, ...]:
    return (*task.template.spec.containers, *task.template.spec.init_containers)


def _missing_limits(container: Container) -> dict[str, str | int | float]:
    asked = container.resources
    return {name: value for name, value in asked.requests.items() if is_device(name) and name not in asked.limits}


def _complete_task(task: Task) -> Task:
    spec = task.template.spec
    changes = {"containers": tuple(_complete_container(container) for container in spec.containers)}
    if spec.init_containers:
        changes["init_containers"] = tuple(_complete_container(container) for container in spec.init_containers)
    template = task.template.model_copy(update={"spec": spec.model_copy(update=changes)})
    return task.model_copy(update={"template": template})


def _complete_container(container: Container) -> Container:
    missing = _missing_limits(container)
    if not missing:
        return container
    resources = container.resources.model_copy(update={"limits": {**container.resources.limits, **missing}})
    return container.model_copy(update={"resources": resources})
