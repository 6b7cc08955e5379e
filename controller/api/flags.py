"""Reads command-line flags into a settings model: one flag for each field, with its default and reason in the help."""

import argparse
import ipaddress
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar, get_args

from pydantic import BaseModel, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticUndefined

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(gt=0, le=3600)]

Model = TypeVar("Model", bound=BaseModel)
Groups = Mapping[str, Mapping[str, str | None]]
"""Groups of flags in the help by title, each a field with the placeholder of its value; ``None``: a switch."""


class SettingsError(Exception):
    """A flag is invalid; the message names it."""


def is_loopback(host: str) -> bool:
    """Return whether only programs on the same machine can connect to a server that listens on *host*."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_flags(
    model: type[Model],
    arguments: Sequence[str] | None,
    *,
    description: str,
    groups: Groups | None = None,
    epilog: str = "",
) -> Model:
    """Return the settings in *arguments*, by default those of the process; `--help` prints all flags and exits.

    Without *groups* every field is a flag with a value.

    The field `host_port` is the flag `--host-port`, which may be repeated for a tuple. The program is the package of
    the model. An invalid value of a program with commands prints one sentence and exits with code 2, as argparse does;
    of any other program it raises `SettingsError`.
    """
    program = model.__module__.rpartition(".")[0]
    parser = argparse.ArgumentParser(
        prog=f"python -m {program}",
        allow_abbrev=False,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command = model.model_fields.get("command")
    if command:
        parser.add_argument("command", choices=get_args(command.annotation))
    for title, flags in ({"": _all_flags(model)} if groups is None else groups).items():
        group = parser.add_argument_group(title) if title else parser
        for name, placeholder in flags.items():
            _add_flag(group, model, name, placeholder)
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        _refuse_empty_paths(model, given)
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        reason = first["msg"].removeprefix("Value error, ")
        flag = _flag(str(first["loc"][0])) if first["loc"] else ""
        if command:
            parser.exit(2, f"{program}: {flag and f'{flag}: '}{reason}\n")
        value = "" if first["type"] == "missing" else f" {first['input']!r}"
        raise SettingsError(f"{flag}{value}: {reason}" if flag else reason) from error


def _refuse_empty_paths(model: type[BaseModel], given: Mapping[str, object]) -> None:
    """Raise `ValidationError` for an empty path, as of a variable that is not set: it would be the current folder."""
    for name, value in given.items():
        if value == "" and "Path" in str(model.model_fields[name].annotation):
            problem = PydanticCustomError("empty", "it is empty; name a file or folder, or leave the flag out")
            details = InitErrorDetails(type=problem, loc=(name,), input=value)
            raise ValidationError.from_exception_data(model.__name__, [details])


def _all_flags(model: type[BaseModel]) -> dict[str, str]:
    return {name: _placeholder(name, str(field.annotation)) for name, field in model.model_fields.items()}


def _placeholder(name: str, annotation: str) -> str:
    return "SECONDS" if name.endswith("_seconds") else "FILE" if "Path" in annotation else "VALUE"


def _add_flag(group: argparse._ActionsContainer, model: type[BaseModel], name: str, placeholder: str | None) -> None:
    field = model.model_fields[name]
    if placeholder is None:
        group.add_argument(_flag(name), dest=name, action="store_const", const=True, help=field.description)
        return
    default = "" if field.default in (None, (), PydanticUndefined) else f" (default: {field.default})"
    action = "append" if isinstance(field.default, tuple) else "store"
    group.add_argument(_flag(name), dest=name, action=action, metavar=placeholder, help=f"{field.description}{default}")


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
