"""Which path judges what: one line for each; judges nothing itself."""

from collections.abc import Callable, Mapping

from controller.api.review import Request
from webhook.configuration import Configuration
from webhook.hyperjobs import mutate_hyperjob, validate_hyperjob
from webhook.jobs import mutate_job, validate_job
from webhook.queuebook import QueueBook
from webhook.queues import mutate_queue, validate_queue
from webhook.resourcebindings import review_binding
from webhook.verdict import Verdict

Reviewer = Callable[[Request], Verdict]


def reviewers(configuration: Configuration, queues: QueueBook) -> Mapping[str, Reviewer]:
    """Return who judges the reviews that are sent to each path."""
    return {
        "/resourcebindings/mutate": lambda asked: review_binding(asked, configuration.gate),
        "/jobs/mutate": lambda asked: mutate_job(asked, configuration.jobs),
        "/jobs/validate": lambda asked: validate_job(asked, configuration.jobs, queues),
        "/hyperjobs/mutate": lambda asked: mutate_hyperjob(asked, configuration.jobs),
        "/hyperjobs/validate": lambda asked: validate_hyperjob(asked, configuration.jobs, queues),
        "/queues/mutate": mutate_queue,
        "/queues/validate": lambda asked: validate_queue(asked, queues),
    }
