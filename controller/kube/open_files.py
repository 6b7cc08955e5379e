"""Raises the limit of open files, which include connections, so that the limits of connections apply first."""

import resource

#: More than all limits of connections of a process together. Many container runtimes start a process with 1,024.
_OPEN_FILES = 16_384


def raise_open_files() -> None:
    """Allow this process more open files, as far as its hard limit permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
