"""The architecture page names packages, modules and functions that exist."""

import importlib
import re
from functools import reduce

import pytest

from docs import generate

PAGE = (generate.ROOT / "docs" / "development" / "architecture.md").read_text()
NAMES = re.findall(r"`(controller(?:\.\w+){2,})`", PAGE)


def resolve(name):
    """Return the class or function with a dotted name."""
    parts = name.split(".")
    length = max(end for end in range(1, len(parts)) if is_module(parts[:end]))
    module = importlib.import_module(".".join(parts[:length]))
    return reduce(getattr, parts[length:], module)


def is_module(parts):
    return generate.ROOT.joinpath(*parts).with_suffix(".py").is_file()


@pytest.mark.parametrize("name", sorted(set(NAMES)))
def test_architecture_page_names_existing_objects(name):
    assert resolve(name) is not None


def test_architecture_page_lists_every_package():
    listed = set(re.findall(r"^\| `controller/(\w+)` \|", PAGE, re.MULTILINE))
    folders = (generate.ROOT / "controller").iterdir()
    assert listed == {folder.name for folder in folders if (folder / "__init__.py").is_file()}
