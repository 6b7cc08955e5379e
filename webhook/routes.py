"""Maps each path of the webhook to its admission handler."""

from collections.abc import Callable, Mapping

from webhook.configuration import Configuration
from webhook.hyperjobs import mutate_hyperjob, validate_hyperjob
from webhook.jobs import mutate_job, validate_job
from webhook.queue_cache import QueueCache
from webhook.queues import mutate_queue, validate_queue
from webhook.resourcebindings import review_binding
from webhook.response import AdmissionResponse
from webhook.review import Request

AdmissionHandler = Callable[[Request], AdmissionResponse]


def admission_handlers(configuration: Configuration, queues: QueueCache) -> Mapping[str, AdmissionHandler]:
    """Return the admission handler of each path."""
    return {
        "/resourcebindings/mutate": lambda request: review_binding(request, configuration.gated_kinds),
        "/jobs/mutate": lambda request: mutate_job(request, configuration.jobs),
        "/jobs/validate": lambda request: validate_job(request, configuration.jobs, queues),
        "/hyperjobs/mutate": lambda request: mutate_hyperjob(request, configuration.jobs),
        "/hyperjobs/validate": lambda request: validate_hyperjob(request, configuration.jobs, queues),
        "/queues/mutate": mutate_queue,
        "/queues/validate": lambda request: validate_queue(request, queues),
    }
