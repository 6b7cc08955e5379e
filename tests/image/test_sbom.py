"""Tests the SBOM: all locked requirements, with their hashes and dependents."""

import json
import re
import subprocess
import sys
import tomllib

from docs.generate_sbom import ROOT, build_sbom, parse_requirements

TEXT = (ROOT / "requirements.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SBOM = build_sbom(PROJECT, TEXT)


def test_each_locked_requirement_is_listed_with_its_hashes():
    locked = re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", TEXT, re.MULTILINE)
    assert len(locked) > 20
    assert [(component["name"], component["version"]) for component in SBOM["components"]] == locked
    references = [reference for component in SBOM["components"] for reference in component["externalReferences"]]
    hashes = [digest["content"] for reference in references for digest in reference["hashes"]]
    assert hashes == re.findall(r"--hash=sha256:(\w+)", TEXT)


def test_project_dependencies_match_its_requirements():
    wanted = {re.split(r"[<>=!~ ]", requirement)[0] for requirement in PROJECT["dependencies"]}
    (ours,) = [
        dependency for dependency in SBOM["dependencies"] if dependency["ref"].startswith("pkg:generic/volcano-global@")
    ]
    assert {re.match(r"pkg:pypi/([^@]+)", reference)[1] for reference in ours["dependsOn"]} == wanted


def test_every_component_has_a_listed_dependent():
    references = {dependency["ref"] for dependency in SBOM["dependencies"]}
    wanted = {reference for dependency in SBOM["dependencies"] for reference in dependency["dependsOn"]}
    assert wanted == {component["bom-ref"] for component in SBOM["components"]}
    assert wanted <= references


def test_sbom_is_reproducible():
    assert build_sbom(PROJECT, TEXT) == SBOM
    assert build_sbom(PROJECT, TEXT.replace("==", "==9.", 1))["serialNumber"] != SBOM["serialNumber"]


def test_marker_and_several_dependents_are_parsed():
    text = (
        "a==1 ; python_full_version < '3.12' \\\n    --hash=sha256:" + "0" * 64 + "\n    # via\n    #   b\n    #   c\n"
    )
    (pin,) = parse_requirements(text)
    assert (pin.marker, pin.required_by) == ("python_full_version < '3.12'", ["b", "c"])


def test_command_prints_the_sbom():
    ended = subprocess.run(
        [sys.executable, "docs/generate_sbom.py"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(ended.stdout) == SBOM
