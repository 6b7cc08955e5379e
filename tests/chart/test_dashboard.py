"""The dashboard: it is generated, and its queries name metrics and labels that the processes export."""

import re
import shutil

import pytest
import yaml

from docs import generate_dashboard
from tests.chart.helm import CHART
from tests.chart.test_alerts import ALERTS, promtool_check

DASHBOARD = generate_dashboard.dashboard()
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [target["expr"] for panel in PANELS for target in panel["targets"]]
#: A page that tests/docs compares with the code.
REFERENCE = CHART.parents[1] / "docs" / "reference" / "metrics.md"
#: Labels of every series, those of a scrape and of a bucket included.
COMMON = {"namespace", "service", "pod", "le"}
VARIABLES = {"$namespace": "karmada-system", "$queue": ".*", "$resource": "cpu", "$__rate_interval": "1m"}


def exported():
    """Return the labels of each metric."""
    rows = re.findall(r"^\| `(volcano_global_\w+)` \| \w+ \| (.*?) \|", REFERENCE.read_text(), re.MULTILINE)
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_dashboard_is_generated():
    assert generate_dashboard.FILE.read_text() == generate_dashboard.text(), "run make reference"


def test_dashboard_and_alerts_use_existing_metrics_and_labels():
    known, alerts = exported(), yaml.safe_load(ALERTS.read_text())["groups"]
    queries = [*QUERIES, *(rule["expr"] for group in alerts for rule in group["rules"])]
    for query in queries:
        named = re.findall(r"\b(volcano_global_\w+?)(?:_bucket|_count|_sum)?\b(?:\{(.*?)\})?", query)
        assert named or "process_" in query, query
        for metric, matchers in named:
            assert metric in known, query
            assert set(re.findall(r"(\w+)\s*[=!]~?\"", matchers)) <= known[metric] | COMMON, query
        grouped = {label.strip() for labels in re.findall(r"\bby \((.*?)\)", query) for label in labels.split(",")}
        assert grouped <= COMMON.union(*(known[metric] for metric, _ in named)), query


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: apt-get install prometheus")
def test_promtool_accepts_the_queries_of_the_dashboard(tmp_path):
    text = "\n".join(QUERIES)
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(text.splitlines())]
    promtool_check({"groups": [{"name": "dashboard", "rules": rules}]}, tmp_path)


def test_panels_have_units_and_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)


def test_queries_do_not_presume_the_name_of_a_service():
    """`fullnameOverride` may give the Services any name."""
    assert not [query for query in QUERIES if "service" in query]
