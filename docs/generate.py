"""Writes what the documents take from the code: `python docs/generate.py [--check]`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`. Its rows and their first columns come from the code.
Columns that the code does not know are written by hand and stay with their row. A block that begins with
`$ volcano-global …` shows what that command prints.
"""

import argparse
import collections.abc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
import msgspec
import typer
import yaml
from prometheus_client import CollectorRegistry
from pydantic import AwareDatetime, BaseModel
from pydantic.fields import FieldInfo

from certs.settings import CertificateSettings as CertsSettings
from console.settings import ConsoleSettings
from controller.api import keys
from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.hyperjobs import BatchHyperJobSpec, HyperJobSpec
from controller.api.visibility import VisibleWorkloads
from controller.cache.record import AdmissionRecord
from controller.cache.store import Store
from controller.cli.__main__ import app
from controller.cli.render.data import DataSources
from controller.cli.render.explain import Explanation, QueueExplanation
from controller.cli.render.hyperjob import HyperJobReport
from controller.cli.render.plan import Clusters, Pending, PlanReport, WorkloadUsages
from controller.cli.render.queues import Queues
from controller.cli.render.replay import DecisionHistory, ReplayReport
from controller.engine.engine import Engine
from controller.engine.reasons import ABOUT_CAPACITY, EvictionReason, Reason
from controller.history.settings import HistorySettings
from controller.reporting.messages import BINDING_WARNINGS, EVICTION_MESSAGES, PENDING_MESSAGES, ROOT_QUEUE_MESSAGES
from controller.reporting.metrics import ControllerMetrics
from controller.reporting.state_collector import Caches
from controller.settings import ControllerSettings
from docs.generate_schema import attribute_docstrings
from install.settings import InstallSettings
from webhook.metrics import WebhookMetrics
from webhook.settings import WebhookSettings

ROOT = Path(__file__).parents[1]
CHART = ROOT / "charts" / "volcano-global"

_BLOCK = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
_CONSOLE = re.compile(r"```console\n\$ (volcano-global [^\n]*)\n.*?```", re.DOTALL)
_ROW = re.compile(r"^\| `([^`]+)` \|(.*)\|$", re.MULTILINE)
_MISSING = "TODO"


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its key, what the code says of it, and a description where the code has one."""

    key: str
    cells: tuple[str, ...]
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its columns after the first, and its rows; the last columns are written by hand."""

    head: tuple[str, ...]
    rows: tuple[Row, ...]
    by_hand: int = 0


def configuration() -> Table:
    """Return every key of the configuration file."""
    rows = tuple(Row(path, (_type(field), _default(field))) for path, field in configuration_keys())
    return Table(("key", "values", "default", "what it decides"), rows, by_hand=1)


def configuration_keys() -> Iterator[tuple[str, FieldInfo]]:
    """Yield every key of the configuration by its path; `[]` stands for one entry of a list."""
    for path, field in _model(VolcanoGlobalConfiguration, ""):
        if path not in {"apiVersion", "kind"}:
            yield path, field


def _model(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    for field in model.model_fields.values():
        path = f"{prefix}{field.alias}"
        inner = _inner(field.annotation)
        if inner is None or inner.__name__ == "JobSpec":
            yield path, field
        elif get_origin(field.annotation) is tuple:
            yield path, field
            yield from _model(inner, f"{path}[].")
        else:
            yield from _model(inner, f"{path}.")


def _inner(annotation: object) -> type[BaseModel] | None:
    """Return the model that a field holds, alone, as an option or in a list."""
    arguments = [each for each in get_args(annotation) if each not in {Ellipsis, type(None)}]
    candidates = [annotation, *(arguments if len(arguments) == 1 else ())]
    return next((each for each in candidates if isinstance(each, type) and issubclass(each, BaseModel)), None)


def _type(field: FieldInfo) -> str:
    bounds = [(mark.ge, "≥") for mark in field.metadata if isinstance(mark, annotated_types.Ge)]
    bounds += [(mark.le, "≤") for mark in field.metadata if isinstance(mark, annotated_types.Le)]
    limits = "".join(f", {sign} {bound}" for bound, sign in bounds)
    return _type_of(field.annotation) + limits


def _type_of(annotation: object) -> str:  # noqa: PLR0911 -- one return for each type
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    if origin in {Union, UnionType}:
        return " or ".join(_type_of(each) for each in arguments if each is not type(None))
    if hasattr(annotation, "__metadata__"):
        return _type_of(annotation.__origin__)
    if origin in {tuple, frozenset, list}:
        return f"list of {_plural(_type_of(arguments[0]))}"
    if origin is dict:
        return "map"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {"ClusterSelector": "label selector", "JobSpec": "spec of a Volcano Job"}.get(
            annotation.__name__, "entry"
        )
    return {
        Any: "any",
        bool: "true, false",
        int: "integer",
        float: "number",
        str: "string",
        timedelta: "duration",
        AwareDatetime: "time",
    }[annotation]


def _plural(word: str) -> str:
    return {"entry": "entries", "string": "strings"}.get(word, word)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, timedelta):
        seconds = int(value.total_seconds())
        unit, length = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if not seconds % size)
        return f"`{seconds // length}{unit}`"
    if isinstance(value, tuple | frozenset):
        return f"`[{', '.join(sorted(value))}]`"
    return "none" if value is None else f"`{str(value).lower() if isinstance(value, bool) else value}`"


def helm_values() -> Table:
    """Return every value of the chart but those of `admission`, which are the configuration."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    rows = [Row(name, (_shown(default),)) for name, default in chart_values(values, schema)]
    return Table(("value", "default", "what it is for"), tuple(rows), by_hand=1)


def chart_values(node: Mapping[str, Any], schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values that are set one by one; a map of any keys, and `admission`, count as one."""
    for key, value in node.items():
        inner = schema["properties"][key]
        if "properties" in inner and f"{path}{key}" != "admission":
            yield from chart_values(value, inner, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


def _shown(value: object) -> str:
    if isinstance(value, dict) and value:
        return "see `values.yaml`"
    if isinstance(value, bool | dict | list) or value == "":
        return f"`{json.dumps(value, ensure_ascii=False)}`"
    return f"`{value}`"


def flags(settings: type[BaseModel]) -> Table:
    """Return the flags of one process, as its `--help` describes them."""
    rows = tuple(
        Row(f"--{name.replace('_', '-')}", (_flag_default(field),), field.description or _MISSING)
        for name, field in settings.model_fields.items()
        if name != "command"
    )
    return Table(("flag", "default", "what it is for"), rows)


def _flag_default(field: FieldInfo) -> str:
    if field.is_required() or field.default_factory is not None or field.default in (None, ()):
        return ""
    value = field.default
    return f"`{str(value).lower() if isinstance(value, bool) else f'{value:g}' if isinstance(value, float) else value}`"


def metrics(registry: CollectorRegistry) -> Table:
    """Return the metrics of one process, without those of the process itself."""
    rows: list[Row] = []
    for collector in registry._collector_to_names:  # noqa: SLF001 -- the library has no other way to their labels
        for family in collector.collect():
            if family.name.startswith("volcano_global"):
                labels = getattr(collector, "_labelnames", None) or getattr(family, "_labelnames", ())
                name = f"{family.name}_total" if family.type == "counter" else family.name
                shown = ", ".join(f"`{label}`" for label in labels)
                rows.append(Row(name, (family.type, shown), family.documentation))
    return Table(("metric", "type", "labels", "meaning"), tuple(rows))


def controller_metrics() -> Table:
    """Return the metrics of the controller."""
    shown, engine = ControllerMetrics(), Engine()
    # The metrics of queues exist from the first cycle on.
    engine.plan(0)
    shown.register_state(lambda: engine, Store(), Caches({}))
    return metrics(shown.registry)


def reasons() -> Table:
    """Return the pending reasons, with the sentence that events and `explain` show."""
    rows = []
    for reason in Reason:
        sentence = f"`{_message(PENDING_MESSAGES, reason)}`"
        if at_root := ROOT_QUEUE_MESSAGES.get(reason):
            sentence += f"; at the root `{at_root}`"
        rows.append(Row(str(reason), ("capacity" if reason in ABOUT_CAPACITY else "other", sentence)))
    return Table(("reason", "about", "message", "what it means", "what to do"), tuple(rows), by_hand=2)


def _message(messages: Mapping[Any, str], reason: Reason | EvictionReason) -> str:
    if reason not in messages:
        sys.exit(f"{reason} has no message: write one in controller/reporting/messages.py")
    return messages[reason]


def evictions() -> Table:
    """Return the reasons of evictions."""
    rows = tuple(Row(str(reason), (f"`{_message(EVICTION_MESSAGES, reason)}`",)) for reason in EvictionReason)
    return Table(("reason", "message", "what it means", "what to do"), rows, by_hand=2)


def warnings() -> Table:
    """Return the warnings about a binding, with their messages."""
    rows = tuple(Row(str(condition), (), f"`{message}`") for condition, message in BINDING_WARNINGS.items())
    return Table(("reason", "message"), rows)


def labels() -> Table:
    """Return the labels and annotations that the code reads or writes."""
    return Table(("name", "what it is"), tuple(Row(name, ()) for name in label_names()), by_hand=1)


def label_names() -> list[str]:
    """Return every name of `controller.api.keys` that is a label or an annotation."""
    values = [each for value in vars(keys).values() for each in (value if isinstance(value, tuple) else (value,))]
    return [each for each in values if isinstance(each, str) and re.fullmatch(r"[a-z0-9.-]+\.[a-z]+/[a-z-]+", each)]


def record() -> Table:
    """Return the fields of the record of admission."""
    fields = msgspec.structs.fields(AdmissionRecord)
    return Table(
        ("field", "what it is"),
        tuple(Row(name, ()) for name in ("uid", *(field.encode_name for field in fields))),
        by_hand=1,
    )


def hyperjobs() -> Table:
    """Return the fields of a HyperJob's spec, with the template of the second spelling."""
    fields = {path: field for model in (HyperJobSpec, BatchHyperJobSpec) for path, field in _model(model, "")}
    shown = ((path, field) for path, field in fields.items() if not path.startswith("template."))
    rows = (Row(path, (_type(field), _default(field)), field.description or "") for path, field in shown)
    return Table(("field", "values", "default", "meaning"), tuple(rows))


def answer(report: type[msgspec.Struct]) -> Table:
    """Return the fields of a command's JSON."""
    return Table(("field", "type", "meaning"), tuple(_fields(report, "")))


def _fields(struct: type[msgspec.Struct], prefix: str) -> Iterator[Row]:
    texts = attribute_docstrings(struct)
    types = get_type_hints(struct)
    for field in msgspec.structs.fields(struct):
        annotation = types[field.name]
        kinds = [each for each in get_args(annotation) if each not in {type(None), msgspec.UnsetType}]
        is_optional = get_origin(annotation) in {Union, UnionType} and len(kinds) == 1
        value = kinds[0] if is_optional else annotation
        is_list = get_origin(value) is tuple
        inner = get_args(value)[0] if is_list else value
        is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
        words = "or null" if type(None) in get_args(annotation) else ""
        kind = "list of objects" if is_list and is_struct else "object" if is_struct else _json_type(value)
        yield Row(f"{prefix}{field.encode_name}", (f"{kind} {words}".strip(),), texts.get(field.name, ""))
        if is_struct:
            yield from _fields(inner, f"{prefix}{field.encode_name}{'[]' if is_list else ''}.")


def _json_type(annotation: object) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in {Union, UnionType}:
        return " or ".join(_json_type(each) for each in arguments if each is not type(None))
    if origin in {tuple, list}:
        return f"list of {_json_type(arguments[0])}s"
    if origin in {dict, Mapping, collections.abc.Mapping}:
        return "map"
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    names = {bool: "true, false", int: "integer", float: "number", dict: "map"}
    return names.get(annotation, "object" if annotation is object else "string")


def commands() -> str:
    """Return the help of every command of `volcano-global`."""
    return "\n".join(_command(typer.main.get_command(app), "volcano-global")).rstrip() + "\n"


def _command(command: Any, name: str, common: frozenset[str] = frozenset()) -> Iterator[str]:
    if name != "volcano-global":
        yield from (f"## {name}", "")
    text, *examples = (command.help or "").split("\b")
    yield from (" ".join(text.split()), "")
    for block in examples:
        yield from ("```text", block.strip("\n").rstrip(), "```", "")
    inner = getattr(command, "commands", {})
    if "plan" in inner:
        of_queues = {parameter.name for parameter in inner["queues"].params}
        common = frozenset(parameter.name for parameter in inner["plan"].params if parameter.name in of_queues)
        special = frozenset(parameter.name for parameter in inner["plan"].params) - common
        yield from ("## Common options", "", *_options(inner["plan"], special))
    yield from _options(command, common)
    for word, below in inner.items():
        yield from _command(
            below, f"{name} {word}", frozenset() if word in {"replay", "history", "completion"} else common
        )


def _options(command: Any, common: frozenset[str]) -> Iterator[str]:
    shown = [
        each for each in command.params if each.name not in {"help", *common} and not getattr(each, "hidden", False)
    ]
    if shown:
        yield from ("| argument or option | default | what it is for |", "|---|---|---|", *map(_option, shown), "")


def _option(parameter: Any) -> str:
    names = ", ".join(f"`{each}`" for each in [*parameter.opts, *parameter.secondary_opts])
    if not parameter.opts[0].startswith("-"):
        names = f"`{(parameter.metavar or parameter.name).upper()}`"
    default = parameter.default if isinstance(parameter.default, str | int | float) else None
    shown = "" if default is None or default is False else f"`{getattr(default, 'value', default)}`"
    return f"| {names} | {shown} | {_cell(parameter.help or '')} |"


TABLES: Mapping[str, Callable[[], Table]] = {
    "configuration": configuration,
    "helm-values": helm_values,
    "controller-flags": lambda: flags(ControllerSettings),
    "webhook-flags": lambda: flags(WebhookSettings),
    "console-flags": lambda: flags(ConsoleSettings),
    "history-flags": lambda: flags(HistorySettings),
    "certs-flags": lambda: flags(CertsSettings),
    "install-flags": lambda: flags(InstallSettings),
    "controller-metrics": controller_metrics,
    "webhook-metrics": lambda: metrics(WebhookMetrics().registry),
    "reasons": reasons,
    "evictions": evictions,
    "warnings": warnings,
    "labels": labels,
    "record": record,
    "json-plan": lambda: answer(PlanReport),
    "json-queues": lambda: answer(Queues),
    "json-pending": lambda: answer(Pending),
    "json-clusters": lambda: answer(Clusters),
    "json-explain-job": lambda: answer(Explanation),
    "json-explain-hyperjob": lambda: answer(HyperJobReport),
    "json-explain-queue": lambda: answer(QueueExplanation),
    "json-replay": lambda: answer(ReplayReport),
    "json-top": lambda: answer(WorkloadUsages),
    "json-history": lambda: answer(DecisionHistory),
    "json-data": lambda: answer(DataSources),
    "json-visible-workloads": lambda: answer(VisibleWorkloads),
    "hyperjobs": hyperjobs,
}


def page(text: str) -> str:
    """Return a page with its tables as the code has them now."""

    def block(match: re.Match[str]) -> str:
        name = match[2]
        body = commands() if name == "commands" else _rendered(TABLES[name](), match[0])
        return f"{match[1]}\n{body}\n{match[3]}"

    return _BLOCK.sub(block, text)


def _rendered(table: Table, before: str) -> str:
    by_hand = {key: [cell.strip() for cell in re.split(r"(?<!\\)\|", rest)] for key, rest in _ROW.findall(before)}
    lines = [f"| {' | '.join(table.head)} |", f"|{'---|' * len(table.head)}"]
    for row in table.rows:
        cells = [*row.cells, *([] if row.description is None else [row.description])]
        own = [_cell(cell) for cell in cells]
        added = by_hand.get(row.key, [_MISSING] * table.by_hand)[-table.by_hand :] if table.by_hand else []
        lines.append(f"| {' | '.join([f'`{row.key}`', *own, *added])} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Return *text* as one cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def outputs(text: str) -> str:
    """Return a document with what its quoted commands print now."""
    return _CONSOLE.sub(lambda match: f"```console\n$ {match[1]}\n{_output(match[1])}```", text)


def _output(command: str) -> str:
    run, _, limit = command.partition(" | head -")
    arguments = run.removeprefix("volcano-global ").split()
    environment = {**os.environ, "COLUMNS": "120", "NO_COLOR": "1"}
    done = subprocess.run(  # noqa: S603 -- commands of these documents
        [sys.executable, "-m", "controller.cli", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()[: int(limit) if limit else None]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: Iterable[str] | None = None) -> int:
    """Write the pages, or say which are not current."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a page is not current")
    is_check = parser.parse_args(None if arguments is None else list(arguments)).check
    stale: list[str] = []
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        text = path.read_text()
        new = outputs(page(text))
        if _MISSING in new:
            names = [line.split("`")[1] for line in new.splitlines() if _MISSING in line]
            stale += [f"{path.name}: the row of {name} needs a description in place of {_MISSING}" for name in names]
        if new != text and is_check:
            stale.append(f"{path.name} is not current: run `make reference`")
        elif new != text:
            path.write_text(new)
    for line in stale:
        print(line)  # noqa: T201 -- to the user
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
