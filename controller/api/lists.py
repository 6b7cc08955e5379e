"""One page of a list of any kind, as the API server returns it."""

import msgspec


class ListMeta(msgspec.Struct):
    """Metadata of a list that paging needs."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_token: str = msgspec.field(default="", name="continue")
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class Page(msgspec.Struct):
    """One page of a list; its items are raw JSON that is valid while the page exists."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None
