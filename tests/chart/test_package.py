"""The chart can be packaged, and rendered into manifests for Kustomize."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import CHART

ROOT = CHART.parents[1]


def make(target: str, *arguments: str) -> None:
    """Run a target with this interpreter's environment, which is ready."""
    settings = (f"VENV={Path(sys.prefix)}", "--assume-old=setup", *arguments)
    command = ["make", *settings, target]
    ended = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.process
def test_package_can_be_installed_like_the_chart(helm):
    make("chart")
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
    package = ROOT / "build" / "chart" / f"volcano-global-{version}.tgz"
    arguments = ("template", "volcano-global", "--namespace", "karmada-system")
    assert helm.run(*arguments, str(package)) == helm.run(*arguments, str(CHART))


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is missing")
def test_kustomize_reads_the_rendered_manifests():
    make("manifests", "ARGS=--set image.repository=registry.example.com/queues")
    folder = ROOT / "build" / "manifests"
    built = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True).stdout
    manifests = [manifest for manifest in yaml.safe_load_all(built) if manifest]
    assert {manifest["metadata"]["namespace"] for manifest in manifests if "Role" not in manifest["kind"]} == {
        "karmada-system"
    }
    jobs = [manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "Job"]
    assert jobs == ["volcano-global-install-1"]
    assert "image: registry.example.com/queues:" in built
    assert "name: volcano-global-uninstall" in (folder / "uninstall" / "uninstall.yaml").read_text()
    assert "name: volcano-global-check" in (folder / "check.yaml").read_text()
