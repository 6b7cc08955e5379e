"""Runs Helm and parses what it renders."""

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "volcano-global"
NAMESPACE = "karmada-system"
RELEASE = "vg"

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Manifest = dict[str, Any]


class HelmError(Exception):
    """Helm failed; the text is its output."""


@dataclass(frozen=True)
class Helm:
    """The Helm program with its own home folder."""

    program: Path
    home: Path

    def run(self, *arguments: str, values: Any = None, environment: dict[str, str] | None = None) -> str:
        command = [str(self.program), *map(str, arguments)]
        if values is not None:
            command += ["--values", "-"]
        places = {f"HELM_{each}_HOME": str(self.home / each.lower()) for each in ("CACHE", "CONFIG", "DATA")}
        ended = subprocess.run(
            command,
            input=json.dumps(values) if values is not None else None,
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.home), **places, **(environment or {})},
        )
        if ended.returncode:
            raise HelmError(ended.stdout + ended.stderr)
        return ended.stdout

    def template(self, values: Any = None, *flags: str) -> list[Manifest]:
        """Render an installation with *values*, including hooks."""
        text = self.run("template", RELEASE, CHART, "--namespace", NAMESPACE, *flags, values=values or {})
        return [each for each in yaml.load_all(text, Loader=_LOADER) if each]


@dataclass(frozen=True)
class Rendered:
    """Rendered manifests of an installation."""

    manifests: list[Manifest]

    def of(self, *kinds: str) -> list[Manifest]:
        return [each for each in self.manifests if each["kind"] in kinds]

    def one(self, kind: str, name: str) -> Manifest:
        (found,) = [each for each in self.of(kind) if each["metadata"]["name"] == f"{RELEASE}-volcano-global{name}"]
        return found

    def pods(self) -> dict[str, Manifest]:
        """Return the spec of every pod, by the name of its owner."""
        found = {}
        for each in self.of("Deployment", "Job", "CronJob", "Pod"):
            spec = each["spec"]
            if each["kind"] == "CronJob":
                spec = spec["jobTemplate"]["spec"]
            pod = spec["template"]["spec"] if "template" in spec else spec
            found[each["metadata"]["name"]] = pod
        return found

    def containers(self) -> list[tuple[str, Manifest]]:
        pods = self.pods().items()
        return [(name, each) for name, pod in pods for each in [*pod.get("initContainers", []), *pod["containers"]]]

    def objects(self) -> list[Manifest]:
        """Return the objects for the Karmada control plane."""
        data = self.one("ConfigMap", "-objects")["data"]
        return [each for text in data.values() for each in yaml.load_all(text, Loader=_LOADER) if each]

    def admission(self) -> str:
        return self.one("ConfigMap", "-admission")["data"]["admission.yaml"]
