"""Translates PriorityClasses."""

import sys

from controller.api import priorityclasses as wire
from controller.cache.objects import CachedPriorityClass
from controller.cache.translate.units import parse_resource_version


def translate_priority_class(priority_class: wire.PriorityClass) -> CachedPriorityClass:
    """Return the cached form of *priority_class*."""
    meta = priority_class.metadata
    return CachedPriorityClass(
        meta.uid,
        parse_resource_version(meta.resource_version),
        sys.intern(meta.name),
        priority_class.value,
        is_default=priority_class.global_default,
        preempts=priority_class.preemption_policy != "Never",
    )
