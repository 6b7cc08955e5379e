"""Replaces values of a JSON tree by unusual ones."""

import copy
import random
from collections.abc import Iterator
from typing import Any

UNUSUAL_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 2**31, 2**63, 2**64, -(2**63), 10**40, 0.5, -0.0, 1e308),
    *("", " ", "x" * 300, "\x00", "\u202e", "\ud7ff", "\U0001f4a5", "~1", "/", "%s", "{{}}", "1e999", "9" * 200),
    *([], [[]], {}, [None], {"": None}, {"a": {}}, [{}], "Job", "batch.volcano.sh/v1alpha1", "CREATE", "UPDATE"),
]


def mutate(node: Any, dice: random.Random) -> None:
    """Replace, remove or repeat a value in a JSON tree."""
    all_places = list(places(node))
    if not all_places:
        return
    parent, key = dice.choice(all_places)
    action = dice.random()
    if action < 0.5:
        parent[key] = copy.deepcopy(dice.choice(UNUSUAL_VALUES))
    elif action < 0.7:
        del parent[key]
    elif action < 0.85:
        source, name = dice.choice(all_places)
        parent[key] = copy.deepcopy(source[name])
    elif isinstance(parent, dict):
        parent[str(dice.choice(UNUSUAL_VALUES))] = parent[key]
    else:
        parent.extend(parent * dice.randrange(3))


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each value of a JSON tree as its parent and its key or index."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])
