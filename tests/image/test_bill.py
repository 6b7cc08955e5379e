"""The bill of materials: all that is locked, each with its hashes, and who asked for it."""

import json
import re
import subprocess
import sys
import tomllib

from localup.bill import ROOT, bill, read_pins

TEXT = (ROOT / "requirements.txt").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BILL = bill(PROJECT, TEXT)


def test_every_locked_requirement_is_in_it_once():
    locked = re.findall(r"^([A-Za-z0-9._-]+)==([^ \\;]+)", TEXT, re.MULTILINE)
    assert len(locked) > 20
    assert [(each["name"], each["version"]) for each in BILL["components"]] == locked


def test_every_component_has_the_hashes_that_are_locked():
    told = [
        found["content"]
        for each in BILL["components"]
        for reference in each["externalReferences"]
        for found in reference["hashes"]
    ]
    assert told == re.findall(r"--hash=sha256:(\w+)", TEXT)


def test_what_the_project_asks_for_is_what_it_depends_on():
    wanted = {re.split(r"[<>=!~ ]", each)[0] for each in PROJECT["dependencies"]}
    (ours,) = [each for each in BILL["dependencies"] if each["ref"].startswith("pkg:generic/volcano-global@")]
    assert {re.match(r"pkg:pypi/([^@]+)", each)[1] for each in ours["dependsOn"]} == wanted


def test_every_component_is_wanted_by_somebody_who_is_there():
    references = {each["ref"] for each in BILL["dependencies"]}
    wanted = {each for dependency in BILL["dependencies"] for each in dependency["dependsOn"]}
    assert wanted == {each["bom-ref"] for each in BILL["components"]}
    assert wanted <= references


def test_the_same_requirements_make_the_same_bill():
    assert bill(PROJECT, TEXT) == BILL
    assert bill(PROJECT, TEXT.replace("==", "==9.", 1))["serialNumber"] != BILL["serialNumber"]


def test_a_marker_and_several_origins_are_read():
    text = (
        "a==1 ; python_full_version < '3.12' \\\n    --hash=sha256:" + "0" * 64 + "\n    # via\n    #   b\n    #   c\n"
    )
    (pin,) = read_pins(text)
    assert (pin.marker, pin.wanted_by) == ("python_full_version < '3.12'", ["b", "c"])


def test_the_command_prints_it():
    ended = subprocess.run([sys.executable, "-m", "localup.bill"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == BILL
