"""Names of objects as kubectl takes and prints them."""

from controller.cli.errors import InputError


def split_name(text: str) -> tuple[str, str]:
    """Return namespace and name of ``NAME``, ``NAMESPACE/NAME`` or ``KIND.GROUP/[NAMESPACE/]NAME``; raise `InputError`.

    A first part with a dot, or before two other parts, is a kind, as in ``-o name``.
    """
    *parts, name = text.split("/")
    if parts and (len(parts) == 2 or "." in parts[0]):  # noqa: PLR2004 -- kind and namespace
        parts = parts[1:]
    if not name or len(parts) > 1 or parts == [""]:
        raise InputError(f"{text!r} is not a name; write NAME or NAMESPACE/NAME")
    return "".join(parts), name


def without_kind(text: str) -> str:
    """Return the name of an object without a namespace from ``NAME`` or ``KIND/NAME``."""
    return text.rpartition("/")[2]
