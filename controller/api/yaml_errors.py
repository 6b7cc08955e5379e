"""Describes errors of YAML, and of its values, for users."""

from pydantic_core import ErrorDetails

#: Messages in place of those that name types of Python.
_TYPES = {
    "model_type": "input should be a mapping",
    "dict_type": "input should be a mapping",
    "tuple_type": "input should be a list",
    "list_type": "input should be a list",
    "frozen_set_type": "input should be a list",
}


def describe_yaml_error(error: Exception) -> str:
    """Return the problem with its line and column, on one line of text."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{getattr(error, 'problem', None) or ' '.join(str(error).split())}"


def describe_value_error(details: ErrorDetails) -> str:
    """Return why a value is invalid, without its path."""
    message = details["msg"].removeprefix("Value error, ")
    return _TYPES.get(details["type"], f"{message[:1].lower()}{message[1:]}")
