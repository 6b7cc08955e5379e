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
        places = {f"HELM_{kind}_HOME": str(self.home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
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
        return [manifest for manifest in yaml.load_all(text, Loader=_LOADER) if manifest]


@dataclass(frozen=True)
class Rendered:
    """Rendered manifests of an installation."""

    manifests: list[Manifest]

    def of(self, *kinds: str) -> list[Manifest]:
        return [manifest for manifest in self.manifests if manifest["kind"] in kinds]

    def one(self, kind: str, name: str) -> Manifest:
        (manifest,) = [
            candidate
            for candidate in self.of(kind)
            if candidate["metadata"]["name"] == f"{RELEASE}-volcano-global{name}"
        ]
        return manifest

    def pods(self) -> dict[str, Manifest]:
        """Return the spec of every pod, by the name of its owner."""
        pods = {}
        for manifest in self.of("Deployment", "Job", "CronJob", "Pod"):
            spec = manifest["spec"]
            if manifest["kind"] == "CronJob":
                spec = spec["jobTemplate"]["spec"]
            pod = spec["template"]["spec"] if "template" in spec else spec
            pods[manifest["metadata"]["name"]] = pod
        return pods

    def containers(self) -> list[tuple[str, Manifest]]:
        pods = self.pods().items()
        return [
            (name, container)
            for name, pod in pods
            for container in [*pod.get("initContainers", []), *pod["containers"]]
        ]

    def objects(self) -> list[Manifest]:
        """Return the objects for the Karmada control plane."""
        data = self.one("ConfigMap", "-objects")["data"]
        return [manifest for text in data.values() for manifest in yaml.load_all(text, Loader=_LOADER) if manifest]

    def admission(self) -> str:
        return self.one("ConfigMap", "-admission")["data"]["admission.yaml"]
