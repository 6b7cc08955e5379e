"""The documents name files, commands, metrics and values that exist."""

import re
from pathlib import Path

import pytest
import yaml

<<<<<<< HEAD
from controller.api.configuration import VolcanoGlobalConfiguration, load_configuration
from controller.cache.store import Store
=======
from controller.api.configuration import check_configuration, load_configuration
>>>>>>> 3f86b41 (docs: test names, rule codes and pages against the code)
from controller.cli.app import app
from docs import generate
from tests.chart.helm import CHART
from tests.chart.schema import values

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text()


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


<<<<<<< HEAD
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
=======
@pytest.mark.parametrize("page", TOP, ids=name)
def test_every_link_outside_of_the_site_leads_somewhere(page):
>>>>>>> 3f86b41 (docs: test names, rule codes and pages against the code)
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_file_that_is_named_exists(page):
    for file in re.findall(r"\b(?:charts|docs|examples|tests)/[A-Za-z0-9_./-]*[A-Za-z0-9]", page.read_text()):
        assert (ROOT / file).exists(), file


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_piece_of_yaml_can_be_used(page):
    schema = values()["properties"]
    for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
<<<<<<< HEAD
        for document in yaml.safe_load_all(text):
            if "kind" in document:
                continue
            assert set(document) <= set(schema)
            if admission := document.get("admission"):
                head = {"apiVersion": "config.volcano-global.io/v1alpha1", "kind": "VolcanoGlobalConfiguration"}
                load_configuration(yaml.safe_dump({**head, **admission}))
=======
        for document in yaml.safe_load_all(generate.coded(text)):
            if document.get("apiVersion") == "config.volcano-global.io/v1alpha1":
                check_configuration(document)
            elif "kind" not in document:
                assert set(document) <= set(schema)
                load_configuration(yaml.safe_dump(document.get("admission", {})))
>>>>>>> 3f86b41 (docs: test names, rule codes and pages against the code)


def test_metrics_that_are_named_exist():
    known = {row.key for table in ("controller-metrics", "webhook-metrics") for row in generate.TABLES[table]().rows}
    text = "".join(page.read_text() for page in PAGES)
    assert {each for each in re.findall(r"`(volcano_global_[a-z_]+)[` {]", text) if each not in known} == set()


def test_commands_that_are_named_exist():
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    text = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"^(?:\$ )?volcano-global (\w+)", text, re.MULTILINE))
    assert named
    assert named <= known


def test_objects_that_are_named_are_created_by_the_chart(helm):
    text = helm.run("template", "volcano-global", str(CHART), "--namespace", "karmada-system")
    made = {(each["kind"].lower(), each["metadata"]["name"]) for each in yaml.safe_load_all(text) if each}
    text = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"\b(deployment|job|cronjob|service|secret)/(volcano-global-[a-z0-9-]+)", text))
    assert len(named) > 3
    assert named <= made


def test_the_readme_is_short_and_leads_to_every_section():
    assert len(README.splitlines()) <= 150
    sections = sorted(page.parent.name for page in (ROOT / "docs").glob("*/index.md"))
    assert len(sections) == 6
    assert all(f"docs/{section}/index.md" in README for section in sections)
