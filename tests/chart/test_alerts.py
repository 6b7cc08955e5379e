"""Checks the alerts with promtool, and that each links to a paragraph of the documentation."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.chart.helm import CHART

ALERTS = CHART / "files" / "alerts.yaml"
SCENARIOS = Path(__file__).parent / "alerts.yaml"
PAGE = CHART.parents[1] / "docs" / "operations" / "troubleshooting.md"

promtool = pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: apt-get install prometheus")


def rules(groups):
    return [rule for group in groups for rule in group["rules"]]


def run(*command: str | Path) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def promtool_check(groups, folder: Path) -> None:
    """Check the syntax of rules."""
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(groups))
    run("promtool", "check", "rules", path)


def test_every_alert_links_to_its_paragraph():
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", title.lower()) for title in re.findall("^### (.*)", PAGE.read_text(), re.MULTILINE)
    }
    for rule in rules(yaml.safe_load(ALERTS.read_text())["groups"]):
        assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}
        page, anchor = rule["annotations"]["runbook_url"].split("#")
        assert page.endswith("/docs/operations/troubleshooting.md")
        assert anchor == rule["alert"].lower()
        assert anchor in anchors, anchor


def test_every_alert_has_a_scenario():
    tested = set(re.findall(r'ALERTS\{alertname="(.*?)"', SCENARIOS.read_text()))
    assert tested == {rule["alert"] for rule in rules(yaml.safe_load(ALERTS.read_text())["groups"])}


@promtool
@pytest.mark.process
def test_promtool_accepts_the_rendered_alerts(render, tmp_path):
    values = {"metrics": {"prometheusRule": {"enabled": True}}}
    promtool_check(render(values).one("PrometheusRule", "")["spec"], tmp_path)


@promtool
@pytest.mark.process
def test_alerts_fire_and_stay_silent_as_promtool_says():
    run("promtool", "test", "rules", SCENARIOS)


def test_values_set_the_longest_wait_and_the_runbook(render):
    values = {
        "metrics": {"prometheusRule": {"enabled": True, "maxWaitSeconds": 3_000_000, "runbook": "https://docs/a"}}
    }
    shown = rules(render(values).one("PrometheusRule", "")["spec"]["groups"])
    assert all(rule["annotations"]["runbook_url"] == f"https://docs/a#{rule['alert'].lower()}" for rule in shown)
    (wait,) = [rule for rule in shown if rule["alert"] == "VolcanoGlobalOldestWait"]
    assert wait["expr"].endswith("> 3000000")


def test_absent_series_are_those_of_the_own_namespace(render):
    values = {"metrics": {"prometheusRule": {"enabled": True}}}
    shown = rules(render(values).one("PrometheusRule", "")["spec"]["groups"])
    absent = [term for rule in shown for term in re.findall(r"absent\((.*?)\)", rule["expr"])]
    assert absent == [f'volcano_global_{name}{{namespace="karmada-system"}}' for name in ("leader", "webhook_ready")]
