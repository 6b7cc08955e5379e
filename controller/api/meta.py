"""The metadata every object carries, as far as it is read; ``Watched`` is what all watched kinds share."""

from datetime import datetime

import msgspec


class OwnerReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """An object that this one belongs to."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, rename="camel", frozen=True):
    """Who an object is and what others have written on it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: list[OwnerReference] = msgspec.field(default_factory=list)


class WatchedObject(msgspec.Struct, rename="camel", frozen=True):
    """An object of a kind that is watched."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    # No object of the API server can have a member of this name, so nobody can plant one.
    flaws: tuple[str, ...] = msgspec.field(default=(), name="$flaws")
    """What could not be read and stands at its default instead, each with its path."""

    @property
    def path(self) -> str:
        """Return ``namespace/name``, or the name alone, as messages name it."""
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.metadata.namespace else self.metadata.name


#: A Kubernetes quantity as it travels: text, or a bare number.
Quantities = dict[str, str | int | float]
