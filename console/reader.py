"""What one user may see: decided by a few reviews for the whole control plane, and by one for each namespace of a page.

A page is built with the answers that are known. Namespaces without a known answer are reviewed, at most fifty, and the
page is built again.
"""

from collections.abc import Collection
from dataclasses import dataclass, field

from console.model import Model
from controller.api.keys import CLUSTERS, QUEUES
from controller.cli.input.what_if import WhatIf
from controller.engine.reasons import Refusal
from controller.engine.state.hierarchy import Node, QueueName
from controller.kube.access_reviews import Access, Permission, User
from controller.reporting.redaction import redacted_refusal

#: Namespaces that are reviewed for one page: as many as it has rows.
MAX_NAMESPACES = 50

_SERVICE_ACCOUNT = "system:serviceaccount:"

RightsKey = tuple[bool, bool, bool, frozenset[str]]


@dataclass(slots=True)
class Reader:
    """The rights of one user, as far as they were reviewed."""

    username: str = ""
    all_workloads: bool = False
    """It may list the workloads of all namespaces."""
    all_queues: bool = False
    """It may list queues, and so read the names of all of them."""
    all_clusters: bool = False
    namespaces: dict[str, bool] = field(default_factory=dict)
    """Whether it may list the workloads of a namespace."""
    unknown: dict[str, None] = field(default_factory=dict)
    """Namespaces that a page needs and that were not reviewed yet."""
    seconds: float = 0.0
    """CPU time of the pages that were built for it."""
    _queues: tuple[int, frozenset[QueueName]] | None = None

    @property
    def key(self) -> RightsKey:
        """Return the same for readers that see the same pages."""
        own = () if self.all_workloads else (name for name, allowed in self.namespaces.items() if allowed)
        return self.all_workloads, self.all_queues, self.all_clusters, frozenset(own)

    def may_read(self, namespace: str) -> bool:
        """Return whether it may see the workloads of *namespace*; not yet, where that was not reviewed."""
        if self.all_workloads:
            return True
        if namespace and namespace not in self.namespaces and len(self.unknown) < MAX_NAMESPACES:
            self.unknown[namespace] = None
        return self.namespaces.get(namespace, False)

    def own_namespaces(self, model: Model) -> list[str]:
        """Return the namespaces with workloads that it may see."""
        return self.readable(model.index.namespaces)

    def readable(self, namespaces: Collection[str]) -> list[str]:
        """Return those of *namespaces* that it may see, among the first ones and the one of a service account."""
        names = list(namespaces)
        if not self.all_workloads:
            account = self.username.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
            home = [account] if self.username.startswith(_SERVICE_ACCOUNT) and account in namespaces else []
            reviewed = [name for name in self.namespaces if name in namespaces]
            names = list(dict.fromkeys((*home, *reviewed, *sorted(names)[:MAX_NAMESPACES])))
        return sorted(name for name in names if self.may_read(name))

    def may_name(self, queue: QueueName, model: Model) -> bool:
        """Return whether it may read the name of *queue*: it has workloads there or in a queue below it.

        With the right to list queues it may name existing queues only: a queue that does not exist is a text that
        another tenant wrote.
        """
        if self.all_workloads or queue in self.own_queues(model):
            return True
        return self.all_queues and (model.snapshot is None or queue in model.snapshot.engine.queues)

    def may_change(self, change: WhatIf, model: Model) -> bool:
        """Return whether it may see the object that *change* changes."""
        if change.kind == QUEUES.kind.lower():
            return self.may_name(QueueName(change.name), model)
        if change.kind == CLUSTERS.kind.lower():
            return self.all_clusters
        return self.may_read(change.namespace)

    def redacted(self, refusal: Refusal | None) -> Refusal | None:
        """Return *refusal* without names of workloads that it may not see."""
        return None if refusal is None else redacted_refusal(refusal, self.may_read)

    def own_queues(self, model: Model) -> frozenset[QueueName]:
        """Return the queues of its workloads, with their ancestors."""
        if self._queues is None or self._queues[0] != len(self.namespaces):
            names: set[QueueName] = set()
            snapshot = model.snapshot
            nodes: dict[QueueName, Node] = snapshot.shares.quota.tree.nodes if snapshot is not None else {}
            for namespace in self.own_namespaces(model):
                for queue in model.index.namespaces.get(namespace, ()):
                    node = nodes.get(queue)
                    names.update([ancestor.name for ancestor in node.path()] if node is not None else [queue])
            self._queues = len(self.namespaces), frozenset(names)
        return self._queues[1]


class Rights:
    """Reviews what users may see; the answers are cached for half a minute."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def reader(self, user: User) -> Reader:
        """Return the rights of *user* in the whole control plane."""

        async def may(permission: Permission) -> bool:
            return await self._access.may(user, permission)

        return Reader(
            user.username,
            all_workloads=await may(Permission("list")),
            all_queues=await may(Permission("list", QUEUES.plural, QUEUES.group)),
            all_clusters=await may(Permission("list", CLUSTERS.plural, CLUSTERS.group)),
        )

    async def review(self, user: User, reader: Reader) -> None:
        """Review the namespaces that a page has asked *reader* about."""
        for namespace in list(reader.unknown):
            reader.namespaces[namespace] = await self._access.may(user, Permission("list", namespace=namespace))
        reader.unknown.clear()
