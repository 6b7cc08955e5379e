"""Describes YAML errors for users."""


def describe_yaml_error(error: Exception) -> str:
    """Return the problem with its line and column, on one line of text."""
    mark = getattr(error, "problem_mark", None)
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    return f"{place}{getattr(error, 'problem', None) or ' '.join(str(error).split())}"
