"""PriorityClasses as names with values."""

import sys

from controller.api import priorityclasses as wire
from controller.cache.facts import PriorityClassFacts
from controller.cache.translate.amounts import version


def priority_class_facts(priority_class: wire.PriorityClass) -> PriorityClassFacts:
    """Return what is kept of *priority_class*."""
    meta = priority_class.metadata
    return PriorityClassFacts(
        meta.uid,
        version(meta.resource_version),
        sys.intern(meta.name),
        priority_class.value,
        is_default=priority_class.global_default,
        preempts=priority_class.preemption_policy != "Never",
    )
