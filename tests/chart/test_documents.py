"""The documents name objects that the chart creates."""

import re
from pathlib import Path

import yaml

from tests.chart.helm import CHART

ROOT = Path(__file__).parents[2]


def test_documented_objects_are_created_by_the_chart(helm):
    text = helm.run("template", "volcano-global", str(CHART), "--namespace", "karmada-system")
    made = {(each["kind"].lower(), each["metadata"]["name"]) for each in yaml.safe_load_all(text) if each}
    pages = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
    text = "".join(page.read_text() for page in pages)
    named = set(re.findall(r"\b(deployment|job|cronjob|service|secret)/(volcano-global-[a-z0-9-]+)", text))
    assert len(named) > 3
    assert named <= made
