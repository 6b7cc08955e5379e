"""Kubernetes' rules for the pods of a task, as far as a mistake is common; reads and writes nothing.

Volcano asks the whole of Kubernetes' validation here. The rest of it is left to the members' API servers: a mistake
that is not found here shows there, in the job's status.
"""

from collections.abc import Iterator, Mapping

from controller.api.meta import Quantities
from controller.api.quantity import QuantityError, parse_quantity
from webhook.jobspec import Container, PodSpec, Resources
from webhook.names import is_label

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_NATIVE = frozenset({"cpu", "memory", "ephemeral-storage"})
_WHOLE = 1000


def pod_flaws(pod: PodSpec) -> Iterator[str]:
    """Yield what a member's API server would refuse *pod* for, each with its path."""
    if not pod.containers:
        yield "template.spec.containers: Required value: give the task a container"
    if pod.restart_policy not in ("", *RESTART_POLICIES):
        yield f"template.spec.restartPolicy: Unsupported value {pod.restart_policy[:60]!r}: {_one_of(RESTART_POLICIES)}"
    if pod.dns_policy not in ("", *DNS_POLICIES):
        yield f"template.spec.dnsPolicy: Unsupported value {pod.dns_policy[:60]!r}: {_one_of(DNS_POLICIES)}"
    names: set[str] = set()
    for field, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for place, container in enumerate(containers or ()):
            where = f"template.spec.{field}[{place}]"
            yield from (f"{where}.{flaw}" for flaw in _container_flaws(container, names))
            names.add(container.name)


def cpus_are_whole(container: Container) -> bool:
    """Say whether *container* asks for whole CPUs, as a task with a topology policy must."""
    asked = container.resources or Resources()
    try:
        cpu = parse_quantity("cpu", (asked.requests or asked.limits or {}).get("cpu", 0))
    except QuantityError:
        return False
    return cpu > 0 and cpu % _WHOLE == 0


def is_extended(resource: str) -> bool:
    """Say whether *resource* is of a device, which is given out whole."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def amount_flaw(resource: str, value: str | float) -> str | None:
    """Return what is wrong with one amount, or ``None``."""
    try:
        amount = parse_quantity(resource, value)
    except QuantityError as error:
        return str(error)
    if amount < 0:
        return f"{value!r} must be greater than or equal to 0"
    if is_extended(resource) and amount % _WHOLE:
        return f"{value!r} must be an integer: devices are not divided"
    return None


def _container_flaws(container: Container, names: set[str]) -> Iterator[str]:
    if not is_label(container.name):
        yield f"name: Invalid value {container.name[:63]!r}: use at most 63 small letters, digits and dashes"
    elif container.name in names:
        yield f"name: Duplicate value {container.name!r}: give each container a name of its own"
    if not container.image.strip():
        yield "image: Required value: name an image"
    asked = container.resources or Resources()
    requests, limits = asked.requests or {}, asked.limits or {}
    yield from _amount_flaws("limits", limits)
    yield from _amount_flaws("requests", requests)
    for resource, value in requests.items():
        if flaw := _excess(resource, value, limits):
            yield f"resources.requests: {flaw}"


def _amount_flaws(field: str, quantities: Quantities) -> Iterator[str]:
    for resource, value in quantities.items():
        if "/" not in resource and resource not in _NATIVE and not resource.startswith("hugepages-"):
            yield f"resources.{field}[{resource[:63]}]: must be a standard resource for containers"
        elif flaw := amount_flaw(resource, value):
            yield f"resources.{field}[{resource[:63]}]: {flaw}"


def _excess(resource: str, value: str | float, limits: Mapping[str, str | float]) -> str | None:
    """Return why a request does not go with the container's limits, or ``None``."""
    if resource not in limits:
        return f"{resource[:63]}: a limit must be set for a device, and be the same" if is_extended(resource) else None
    try:
        asked, most = parse_quantity(resource, value), parse_quantity(resource, limits[resource])
    except QuantityError:
        return None  # told already
    if asked > most:
        return f"{value!r} must be less than or equal to {resource[:63]} limit of {limits[resource]!r}"
    if is_extended(resource) and asked != most:
        return f"{value!r} must be equal to {resource[:63]} limit of {limits[resource]!r}"
    return None


def _one_of(values: tuple[str, ...]) -> str:
    return f"write one of {', '.join(values)}"
