"""JSON Patch and JSON merge patch as kube-apiserver applies them, deviations from the RFC included."""

from typing import Any

from tests.deterministic.objects import copied


class PatchError(Exception):
    """An operation cannot be applied, or its test failed."""


def merge_patch(target: Any, patch: Any) -> Any:
    """Return *target* with the merge *patch* applied (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def json_patch(document: Any, operations: list[Any]) -> Any:
    """Return *document* with the *operations* applied in order; raise ``PatchError`` at the first that fails."""
    document = copied(document)
    for operation in operations:
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise PatchError("an operation has no path")
    name, path, value = operation.get("op"), operation["path"], operation.get("value")
    container, key = _parent(document, path)
    if name == "test":
        return _test(document, _get(container, key), value)
    if name == "remove":
        _remove(container, key)
    elif name == "replace":
        _replace(container, key, value)
    elif name == "add":
        _add(container, key, value)
    else:
        raise PatchError(f"unknown operation {name}")
    return document


def _test(document: Any, actual: Any, expected: Any) -> Any:
    if actual != expected or isinstance(actual, bool) != isinstance(expected, bool):
        raise PatchError("the test failed")
    return document


def _parent(document: Any, path: str) -> tuple[Any, str]:
    """Return the container that *path* points into, and the key there."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]
    if len(parts) < 2:
        raise PatchError(f"no container at {path!r}")
    for part in parts[1:-1]:
        document = _get(document, part)
        if not isinstance(document, dict | list):
            raise PatchError(f"no container at {path!r}")
    return document, parts[-1]


def _get(container: Any, key: str) -> Any:
    """Return the value at *key*; a missing member of an object is null."""
    return container.get(key) if isinstance(container, dict) else container[_index(container, key)]


def _add(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    else:
        container.insert(_index(container, key, end=1), value)


def _replace(container: Any, key: str, value: Any) -> None:
    """Set *key*; unlike in the RFC, a missing member of an object is added."""
    if isinstance(container, dict):
        container[key] = value
    else:
        container[_index(container, key)] = value


def _remove(container: Any, key: str) -> None:
    if isinstance(container, list):
        del container[_index(container, key)]
    elif key in container:
        del container[key]
    else:
        raise PatchError(f"nothing to remove at {key!r}")


def _index(container: list[Any], key: str, *, end: int = 0) -> int:
    """Return the index that *key* names; a negative one counts from the end."""
    length = len(container) + end
    if key == "-" and end:
        return length - 1
    try:
        index = int(key)
    except ValueError:
        raise PatchError(f"{key!r} is no index") from None
    if not -length <= index < length:
        raise PatchError(f"no element {key}")
    return index % length
