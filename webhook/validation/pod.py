"""Validates the pods of a task by the Kubernetes rules that are most often violated.

Volcano runs the complete Kubernetes validation here. Other violations are found by the API servers of the members and
appear in the status of the job.
"""

from collections.abc import Iterator, Mapping
from string import ascii_lowercase, ascii_uppercase, digits

from controller.api.jobs import ResourceRequirements
from controller.api.meta import Quantities
from controller.api.quantity import QuantityError, parse_quantity
from webhook.validation.job_types import ReviewedContainer, ReviewedPodSpec

_EDGE_CHARACTERS = frozenset(ascii_lowercase + digits)
_INNER_CHARACTERS = _EDGE_CHARACTERS | {"-"}
_QUALIFIED_EDGES = _EDGE_CHARACTERS | frozenset(ascii_uppercase)
_QUALIFIED_INNER = _QUALIFIED_EDGES | frozenset("-_.")
MAX_LABEL_LENGTH = 63
MAX_NAME_LENGTH = 253

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_NATIVE_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_MILLI = 1000


def is_label(text: str) -> bool:
    """Return whether *text* is a DNS label: lower-case letters, digits and inner dashes."""
    return 0 < len(text) <= MAX_LABEL_LENGTH and _is_made_of(text, _EDGE_CHARACTERS, _INNER_CHARACTERS)


def is_subdomain(text: str) -> bool:
    """Return whether *text* is a DNS subdomain: labels joined by dots."""
    return 0 < len(text) <= MAX_NAME_LENGTH and all(
        _is_made_of(part, _EDGE_CHARACTERS, _INNER_CHARACTERS) for part in text.split(".")
    )


def is_label_value(text: str) -> bool:
    """Return whether *text* is a valid label value; pods carry their name and their job's name as labels."""
    return 0 < len(text) <= MAX_LABEL_LENGTH and _is_made_of(text, _QUALIFIED_EDGES, _QUALIFIED_INNER)


def _is_made_of(text: str, edges: frozenset[str], inner: frozenset[str]) -> bool:
    return bool(text) and text[0] in edges and text[-1] in edges and inner.issuperset(text)


def pod_violations(pod: ReviewedPodSpec) -> Iterator[str]:
    """Yield why the API server of a member would refuse *pod*, each with a field path."""
    if not pod.containers:
        yield "template.spec.containers: Required value: give the task a container"
    if pod.restart_policy not in ("", *RESTART_POLICIES):
        yield f"template.spec.restartPolicy: Unsupported value {pod.restart_policy[:60]!r}: {_one_of(RESTART_POLICIES)}"
    if pod.dns_policy not in ("", *DNS_POLICIES):
        yield f"template.spec.dnsPolicy: Unsupported value {pod.dns_policy[:60]!r}: {_one_of(DNS_POLICIES)}"
    names: set[str] = set()
    for field, containers in (("initContainers", pod.init_containers), ("containers", pod.containers)):
        for index, container in enumerate(containers or ()):
            path = f"template.spec.{field}[{index}]"
            yield from (f"{path}.{violation}" for violation in _container_violations(container, names))
            names.add(container.name)


def requests_whole_cpus(container: ReviewedContainer) -> bool:
    """Return whether *container* requests whole CPUs, as a topology policy requires."""
    resources = container.resources or ResourceRequirements()
    try:
        cpu = parse_quantity("cpu", (resources.requests or resources.limits or {}).get("cpu", 0))
    except QuantityError:
        return False
    return cpu > 0 and cpu % _MILLI == 0


def is_extended_resource(resource: str) -> bool:
    """Return whether *resource* is an extended resource, which is allocated in whole units."""
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def amount_violation(resource: str, value: str | float) -> str | None:
    """Return why one amount is invalid, or ``None``."""
    try:
        amount = parse_quantity(resource, value)
    except QuantityError as error:
        return str(error)
    if amount < 0:
        return f"{value!r} must be greater than or equal to 0"
    if is_extended_resource(resource) and amount % _MILLI:
        return f"{value!r} must be an integer: extended resources cannot be divided"
    return None


def _container_violations(container: ReviewedContainer, names: set[str]) -> Iterator[str]:
    if not is_label(container.name):
        yield f"name: Invalid value {container.name[:63]!r}: use at most 63 lower-case letters, digits and dashes"
    elif container.name in names:
        yield f"name: Duplicate value {container.name!r}: give each container a different name"
    if not container.image.strip():
        yield "image: Required value: name an image"
    resources = container.resources or ResourceRequirements()
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
    """Return why a request does not match the limits of its container, or ``None``."""
    if resource not in limits:
        return f"{resource[:63]}: an extended resource needs an equal limit" if is_extended_resource(resource) else None
    try:
        requested, limit = parse_quantity(resource, value), parse_quantity(resource, limits[resource])
    except QuantityError:
        return None  # reported by `_amount_violations`
    if requested > limit:
        return f"{value!r} must be less than or equal to {resource[:63]} limit of {limits[resource]!r}"
    if is_extended_resource(resource) and requested != limit:
        return f"{value!r} must be equal to {resource[:63]} limit of {limits[resource]!r}"
    return None


def _one_of(values: tuple[str, ...]) -> str:
    return f"use one of {', '.join(values)}"
