"""The files that tests read: example manifests, and objects in ``tests/data``."""

from pathlib import Path
from typing import Any

import yaml

EXAMPLES = Path(__file__).parents[1] / "examples"
DATA = Path(__file__).parent / "data"


class _Loader(yaml.SafeLoader):
    """Reads times as strings, as they are in JSON."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_object(file: Path) -> dict[str, Any]:
    """Return the only object in *file*."""
    (document,) = yaml.load_all(file.read_text(), Loader=_Loader)
    return dict(document)
