"""Reads Kubernetes objects from files, each with its location."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from controller.cache.objects import GroupKind
from controller.cli.errors import InputError
from controller.cli.input.yaml_loader import ParseError, load_documents

STDIN = "-"
_SUFFIXES = frozenset({".yaml", ".yml", ".json"})
_MAX_NAME_LENGTH = 253
_MAX_SHOWN = 40


@dataclass(frozen=True, slots=True)
class Location:
    """Location of an object: the file, the document and the item of a List, both counted from 1."""

    file: str
    document: int
    item: int | None = None

    def __str__(self) -> str:
        item = "" if self.item is None else f", item {self.item}"
        return f"{self.file}: document {self.document}{item}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A Kubernetes object with its location; ``body`` is the whole object."""

    location: Location
    api_version: str
    kind: str
    namespace: str
    name: str
    body: Mapping[str, Any]
    is_changed: bool = False
    """Whether ``--what-if`` has changed it, so that its fields are not those of the file."""

    @property
    def group(self) -> str:
        """Return the API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def group_kind(self) -> GroupKind:
        """Return the kind without its version."""
        return GroupKind(f"{self.kind}.{self.group}")

    @property
    def version(self) -> str:
        """Return the version without the group."""
        return self.api_version.rpartition("/")[2]

    @property
    def path(self) -> str:
        """Return ``Kind namespace/name``, as used in messages."""
        return f"{self.kind} {f'{self.namespace}/' if self.namespace else ''}{self.name}".rstrip()

    @property
    def raw(self) -> bytes:
        """Return the object as JSON."""
        return msgspec.json.encode(self.body)

    def note(self, text: str) -> str:
        """Return *text*, which begins with the field path, prefixed with the location and name of the object."""
        return f"{self.location} ({self.path}): {text}"

    def violation(self, text: str) -> str:
        """Return *text* as `note` does; of a changed object, the option is named instead of blaming the file alone."""
        return f"{'--what-if: ' if self.is_changed else ''}{self.note(text)}"


#: Called with the completed and the total amount of work.
ProgressCallback = Callable[[int, int], None]

#: Begins a part of the work with this title.
Progress = Callable[[str], AbstractContextManager[ProgressCallback]]


def no_progress(_title: str) -> AbstractContextManager[ProgressCallback]:
    """Begin a part of the work without reporting its progress."""
    return nullcontext(_ignore)


def _ignore(_done: int, _total: int) -> None:
    """Ignore the progress of work."""


def read(paths: Sequence[str], on_progress: ProgressCallback = _ignore) -> list[Manifest]:
    """Return all objects in the files and folders *paths*, ``-`` being standard input; raise `InputError`.

    *on_progress* is called with the number of characters.
    """
    manifests: list[Manifest] = []
    violations: list[str] = []
    texts = list(_read_texts(paths))
    done, total = 0, sum(len(text) for _, text in texts)
    for file, text in texts:
        report_text = partial(_report_text, on_progress, done, total)
        try:
            manifests.extend(_parse_manifests(file, text, violations, report_text))
        except ParseError as error:
            violations.append(str(error))
        done += len(text)
    if violations:
        raise InputError(*violations)
    if not manifests:
        raise InputError(f"{', '.join(display_name(path) for path in paths)}: no Kubernetes object found")
    return manifests


def abbreviate(value: object) -> str:
    """Return *value* as JSON for a message, truncated if it is long."""
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 4]}..."


def display_name(path: str) -> str:
    """Return how messages name the file *path*."""
    return "standard input" if path == STDIN else path


def _read_texts(paths: Iterable[str]) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == STDIN:
            yield display_name(path), _decode_text(display_name(path), _read_stdin())
            continue
        for file in _list_files(Path(path)):
            try:
                content = read_file(file)
            except OSError as error:
                raise InputError(f"{file}: {(error.strerror or 'it cannot be read').lower()}") from error
            yield str(file), _decode_text(str(file), content)


@cache
def _read_stdin() -> bytes:
    """Return standard input, which one command may plan twice: as it is, and after changes."""
    return sys.stdin.buffer.read()


def read_file(path: Path) -> bytes:
    """Return the content of *path*; that of a pipe, such as ``-f <(command)``, also where it is read again."""
    return _read_pipe(path) if path.is_fifo() else path.read_bytes()


@cache
def _read_pipe(path: Path) -> bytes:
    return path.read_bytes()


def _list_files(path: Path) -> list[Path]:
    """Return *path*, or the manifests in the folder *path* and below it, by name."""
    if not path.is_dir():
        return [path]
    manifests = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not manifests:
        raise InputError(f"{path}: no file there ends in {', '.join(sorted(_SUFFIXES))}")
    return manifests


def _decode_text(file: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file}: line {line}: it is not UTF-8 text") from error


def _report_text(on_progress: ProgressCallback, before: int, total: int, position: int) -> None:
    """Report that the current text is read up to *position*."""
    on_progress(before + position, total)


def _parse_manifests(
    file: str, text: str, violations: list[str], on_progress: Callable[[int], None]
) -> Iterator[Manifest]:
    """Yield the objects of one file; append a message to *violations* for each value that is not an object."""
    number = 0
    try:
        for number, value in enumerate(load_documents(text, on_progress), start=1):
            for location, body in _list_items(Location(file, number), value):
                manifest = _parse_manifest(location, body)
                if isinstance(manifest, Manifest):
                    yield manifest
                else:
                    violations.append(manifest)
    except ParseError as error:
        raise ParseError(f"{Location(file, number + 1)}: {error}") from error


def _list_items(location: Location, value: Any) -> Iterator[tuple[Location, Any]]:
    """Yield *value*, or the items of a List; yield nothing for an empty document."""
    if value is None:
        return
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(value.get("items"), list):
        yield location, value
        return
    # The items of a typed list do not repeat its apiVersion and kind.
    inherited = {} if kind == "List" else {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
    for number, item in enumerate(value["items"], start=1):
        yield (
            Location(location.file, location.document, number),
            {**inherited, **item} if isinstance(item, dict) else item,
        )


def _parse_manifest(location: Location, body: Any) -> Manifest | str:
    """Return the object, or why *body* is not one."""
    if not isinstance(body, dict):
        return f"{location}: a Kubernetes object is expected, not {abbreviate(body)}"
    for field, example in (("apiVersion", "batch.volcano.sh/v1alpha1"), ("kind", "Job")):
        value = body.get(field)
        if not isinstance(value, str) or not value:
            return f"{location}: {field}: {_missing_field(value)}; write for example {field}: {example}"
    metadata = {} if body.get("metadata") is None else body["metadata"]
    named = f"{location} ({body['kind']})"
    if body["kind"].endswith("List") and body.get("items") is not None:
        is_inner = isinstance(body["items"], list)
        return f"{named}: " + ("a List in a List is not read" if is_inner else "items: it is not a list")
    if not isinstance(metadata, dict):
        return f"{named}: metadata: {abbreviate(metadata)} is not a mapping"
    name, namespace = metadata.get("name"), metadata.get("namespace")
    return (
        (_name_violation(f"{named}: metadata.name", name) if name is not None else "")
        or (_name_violation(f"{named}: metadata.namespace", namespace) if namespace else "")
        or Manifest(location, body["apiVersion"], body["kind"], namespace or "", name or "", body)
    )


def _missing_field(value: object) -> str:
    return "it is missing" if value is None or value == "" else f"{abbreviate(value)} is not text"


def _name_violation(field: str, name: object) -> str:
    """Return why *name* is not a valid name, or an empty text if it is valid."""
    if not isinstance(name, str):
        return f"{field}: {abbreviate(name)} is not text; write it in quotes"
    if not name or len(name) > _MAX_NAME_LENGTH or name in {".", ".."}:
        return f"{field}: a name has 1 to {_MAX_NAME_LENGTH} characters"
    if any(not character.isprintable() or character in " /%" for character in name):
        return f"{field}: {abbreviate(name)} is not a name; write letters, digits, - and ."
    return ""
