"""Kubernetes' rules for the pods of a task, as far as a mistake is common; reads and writes nothing.

Volcano asks the whole of Kubernetes' validation here. The rest of it is left to the members' API servers: a mistake
that is not found here shows there, in the job's status.
"""

from collections.abc import Iterator, Mapping

from controller.api.meta import Quantities
from controller.api.quantity import QuantityError, parse_quantity
from webhook.dns_names import is_label
from webhook.job_types import Container, PodSpec, Resources

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_NATIVE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_MILLI = 1000


def pod_violations(pod: PodSpec) -> Iterator[str]:
    """Yield what a member's API server would refuse *pod* for, each with its path."""
    if not pod.containers:
        yield "template.spec.containers: Required value: give the task a container"
    if pod.restart_policy not in ("", *RESTART_POLICIES):
        yield f"template.spec.restartPolicy: Unsupported value {pod.restart_policy[:60]!r}: {_choices(RESTART_POLICIES)}"
    if pod.dns_policy not in ("", *DNS_POLICIES):
        yield f"template.spec.dnsPolicy: Unsupported value {pod.dns_policy[:60]!r}: {_choices(DNS_POLICIES)}"
    names: set[str] = set()
    for field, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for index, container in enumerate(containers or ()):
            where = f"template.spec.{field}[{index}]"
            yield from (f"{where}.{violation}" for violation in _container_violations(container, names))
            names.add(container.name)


def requests_whole_cpus(container: Container) -> bool:
    """Say whether *container* asks for whole CPUs, as a task with a topology policy must."""
    resources = container.resources or Resources()
    try:
        cpu = parse_quantity("cpu", (resources.requests or resources.limits or {}).get("cpu", 0))
    except QuantityError:
        return False
    return cpu > 0 and cpu % _MILLI == 0


def is_extended_resource(resource: str) -> bool:
    """Say whether *resource* is of a device, which is given out whole."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def amount_violation(resource: str, value: str | float) -> str | None:
    """Return what is wrong with one amount, or ``None``."""
    try:
        amount = parse_quantity(resource, value)
    except QuantityError as error:
        return str(error)
    if amount < 0:
        return f"{value!r} must be greater than or equal to 0"
    if is_extended_resource(resource) and amount % _MILLI:
        return f"{value!r} must be an integer: devices are not divided"
    return None


def _container_violations(container: Container, names: set[str]) -> Iterator[str]:
    if not is_label(container.name):
        yield f"name: Invalid value {container.name[:63]!r}: use at most 63 small letters, digits and dashes"
    elif container.name in names:
        yield f"name: Duplicate value {container.name!r}: give each container a name of its own"
    if not container.image.strip():
        yield "image: Required value: name an image"
    resources = container.resources or Resources()
    requests, limits = resources.requests or {}, resources.limits or {}
    yield from _amount_violations("limits", limits)
    yield from _amount_violations("requests", requests)
    for resource, value in requests.items():
        if violation := _limit_violation(resource, value, limits):
            yield f"resources.requests: {violation}"


def _amount_violations(field: str, quantities: Quantities) -> Iterator[str]:
    for resource, value in quantities.items():
        if "/" not in resource and resource not in _NATIVE_RESOURCES and not resource.startswith("hugepages-"):
            yield f"resources.{field}[{resource[:63]}]: must be a standard resource for containers"
        elif violation := amount_violation(resource, value):
            yield f"resources.{field}[{resource[:63]}]: {violation}"


def _limit_violation(resource: str, value: str | float, limits: Mapping[str, str | float]) -> str | None:
    """Return why a request does not go with the container's limits, or ``None``."""
    if resource not in limits:
        return (
            f"{resource[:63]}: a limit must be set for a device, and be the same"
            if is_extended_resource(resource)
            else None
        )
    try:
        resources, limit = parse_quantity(resource, value), parse_quantity(resource, limits[resource])
    except QuantityError:
        return None  # told already
    if resources > limit:
        return f"{value!r} must be less than or equal to {resource[:63]} limit of {limits[resource]!r}"
    if is_extended_resource(resource) and resources != limit:
        return f"{value!r} must be equal to {resource[:63]} limit of {limits[resource]!r}"
    return None


def _choices(values: tuple[str, ...]) -> str:
    return f"write one of {', '.join(values)}"
