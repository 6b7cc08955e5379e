"""The documents name files, commands, metrics and values that exist."""

import re
from pathlib import Path

import pytest

from controller.cli.__main__ import app
from docs import generate

ROOT = Path(__file__).parents[2]
TOP = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
PAGES = [*TOP, *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text()


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", TOP, ids=name)
def test_every_link_outside_the_site_resolves(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_named_file_exists(page):
    for file in re.findall(r"\b(?:charts|docs|examples|tests)/[A-Za-z0-9_./-]*[A-Za-z0-9]", page.read_text()):
        assert (ROOT / file).exists(), file


def test_documented_metrics_exist():
    known = {row.key for table in ("controller-metrics", "webhook-metrics") for row in generate.TABLES[table]().rows}
    text = "".join(page.read_text() for page in PAGES)
    assert {metric for metric in re.findall(r"`(volcano_global_[a-z_]+)[` {]", text) if metric not in known} == set()


def test_documented_commands_exist():
    known = {command.name or command.callback.__name__ for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    text = "".join(page.read_text() for page in PAGES)
    named = set(re.findall(r"^(?:\$ )?volcano-global (\w+)", text, re.MULTILINE))
    assert named
    assert named <= known


def test_readme_links_every_section():
    sections = sorted(page.parent.name for page in (ROOT / "docs").glob("*/index.md"))
    assert len(sections) == 6
    assert all(f"docs/{section}/index.md" in README for section in sections)


def test_commands_that_need_no_build_work_as_printed(monkeypatch, capsys):
    block = re.search(r"^```sh\nmake setup.*?^```", README, re.MULTILINE | re.DOTALL)[0]
    commands = re.findall(r"^volcano-global (.*?) *(?:#.*)?$", block, re.MULTILINE)
    assert commands == ["plan -f examples", "simulate -f examples"]
    monkeypatch.chdir(ROOT)
    for command in commands:
        app(command.split(), standalone_mode=False)
        assert len(capsys.readouterr().out.splitlines()) > 10
