"""Writes the CRDs of HyperJobs into the chart: `python docs/generate_crds.py [--check]`.

The JSON Schema that pydantic generates from the models is converted to the structural schema that Kubernetes requires.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from controller.api.hyperjobs import BatchHyperJobSpec, HyperJobSpec, HyperJobStatus
from controller.api.keys import BATCH_HYPERJOBS, HYPERJOBS, Resource

Schema = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "charts" / "volcano-global" / "files" / "crds"

MODELS: Mapping[Resource, type[BaseModel]] = {HYPERJOBS: HyperJobSpec, BATCH_HYPERJOBS: BatchHyperJobSpec}

#: A server allows a short name for one kind only, so upstream's API group has them.
_SHORT_NAMES: Mapping[Resource, list[str]] = {HYPERJOBS: ["hyperjob", "hj"]}

_COLUMNS = (
    ("PHASE", "string", ".status.phase"),
    ("RUNNING", "string", ".status.partsRunning"),
    ("QUEUE", "string", ".status.queue"),
    ("REASON", "string", ".status.reason"),
    ("CLUSTERS", "string", ".status.clusters"),
    ("AGE", "date", ".metadata.creationTimestamp"),
)
_COPIED_KEYS = (
    "type",
    "format",
    "description",
    "enum",
    "required",
    "minimum",
    "maximum",
    "maxItems",
    "maxLength",
    "pattern",
)
_OPEN_OBJECT: Schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crd_files() -> dict[str, str]:
    """Return the CustomResourceDefinitions as YAML, by file name."""
    return {
        f"{resource.group}_{resource.plural}.yaml": yaml.safe_dump(build_crd(resource), sort_keys=False, width=120)
        for resource in MODELS
    }


def build_crd(resource: Resource) -> Schema:
    """Return the CustomResourceDefinition of one API group."""
    names: Schema = {
        "kind": resource.kind,
        "listKind": f"{resource.kind}List",
        "plural": resource.plural,
        "singular": resource.kind.lower(),
        "categories": ["volcano"],
    }
    if resource in _SHORT_NAMES:
        names["shortNames"] = _SHORT_NAMES[resource]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "spec": {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [_version(resource)]},
    }


def _version(resource: Resource) -> Schema:
    columns = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in _COLUMNS]
    properties = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": structural_schema(MODELS[resource]),
        "status": structural_schema(HyperJobStatus),
    }
    return {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }


def structural_schema(model: type[BaseModel]) -> Schema:
    """Return the structural schema of *model*: references resolved, one type for each value."""
    schema = model.model_json_schema(by_alias=True)
    return _to_structural(schema, schema.get("$defs", {}))


def _to_structural(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    schema = _resolve(schema, known)
    if schema.get("x-opaque"):
        return {**_OPEN_OBJECT, "description": schema["description"]}
    plain = {key: schema[key] for key in _COPIED_KEYS if key in schema}
    plain |= {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    if "const" in schema:
        plain["enum"] = [schema["const"]]
    if "x-default" in schema:
        plain["default"] = schema["x-default"]
    if plain.get("type") == "integer":
        plain.setdefault("format", "int32")
    if "items" in schema:
        plain["items"] = _to_structural(schema["items"], known)
    if "properties" in schema:
        plain["properties"] = {
            name: _to_structural(subschema, known) for name, subschema in schema["properties"].items()
        }
    return plain | _additional(schema, known)


def _resolve(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    """Return *schema* with its reference resolved, and without the null of an optional field."""
    others = [subschema for subschema in schema.get("anyOf", ()) if subschema.get("type") != "null"]
    if others:
        (only,) = others
        schema = {**only, **{key: value for key, value in schema.items() if key != "anyOf"}}
    if "$ref" in schema:
        found = known[schema["$ref"].rpartition("/")[2]]
        schema = {**found, **{key: value for key, value in schema.items() if key != "$ref"}}
    return schema


def _additional(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    values = schema.get("additionalProperties")
    if values is True:
        return {"x-kubernetes-preserve-unknown-fields": True}
    return {"additionalProperties": _to_structural(values, known)} if values else {}


def outdated_crds() -> list[str]:
    """Return the files of the chart that differ from the generated CRDs."""
    return [
        name
        for name, text in crd_files().items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text() != text
    ]


def main() -> None:
    """Write the CRDs, or with ``--check`` only report which are outdated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a definition is outdated")
    names = outdated_crds()
    if parser.parse_args().check:
        sys.exit(f"outdated: {', '.join(names)}; run python docs/generate_crds.py" if names else 0)
    for name in names:
        (FOLDER / name).write_text(crd_files()[name])


if __name__ == "__main__":
    main()
