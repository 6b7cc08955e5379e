"""Generates the image's CycloneDX SBOM from the locked requirements, without network access.

`python docs/generate_sbom.py` prints it. Equal requirements produce equal output.
"""

import hashlib
import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==([^ \\;]+)(?: ; ([^\\]+?))? *\\?$")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA: Final = re.compile(r"^\s+#\s+(?:via\s+)?([A-Za-z0-9._-]+)(?: \(.*\))?$")
_NAMESPACE: Final = uuid.UUID("5f0f3d1e-5a2c-4a57-9a0e-5d3c1f3f6c55")


@dataclass(slots=True)
class LockedRequirement:
    """A locked requirement with its file hashes and the packages that require it."""

    name: str
    version: str
    marker: str = ""
    hashes: list[str] = field(default_factory=list)
    required_by: list[str] = field(default_factory=list)

    @property
    def reference(self) -> str:
        """Return the package URL."""
        return f"pkg:pypi/{re.sub(r'[-_.]+', '-', self.name).lower()}@{self.version}"


def parse_requirements(text: str) -> list[LockedRequirement]:
    """Return the requirements locked in *text*, a requirements file with hashes and `via` comments."""
    pins: list[LockedRequirement] = []
    for line in text.splitlines():
        if found := _PIN.match(line):
            pins.append(LockedRequirement(found[1], found[2], (found[3] or "").strip()))
        elif pins:
            pins[-1].hashes += _HASH.findall(line)
            if (via := _VIA.match(line)) and via[1] != "via":
                pins[-1].required_by.append(via[1])
    return pins


def build_sbom(project: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return the SBOM of *project* (a table of pyproject.toml) with the requirements in *text*."""
    pins = parse_requirements(text)
    name, version = project["name"], project["version"]
    ours = f"pkg:generic/{name}@{version}"
    digest = hashlib.sha256(text.encode()).hexdigest()
    license_id = {"license": {"id": project["license"]}}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, f'{name} {version} {digest}')}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": ours,
                "name": name,
                "version": version,
                "licenses": [license_id],
            }
        },
        "components": [_component(pin) for pin in pins],
        "dependencies": list(_dependencies(ours, name, pins)),
    }


def _component(pin: LockedRequirement) -> dict[str, Any]:
    # The lock file has the hash of every file, one per platform.
    files = [
        {"type": "distribution", "url": pin.reference}
        | {"hashes": [{"alg": "SHA-256", "content": hashe} for hashe in pin.hashes]}
    ]
    marker = {"properties": [{"name": "volcano-global:marker", "value": pin.marker}]} if pin.marker else {}
    return {
        "type": "library",
        "bom-ref": pin.reference,
        "name": pin.name,
        "version": pin.version,
        "purl": pin.reference,
        "externalReferences": files,
        **marker,
    }


def _dependencies(ours: str, name: str, pins: list[LockedRequirement]) -> Iterator[dict[str, Any]]:
    references = {pin.name: pin.reference for pin in pins} | {name: ours}
    for wanting, reference in references.items():
        wanted = sorted(pin.reference for pin in pins if wanting in pin.required_by)
        yield {"ref": reference, "dependsOn": wanted}


def main() -> None:
    """Print the SBOM."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = (ROOT / "requirements.txt").read_text()
    json.dump(build_sbom(project, text), sys.stdout, indent=2)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
