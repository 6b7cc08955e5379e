"""Simulated member clusters by name, as described by their Clusters."""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from localup.karmada.member import Member
from localup.karmada.objects import Key, Object
from localup.karmada.store import Store
from localup.karmada.summary import DescriptionError, MemberDescription

log = structlog.get_logger()


@dataclass(slots=True)
class RegisteredMember:
    """Simulated member cluster and its description."""

    description: MemberDescription
    member: Member[Key] = field(default_factory=Member)

    @property
    def is_reachable(self) -> bool:
        """Return whether Karmada can reach it."""
        return self.description.ready == "True"


class MemberRegistry:
    """All simulated members; Clusters without the annotations are not simulated."""

    def __init__(self, clusters: Store, *, pods_late: float = 0) -> None:
        self._pods_late = pods_late
        self.members: dict[str, RegisteredMember] = {}
        self._event_handlers: list[Callable[[str], None]] = []
        clusters.add_event_handler(self._cluster_changed)

    def add_event_handler(self, handler: Callable[[str], None]) -> None:
        """Call *handler* with the name of a member whose description changed."""
        self._event_handlers.append(handler)

    def _cluster_changed(self, old: Object | None, new: Object | None) -> None:
        name = (new or old or {})["metadata"]["name"]
        try:
            description = MemberDescription.of(new) if new else None
        except DescriptionError as error:
            log.error("cluster description invalid", cluster=name, error=str(error))  # noqa: TRY400 -- the error is complete without a traceback
            return
        before = self.members.get(name)
        if description is None:
            self.members.pop(name, None)
        elif before is None or before.description != description:
            self._describe(name, description)

    def _describe(self, name: str, description: MemberDescription) -> None:
        registered = self.members.setdefault(name, RegisteredMember(description, Member(pods_late=self._pods_late)))
        registered.description = description
        registered.member.allocatable, registered.member.external_usage = (
            description.allocatable,
            description.external_usage,
        )
        registered.member.node_sizes = description.nodes
        for handler in self._event_handlers:
            handler(name)
