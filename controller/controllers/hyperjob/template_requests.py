"""Counts the requests of a template's pods, as the engine counts Jobs (D2)."""

from functools import lru_cache

import msgspec

from controller.api.jobs import decode_job
from controller.api.volcanojobs import JobSpec
from controller.cache.translate.templates import JobTranslator
from controller.controllers.hyperjob.pod_distribution import PodCounts
from controller.engine.state.requests import pod_request
from controller.engine.state.resources import Resources, scale, total


class SplitError(ValueError):
    """A HyperJob that cannot be split because a field cannot be read; the message names the field and the error."""


def pod_requests(template: JobSpec) -> tuple[Resources, ...]:
    """Return the requests of one pod of each task, in the order of the tasks; raises `SplitError`."""
    return _requests(msgspec.json.encode(template.model_dump(by_alias=True, exclude_unset=True, mode="json")))


@lru_cache(maxsize=256)
def _requests(spec: bytes) -> tuple[Resources, ...]:
    facts = JobTranslator().translate(decode_job(b'{"spec":' + spec + b"}"))
    if facts.requests is None or facts.requests.job is None:
        raise SplitError(facts.decode_error)
    return tuple(pod_request(task.pod) for task in facts.requests.job.tasks)


def sum_requests(requests: tuple[Resources, ...], pods: PodCounts) -> Resources:
    """Return the total requests of the given number of pods of each task."""
    return total(scale(request, count) for request, count in zip(requests, pods, strict=True))
