"""One page of a list of whatever kind, as the API server gives it."""

import msgspec


class ListMeta(msgspec.Struct):
    """The part of a list's metadata that paging needs."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_token: str = msgspec.field(default="", name="continue")
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class Page(msgspec.Struct):
    """One page of a list; its items are the JSON as it came, valid as long as the page is kept."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[msgspec.Raw] | None = None
