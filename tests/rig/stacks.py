"""Namespaces of tests on a running system."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from localup.apply import create_namespace, delete_namespace
from localup.processes import tail
from localup.stack import Stack


@contextmanager
def new_namespace(stack: Stack) -> Iterator[str]:
    """Yield the name of a new namespace, and delete it; the ends of the logs are printed for failed tests."""
    stack.check()
    name = f"team-{uuid.uuid4().hex[:8]}"
    create_namespace(stack.plane.admin, name)
    try:
        yield name
    finally:
        for part in (stack.controller, stack.karmada):
            if part.log.exists():
                print(f"--- {part.name}", tail(part.log, lines=40), sep="\n")  # noqa: T201 -- shown for a failed test
    delete_namespace(stack.plane.admin, name)
    stack.check()
