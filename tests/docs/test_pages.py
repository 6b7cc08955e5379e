"""The documentation says what there is: every value, key, reason and file that it should tell of, and no other."""

import re
from typing import Any

import pytest
import yaml

from controller.api.configuration import VolcanoGlobalConfiguration, load_configuration
from controller.cache.store import Store
from controller.cli.app import app
from controller.engine.reasons import EvictionReason, Reason
from controller.engine.state import State
from controller.metrics import Metrics as ControllerMetrics
from tests.chart.helm import CHART
from tests.chart.schema import values
from webhook.metrics import Metrics as WebhookMetrics

ROOT = CHART.parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
CONFIGURE = (DOCS / "reference" / "configuration.md").read_text()
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())


def rows(text: str) -> dict[str, list[str]]:
    """Return the cells behind each `code` that begins a row."""
    return {
        name: [cell.strip() for cell in rest.strip(" |").split(" | ")]
        for name, rest in re.findall(r"^\| `([^`]+)` \|(.*)\|$", text, re.MULTILINE)
    }


def leaves(node: dict[str, Any], schema: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values that are set one by one; a map of any keys counts as one."""
    found = {}
    for key, value in node.items():
        inner = schema["properties"][key]
        if "properties" in inner:
            found |= leaves(value, inner, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = value
    return found


def shown(value: Any) -> str:
    if value == "":
        return '`""`'
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def test_every_value_is_told_with_its_default():
    told = rows(CONFIGURE)
    for name, default in leaves(VALUES, values()).items():
        cells = told.get(name.removeprefix("admission."))
        assert cells, f"{name} is not told"
        assert cells[1], f"{name} is told without a word"
        if not isinstance(default, dict | list):
            assert cells[0] == shown(default), name


def test_nothing_is_told_that_is_no_value():
    known = {name.removeprefix("admission.") for name in leaves(VALUES, values())}
    entries = {"apiVersion", "priorityClass", "podTemplate", "finished", "queue"}
    assert set(rows(CONFIGURE)) - known <= entries


def test_every_key_of_a_rule_for_further_kinds_is_told():
    section = CONFIGURE[CONFIGURE.index("`workloads` is a list") :]
    rule = VolcanoGlobalConfiguration.model_fields["integrations"].annotation.__args__[0]
    assert all(f"`{field.alias}`" in section for field in rule.model_fields.values())


@pytest.mark.parametrize("reasons", [Reason, EvictionReason])
def test_every_reason_is_told_with_what_to_do(reasons):
    text = (DOCS / "operations" / "troubleshooting.md").read_text()
    waits, _, evicted = text.partition("## A job was evicted")
    told = rows(waits if reasons is Reason else evicted.partition("## ")[0])
    assert list(told) == [each.value for each in reasons]
    assert all(len(cells) == 2 and all(cells) for cells in told.values())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_leads_to_every_page():
    text = (ROOT / "README.md").read_text()
    assert all(page.relative_to(ROOT).as_posix() in text for page in PAGES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_file_that_is_named_is_there(page):
    for name in re.findall(r"\b(?:charts|examples)/[A-Za-z0-9_./-]*[A-Za-z0-9]", page.read_text()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_piece_of_values_can_be_used(page):
    schema = values()["properties"]
    for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        for document in yaml.safe_load_all(text):
            if "kind" in document:
                continue
            assert set(document) <= set(schema)
            if admission := document.get("admission"):
                head = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
                load_configuration(yaml.safe_dump({**head, **admission}))


def test_metrics_that_are_told_are_there():
    controller = ControllerMetrics()
    controller.watch(State, Store(), {})
    known = {each.name for metrics in (controller, WebhookMetrics()) for each in metrics.registry.collect()}
    text = "".join(page.read_text() for page in PAGES)
    for name in set(re.findall(r"`(volcano_global_[a-z_]+)`", text)):
        assert name.removesuffix("_total") in known, name


def test_commands_of_ours_are_ones_that_there_are():
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    text = "".join(page.read_text() for page in PAGES)
    ours = {"plan", "simulate", "explain", "queues", "pending", "clusters", "replay"}
    named = ours & set(re.findall(r"volcano-global (\w+) ?(?=[-\w`\n])", text))
    assert named
    assert named <= known


@pytest.mark.parametrize("threat", ["TC1", "TC2", "TC3", "TC4", "TC5", "TC6", "TC7", "TC8", "TC9"])
def test_each_threat_to_an_installation_is_answered_by_tests_that_are_there(threat):
    (cell,) = re.findall(rf"^\| {threat} [^|]*\| (.*) \|$", (ROOT / "README.md").read_text(), re.MULTILINE)
    file = ""
    for place, name in re.findall(r"`([\w/.]*)::(\w+)`", cell):
        file = (place if "/" in place else f"tests/webhook/{place}") if place else file
        assert re.search(rf"^(async )?def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"
    assert file


def test_objects_that_are_named_are_made_by_an_installation_of_that_name(helm):
    text = helm.run("template", "volcano-global", str(CHART), "--namespace", "karmada-system")
    made = {(each["kind"].lower(), each["metadata"]["name"]) for each in yaml.safe_load_all(text) if each}
    told = "".join(page.read_text() for page in PAGES) + (ROOT / "README.md").read_text()
    named = set(re.findall(r"\b(deployment|job|cronjob|service|secret)/(volcano-global-[a-z0-9-]+)", told))
    assert len(named) > 3
    assert named <= made
