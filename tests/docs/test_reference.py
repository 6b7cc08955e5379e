"""Every name that users see is on exactly one reference page, and every documented name exists."""

import json
import re

import msgspec
import pytest
import typer
import yaml

from certs.settings import CertificateSettings as CertsSettings
from controller.cache.store import Store
from controller.cli.__main__ import app
from controller.cli.render.simulate import PerPodReport
from controller.engine.engine import Engine
from controller.engine.reasons import ABOUT_CAPACITY, EvictionReason, Reason
from controller.engine.state.hierarchy import Queue, QueueName
from controller.reporting.metrics import ControllerMetrics
from controller.reporting.state_collector import Caches
from controller.settings import ControllerSettings
from controller.simulator.metrics import IdleCause
from controller.simulator.summary import QueueSummary, Summary
from docs import generate, generate_schema
from install.settings import InstallSettings
from webhook.settings import WebhookSettings

REFERENCE = generate.ROOT / "docs" / "reference"
PAGES = {page.name: page.read_text() for page in REFERENCE.glob("*.md")}
FLAGS = {
    "Controller": ControllerSettings,
    "Webhook": WebhookSettings,
    "Certificates": CertsSettings,
    "Installer": InstallSettings,
}


def rows(text: str) -> list[str]:
    """Return the names that begin a row of a table."""
    return re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE)


def pages_of(name: str) -> list[str]:
    return [page for page, text in PAGES.items() if name in rows(text)]


def metric_names() -> list[str]:
    return [row.key for name in ("controller-metrics", "webhook-metrics") for row in generate.TABLES[name]().rows]


@pytest.mark.parametrize(
    ("page", "names"),
    [
        pytest.param("configuration.md", [path for path, _ in generate.configuration_keys()], id="keys"),
        pytest.param("metrics.md", metric_names(), id="metrics"),
        pytest.param("labels-and-annotations.md", generate.label_names(), id="labels"),
        pytest.param("reasons.md", list(map(str, Reason)), id="reasons"),
        pytest.param("reasons.md", list(map(str, EvictionReason)), id="evictions"),
    ],
)
def test_each_name_is_documented_on_exactly_one_page(page, names):
    assert names
    assert {name: pages_of(name) for name in names} == {name: [page] for name in names}


def test_w3_names_the_reasons_in_their_order_of_precedence():
    section = PAGES["semantics.md"].partition('<a id="w3"></a>')[2]
    codes, _, rest = section.partition("About capacity are ")
    assert re.findall(r"`([A-Z]\w+)`", codes) == list(map(str, Reason))
    assert {*re.findall(r"`([A-Z]\w+)`", rest.partition("All others")[0])} == {*map(str, ABOUT_CAPACITY)}


def test_metrics_of_a_state_with_queues_are_documented():
    metrics, engine = ControllerMetrics(), Engine()
    engine.queue_changed(Queue(QueueName("a")))
    engine.plan(0)
    metrics.register_state(lambda: engine, Store(), Caches({}))
    shown = re.findall(r"^# TYPE (volcano_global_\w+)", metrics.exposition().decode(), re.MULTILINE)
    assert "volcano_global_queue_usage_ratio" in shown
    # Clients also expose when each counter and histogram was created.
    assert {name for name in shown if not name.endswith("_created")} <= set(rows(PAGES["metrics.md"]))


def test_each_helm_value_is_documented():
    values = yaml.safe_load((generate.CHART / "values.yaml").read_text())
    schema = json.loads((generate.CHART / "values.schema.json").read_text())
    names = [name for name, _ in generate.chart_values(values, schema)]
    assert rows(PAGES["helm-values.md"]) == names
    assert all(pages_of(name) == ["helm-values.md"] for name in names)


@pytest.mark.parametrize("process", FLAGS)
def test_each_flag_is_in_the_section_of_its_process(process):
    sections = re.split(r"^## ", PAGES["flags.md"], flags=re.MULTILINE)
    (section,) = [candidate for candidate in sections if candidate.startswith(process)]
    flags = [f"--{name.replace('_', '-')}" for name in FLAGS[process].model_fields if name != "command"]
    assert rows(section) == flags


def test_each_command_has_its_own_section():
    named = {command.name or command.callback.__name__ for command in app.registered_commands}
    sections = re.findall(r"^## volcano-global (\w+)$", PAGES["cli.md"], re.MULTILINE)
    assert named | {"explain"} == set(sections)


def test_commands_that_read_objects_have_the_common_options():
    (section,) = re.findall(r"^## Common options$(.*?)^## ", PAGES["cli.md"], re.MULTILINE | re.DOTALL)
    options = set(re.findall(r"^\| `(--[a-z-]+|-[a-z])`", section, re.MULTILINE)) - {"--version"}
    assert {"-f", "--context"} <= options
    for command in typer.main.get_command(app).commands.values():
        if command.name not in {"replay", "history", "completion", "explain"}:
            assert options <= {option for parameter in command.params for option in parameter.opts}, command.name


def test_each_documented_name_exists():
    known = {path for path, _ in generate.configuration_keys()}
    assert set(rows(PAGES["configuration.md"])) == known
    assert set(rows(PAGES["metrics.md"])) == set(metric_names())
    assert set(rows(PAGES["labels-and-annotations.md"])) == {
        *generate.label_names(),
        *(row.key for row in generate.record().rows),
    }


def test_json_of_each_command_is_documented():
    titles = re.findall(r"^## (.+)$", PAGES["json.md"], re.MULTILINE)
    documented = {title.lower().replace(" ", "-") for title in titles}
    # The JSON of `simulate` has a page of its own.
    assert documented == {*generate_schema.REPORTS} - {"simulate"}


def schema_paths(part: dict, parts: dict, prefix: str = "") -> set[str]:
    """Return the paths of the fields of an object of the JSON Schema; `[]` stands for one entry of a list."""
    paths = set()
    for name, field in part["properties"].items():
        kinds = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
        items = kinds[0].get("items", {}) if kinds[0].get("type") == "array" else {}
        reference = kinds[0].get("$ref") or items.get("$ref")
        path = f"{prefix}{name}"
        paths.add(path)
        if reference is not None:
            inner = parts[reference.rpartition("/")[2]]
            paths |= schema_paths(inner, parts, f"{path}{'[]' if items else ''}.")
    return paths


@pytest.mark.parametrize("command", [name for name in generate_schema.REPORTS if name != "simulate"])
def test_documented_json_fields_are_those_of_the_schema(command):
    parts = generate_schema.schema()["$defs"]
    report, _ = generate_schema.REPORTS[command]
    documented = {row.key for row in generate.answer(report).rows}
    assert schema_paths(parts[command], parts) - documented <= {"apiVersion", "configuration"}


def test_generator_adds_missing_and_removes_stale_rows():
    before = "<!-- table: labels -->\n| `volcano.sh/no-such` | words |\n<!-- end -->\n"
    after = generate.page(before)
    assert "no-such" not in after
    assert "| `volcano-global.io/admission` | TODO |" in after
    assert generate.page(after) == after


def test_documented_events_exist():
    known = set(rows(PAGES["events.md"]))
    texts = [page.read_text() for page in (generate.ROOT / "docs").rglob("*.md")]
    named = {name for text in texts for name in re.findall(r"\bevent\s+`(\w+)`", text)}
    assert named
    assert named <= known


def test_simulation_summary_fields_are_documented():
    named = set(re.findall(r"`(\w+)`", PAGES["simulation.md"]))
    fields = [field.encode_name for model in (Summary, QueueSummary) for field in msgspec.structs.fields(model)]
    assert {*fields, *map(str, IdleCause)} - named == {"name"}
    assert {field.encode_name for field in msgspec.structs.fields(PerPodReport)} <= {*named, "seed"}
