"""Metadata of API objects; ``WatchedObject`` is the base class of all watched kinds."""

from datetime import datetime

import msgspec


class OwnerReference(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """A reference to the owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(msgspec.Struct, rename="camel", frozen=True):
    """Identity, labels and annotations of an object."""

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
    """An object of a watched kind."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    # The API server stores no field with this name, so a tenant cannot set it.
    decode_errors: tuple[str, ...] = msgspec.field(default=(), name="$flaws")
    """Fields that could not be read and have their defaults instead, each with its path."""

    @property
    def path(self) -> str:
        """``namespace/name``, or only the name, as messages name the object."""
        return f"{self.metadata.namespace}/{self.metadata.name}" if self.metadata.namespace else self.metadata.name


#: Kubernetes quantities as in JSON: strings or numbers.
Quantities = dict[str, str | int | float]
