"""Kubernetes objects as files hold them, each with where it stands; what they mean is decided elsewhere."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from controller.cli.yaml_loader import ParseError, load_documents

STDIN = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_MAX_NAME_LENGTH = 253
_MAX_SHOWN = 40


class InputError(Exception):
    """What was given cannot be used; each problem names its file, document and field."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Location:
    """Where an object stands: file, document and, inside a List, item, both counted from 1."""

    file: str
    document: int
    item: int | None = None

    def __str__(self) -> str:
        item = "" if self.item is None else f", item {self.item}"
        return f"{self.file}: document {self.document}{item}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object with its place; ``body`` is all of it."""

    place: Location
    api_version: str
    kind: str
    namespace: str
    name: str
    body: Mapping[str, Any]

    @property
    def group(self) -> str:
        """Return the API group, empty for the core group."""
        group, slash, _ = self.api_version.rpartition("/")
        return group if slash else ""

    @property
    def version(self) -> str:
        """Return the version without the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def path(self) -> str:
        """Return ``Kind namespace/name``, as messages name it."""
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}".rstrip()

    @property
    def raw(self) -> bytes:
        """Return the object as JSON."""
        return msgspec.json.encode(self.body)

    def problem(self, text: str) -> str:
        """Return *text*, which begins with the field, said of this object."""
        return f"{self.place} ({self.path}): {text}"


def read(paths: Sequence[str]) -> list[Manifest]:
    """Return all objects in the files and folders *paths*, ``-`` being standard input; raise `InputError`."""
    found: list[Manifest] = []
    problems: list[str] = []
    for file, text in _read_texts(paths):
        try:
            found.extend(_parse_manifests(file, text, problems))
        except ParseError as error:
            problems.append(str(error))
    if problems:
        raise InputError(*problems)
    if not found:
        raise InputError(f"{', '.join(_display_name(path) for path in paths)}: no Kubernetes object is there")
    return found


def abbreviate(value: object) -> str:
    """Return *value* as a message shows it: as JSON, and short."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 4]}..."


def _display_name(path: str) -> str:
    return "standard input" if path == STDIN else path


def _read_texts(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == STDIN:
            yield _display_name(path), _decode_text(_display_name(path), sys.stdin.buffer.read())
            continue
        for file in _list_files(Path(path)):
            try:
                content = file.read_bytes()
            except OSError as error:
                raise InputError(f"{file}: {(error.strerror or 'it cannot be read').lower()}") from error
            yield str(file), _decode_text(str(file), content)


def _list_files(path: Path) -> list[Path]:
    """Return *path*, or the manifests in the folder *path* and below it, by name."""
    if not path.is_dir():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise InputError(f"{path}: no file there ends in {', '.join(sorted(_SUFFIXES))}")
    return found


def _decode_text(file: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file}: line {line}: it is not UTF-8 text") from error


def _parse_manifests(file: str, text: str, problems: list[str]) -> Iterator[Manifest]:
    """Yield the objects of one file; what is no object is told to *problems*."""
    number = 0
    try:
        for number, value in enumerate(load_documents(text), start=1):
            for place, body in _list_items(Location(file, number), value):
                manifest = _parse_manifest(place, body)
                if isinstance(manifest, Manifest):
                    yield manifest
                else:
                    problems.append(manifest)
    except ParseError as error:
        raise ParseError(f"{Location(file, number + 1)}: {error}") from error


def _list_items(place: Location, value: Any) -> Iterator[tuple[Location, Any]]:
    """Yield *value*, or the items of a List; an empty document is nothing."""
    if value is None:
        return
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(value.get("items"), list):
        yield place, value
        return
    # The items of a typed list do not repeat what the list says.
    said = {} if kind == "List" else {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
    for number, item in enumerate(value["items"], start=1):
        yield Location(place.file, place.document, number), {**said, **item} if isinstance(item, dict) else item


def _parse_manifest(place: Location, body: Any) -> Manifest | str:
    """Return the object, or what keeps it from being one."""
    if not isinstance(body, dict):
        return f"{place}: a Kubernetes object is expected, not {abbreviate(body)}"
    for field, example in (("apiVersion", "batch.volcano.sh/v1alpha1"), ("kind", "Job")):
        value = body.get(field)
        if not isinstance(value, str) or not value:
            return f"{place}: {field}: {_missing_field(value)}; write for example {field}: {example}"
    metadata = {} if body.get("metadata") is None else body["metadata"]
    named = f"{place} ({body['kind']})"
    if not isinstance(metadata, dict):
        return f"{named}: metadata: {abbreviate(metadata)} is not a mapping"
    name, namespace = metadata.get("name"), metadata.get("namespace")
    return (
        (_name_violation(f"{named}: metadata.name", name) if name is not None else "")
        or (_name_violation(f"{named}: metadata.namespace", namespace) if namespace else "")
        or Manifest(place, body["apiVersion"], body["kind"], namespace or "", name or "", body)
    )


def _missing_field(value: object) -> str:
    return "it is missing" if value is None or value == "" else f"{abbreviate(value)} is not text"


def _name_violation(field: str, name: object) -> str:
    """Return why nothing can bear *name*, or nothing where something can."""
    if not isinstance(name, str):
        return f"{field}: {abbreviate(name)} is not text; write it in quotes"
    if not name or len(name) > _MAX_NAME_LENGTH or name in {".", ".."}:
        return f"{field}: a name has 1 to {_MAX_NAME_LENGTH} characters"
    if any(not sign.isprintable() or sign in " /%" for sign in name):
        return f"{field}: {abbreviate(name)} is no name; write letters, digits, - and ."
    return ""
