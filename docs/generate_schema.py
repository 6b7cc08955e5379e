"""Write the JSON Schema of the outputs of `volcano-global COMMAND -o json`: `docs/generate_schema.py [--check]`."""

import ast
import inspect
import json
import sys
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec

from controller.api.visibility import VisibleWorkloads
from controller.cli.render.data import DataSources
from controller.cli.render.explain import Explanation, QueueExplanation
from controller.cli.render.hyperjob import HyperJobReport
from controller.cli.render.output import API_VERSION
from controller.cli.render.plan import Clusters, Pending, PlanReport, WorkloadUsages
from controller.cli.render.queues import Queues
from controller.cli.render.replay import DecisionHistory, ReplayReport
from controller.cli.render.simulate import SimulationReport

PATH = Path(__file__).parent / "reference" / "cli.schema.json"

#: The report of each command, and whether it is of a state, with the configuration that was used.
REPORTS: dict[str, tuple[type[msgspec.Struct], bool]] = {
    "plan": (PlanReport, True),
    "queues": (Queues, True),
    "pending": (Pending, True),
    "clusters": (Clusters, True),
    "top": (WorkloadUsages, True),
    "data": (DataSources, True),
    "explain-job": (Explanation, True),
    "explain-hyperjob": (HyperJobReport, True),
    "explain-queue": (QueueExplanation, True),
    "simulate": (SimulationReport, False),
    "history": (DecisionHistory, False),
    "replay": (ReplayReport, False),
    # `pending` and `explain job` for a user that may read one namespace only.
    "visible-workloads": (VisibleWorkloads, False),
}

_CONFIGURATION = {
    "type": "object",
    "properties": {
        "revision": {"type": "string"},
        "source": {"enum": ["Published", "File", "Defaults"]},
    },
    "required": ["revision", "source"],
}


def schema() -> dict[str, Any]:
    """Return the schema; `$defs` has one entry for each command, and those of its parts."""
    structs = [report for report, _ in REPORTS.values()]
    refs, parts = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    for part in parts.values():
        if "description" in part:
            # Only Python 3.13 and newer remove the indentation of docstrings.
            part["description"] = inspect.cleandoc(part["description"])
    for struct in {found for report in structs for found in _structs_in(report)}:
        texts, properties = attribute_docstrings(struct), parts[struct.__name__]["properties"]
        for field in msgspec.structs.fields(struct):
            if field.name in texts:
                properties[field.encode_name]["description"] = inspect.cleandoc(texts[field.name])
    commands = {
        command: _report(parts.pop(ref["$ref"].rpartition("/")[2]), is_of_state=is_of_state)
        for (command, (_, is_of_state)), ref in zip(REPORTS.items(), refs, strict=True)
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Outputs of volcano-global COMMAND -o json, {API_VERSION}",
        "description": "Validate the output of a command with the entry of $defs that has its name.",
        "$defs": {**commands, **dict(sorted(parts.items()))},
    }


def _structs_in(annotation: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs in a type, with those of their fields."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        yield annotation
        for inner in get_type_hints(annotation).values():
            yield from _structs_in(inner)
    for inner in get_args(annotation):
        yield from _structs_in(inner)


def attribute_docstrings(struct: type) -> dict[str, str]:
    """Return what stands below each field of a class."""
    (parsed,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(parsed, ast.ClassDef)  # noqa: S101 -- the source of a class
    return {
        field.target.id: text.value.value
        for field, text in pairwise(parsed.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def _report(own: dict[str, Any], *, is_of_state: bool) -> dict[str, Any]:
    """Return the schema of a report, with what every report begins with."""
    head: dict[str, Any] = {"configuration": _CONFIGURATION} if is_of_state else {}
    if "apiVersion" not in own["properties"]:
        head = {"apiVersion": {"const": API_VERSION}, **head}
    properties = {**head, **own["properties"]}
    return {**own, "properties": properties, "required": [*head, *own["required"]]}


def main() -> int:
    """Write the schema, or say that it is not current."""
    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    if "--check" not in sys.argv[1:]:
        PATH.write_text(text)
    elif not PATH.exists() or PATH.read_text() != text:
        print(f"{PATH.name} is not current: run `make reference`")  # noqa: T201 -- to the user
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
