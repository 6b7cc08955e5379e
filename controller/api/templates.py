"""The templates of further gated kinds, whose form only a rule of the operator's tells."""

from typing import Any

import msgspec

from controller.api import lenient_decode
from controller.api.meta import WatchedObject


class Template(WatchedObject, rename="camel", frozen=True):
    """An object of any kind; *spec* is looked into by the paths of its kind's rule only."""

    api_version: str = ""
    kind: str = ""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


_TEMPLATE = msgspec.json.Decoder(Template)


def decode_template(raw: bytes | memoryview) -> Template:
    """Return the object in *raw*, whatever its kind."""
    return lenient_decode.decode(_TEMPLATE, raw)
