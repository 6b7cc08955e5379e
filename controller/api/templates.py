"""Wire type of templates of configured kinds; only their integration describes their form."""

from typing import Any

import msgspec

from controller.api import lenient_decode
from controller.api.meta import WatchedObject


class Template(WatchedObject, rename="camel", frozen=True):
    """An object of any kind; only the paths of its kind's integration are read in *spec*."""

    api_version: str = ""
    kind: str = ""
    spec: dict[str, Any] = msgspec.field(default_factory=dict)


_TEMPLATE = msgspec.json.Decoder(Template)


def decode_template(raw: bytes | memoryview) -> Template:
    """Decode an object of any kind."""
    return lenient_decode.decode(_TEMPLATE, raw)
