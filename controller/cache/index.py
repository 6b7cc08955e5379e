"""Compact containers of the cache: indexes from keys to members, and interned values."""

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator
from hashlib import blake2b
from typing import Generic, TypeVar

import msgspec

from controller.api.keys import JOBS, binding_name
from controller.cache.objects import VOLCANO_JOB, BindingKey, CachedBinding, CachedTemplate, GroupKind, TemplateKey

K = TypeVar("K", bound=Hashable)

M = TypeVar("M", bound=Hashable)

_MAX_COLLISIONS = 10_000
V = TypeVar("V")
_ENCODER = msgspec.json.Encoder()
#: Values of a pool, as JSON; they need about twice as much memory.
_MAX_POOL_BYTES = 32 << 20
_LENGTHS = msgspec.json.Encoder(enc_hook=repr)


class Index(Generic[K, M]):
    """Members by key."""

    def __init__(self) -> None:
        self._single: dict[K, M] = {}
        self._several: dict[K, dict[M, None]] = {}

    def __iter__(self) -> Iterator[K]:
        yield from self._single
        yield from self._several

    def of(self, key: K) -> Iterable[M]:
        """Return the members of *key*."""
        if key in self._single:
            return (self._single[key],)
        return tuple(self._several.get(key, ()))

    def count(self, key: K) -> int:
        """Return the number of members of *key*."""
        return 1 if key in self._single else len(self._several.get(key, ()))

    def add(self, key: K, member: M) -> None:
        """Add *member* to *key*."""
        if key in self._several:
            self._several[key][member] = None
        elif self._single.setdefault(key, member) != member:
            self._several[key] = {self._single.pop(key): None, member: None}

    def discard(self, key: K, member: M) -> None:
        """Remove *member* from *key*."""
        if self._single.get(key) == member:
            del self._single[key]
        elif key in self._several:
            self._several[key].pop(member, None)
            if not self._several[key]:
                del self._several[key]


def colliding_job_key(binding: CachedBinding) -> TemplateKey:
    """Return the key of the Volcano Job that might need the same binding name."""
    return TemplateKey(VOLCANO_JOB, binding.template.namespace, binding.template.name)


def binding_key(job: CachedTemplate) -> BindingKey:
    """Return the key of the binding of *job*."""
    return BindingKey(job.key.namespace, binding_name(job.key.name, JOBS.kind))


class NameCollisions:
    """Volcano Jobs that get no binding because Karmada gives it the name of another kind's binding.

    Their number is limited; the oldest is dropped first.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[CachedTemplate, CachedBinding]] = {}

    def __iter__(self) -> Iterator[tuple[CachedTemplate, CachedBinding]]:
        return iter(tuple(self._found.values()))

    def add(self, job: CachedTemplate, binding: CachedBinding) -> bool:
        """Record that *binding* has the name that the binding of *job* needs; return whether that is new."""
        if binding.key != binding_key(job) or binding.template == job.key:
            return False
        known = self._found.get(job.uid)
        self._found[job.uid] = job, binding
        while len(self._found) > _MAX_COLLISIONS:
            del self._found[next(iter(self._found))]
        return known is None or known[1].uid != binding.uid

    def discard(self, uid: str) -> None:
        """Forget the deleted Volcano Job *uid*, which may be large."""
        self._found.pop(uid, None)


class UnboundJobs:
    """Volcano Jobs without a binding: no policy selects them, or Karmada has not created the binding yet."""

    def __init__(self) -> None:
        self._keys: dict[TemplateKey, None] = {}
        self.newest_bound_at = 0
        """Latest creation time of a template that has got a binding, in milliseconds."""
        self.newest_binding_at = 0
        """Latest creation time of a binding, in milliseconds."""

    def __iter__(self) -> Iterator[TemplateKey]:
        return iter(tuple(self._keys))

    def update(self, job: TemplateKey, *, is_unbound: bool) -> None:
        """Add or remove *job*."""
        if is_unbound:
            self._keys[job] = None
        else:
            self._keys.pop(job, None)

    def on_bound(self, binding: CachedBinding, template: CachedTemplate | None) -> None:
        """Record how far Karmada has come with the creation of bindings."""
        self.newest_binding_at = max(self.newest_binding_at, binding.created_at)
        if template is not None:
            self.newest_bound_at = max(self.newest_bound_at, template.created_at)


class InternPool(Generic[V]):
    """Values by the key that they are computed from; a full pool is cleared, which costs memory, not correctness.

    A pool is full with *size* values, or with *max_bytes* of them as JSON: values of deleted objects stay in it, and
    tenants write objects of a megabyte.
    """

    def __init__(self, size: int = 8192, *, max_bytes: int = _MAX_POOL_BYTES) -> None:
        self._size = size
        self._max_bytes = max_bytes
        self._bytes = 0
        self._values: dict[Hashable, V] = {}

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """Return the value of *key*, computed by *make* on the first request."""
        value = self._values.get(key)
        if value is None:
            value = make()
            length = len(_LENGTHS.encode(value))
            if len(self._values) >= self._size or self._bytes + length > self._max_bytes:
                self._values.clear()
                self._bytes = 0
            self._values[key] = value
            self._bytes += length
        return value


class TemplateNames:
    """Shares the names and UIDs of templates between their objects and their bindings.

    Both are listed at the same time in the same order, so the latest names suffice.
    """

    def __init__(self) -> None:
        self._keys: InternPool[TemplateKey] = InternPool()
        self._uids: InternPool[str] = InternPool()

    def key(self, kind: GroupKind, namespace: str, name: str) -> TemplateKey:
        """Return the key of a template."""
        key = TemplateKey(kind, sys.intern(namespace), name)
        return self._keys.get(key, lambda: key)

    def uid(self, uid: str) -> str:
        """Return *uid*."""
        return self._uids.get(uid, lambda: uid)


def fingerprint(*parts: msgspec.Struct | object) -> bytes:
    """Return a 16-byte hash of *parts*."""
    return blake2b(_ENCODER.encode(parts), digest_size=16).digest()
