"""Encodes learned run times as compact JSON for a ConfigMap, bounded in size, and decodes it.

The document is ``{"version": 1, "until": milliseconds, "histories": [[level, namespace, key, runs, evicted], ...]}``,
the least recently used history first. Runs are texts such as ``1200 95f 3600/7200@1a2b``: seconds, ``f`` for a failed
run, the user's estimate after a slash, and a digest of the namespace where a history has runs of several namespaces.
"""

import re
from collections import deque
from collections.abc import Iterable

import msgspec

from controller.api.keys import RUN_TIMES_KEY
from controller.api.meta import ConfigMap
from controller.forecast.run_times import (
    MAX_EVICTED,
    MAX_KEYS,
    MAX_RUNS,
    MAX_SECONDS,
    NAMESPACE_DIGITS,
    Key,
    Level,
    Outcome,
    Run,
    RunHistory,
    RunTimes,
)

#: Most bytes of the document; etcd and the API server accept objects of up to 1.5 MiB.
MAX_BYTES = 256 * 1024

_VERSION = 1

_RUN = re.compile(rf"(\d{{1,8}})(f?)(?:/(\d{{1,8}}))?(?:@([0-9a-f]{{{NAMESPACE_DIGITS}}}))?", re.ASCII)

_MAX_DIGEST = 32


class _Document(msgspec.Struct):
    version: int
    until: int
    histories: list[tuple[int, str, str, str, str]]


class RunTimesError(ValueError):
    """A document that is not the stored run times; the message says why."""


def encode_run_times(run_times: RunTimes, until: int) -> bytes:
    """Return *run_times* as JSON; forgets the least recently used ones while it is longer than `MAX_BYTES`."""
    while True:
        histories = [
            (int(key.level), key.namespace, key.digest, _format(history.runs), _format(history.evicted))
            for key, history in run_times
        ]
        document = msgspec.json.encode(_Document(_VERSION, until, histories))
        if len(document) <= MAX_BYTES:
            return document
        for _ in range(max(len(run_times) // 10, 1)):
            run_times.drop_one()


def _format(runs: Iterable[Run]) -> str:
    return " ".join(
        f"{run.seconds}{'f' * (run.outcome is Outcome.FAILED)}{f'/{run.estimate}' if run.estimate else ''}"
        f"{f'@{run.namespace}' if run.namespace else ''}"
        for run in runs
    )


def decode_config_map(raw: bytes) -> tuple[RunTimes, int]:
    """Return the run times in a ConfigMap and the time until which they include ends; raise `RunTimesError`."""
    try:
        manifest = msgspec.json.decode(raw, type=ConfigMap)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RunTimesError(str(error)) from error
    return decode_run_times(manifest.data.get(RUN_TIMES_KEY, ""))


def decode_run_times(text: str | bytes) -> tuple[RunTimes, int]:
    """Return the run times in *text* and the time until which they include ends; raise `RunTimesError`."""
    if len(text) > 4 * MAX_BYTES:
        raise RunTimesError(f"it has {len(text)} characters, more than {4 * MAX_BYTES}")
    try:
        document = msgspec.json.decode(text, type=_Document)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RunTimesError(str(error)) from error
    if document.version != _VERSION:
        raise RunTimesError(f"its version is {document.version}; this program reads version {_VERSION}")
    histories = {}
    for level, namespace, digest, runs, evicted in document.histories[-MAX_KEYS:]:
        if level not in set(Level) or max(len(namespace), len(digest)) > _MAX_DIGEST:
            raise RunTimesError(f"{level!r} {namespace[:_MAX_DIGEST]!r} {digest[:_MAX_DIGEST]!r} is not a key")
        histories[Key(Level(level), namespace, digest)] = RunHistory(
            deque(_parse(runs, Outcome.COMPLETED), MAX_RUNS), deque(_parse(evicted, Outcome.EVICTED), MAX_EVICTED)
        )
    return RunTimes(histories), max(document.until, 0)


def _parse(text: str, outcome: Outcome) -> Iterable[Run]:
    for word in text.split():
        match = _RUN.fullmatch(word)
        if match is None or not 1 <= int(match[1]) <= MAX_SECONDS:
            raise RunTimesError(
                f"{word[:_MAX_DIGEST]!r} is not a run; runs are written as 1200, 95f, 3600/7200 or 1200@1a2b"
            )
        estimate = min(int(match[3] or 0), MAX_SECONDS)
        yield Run(int(match[1]), Outcome.FAILED if match[2] else outcome, estimate, match[4] or "")
