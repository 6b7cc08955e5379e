"""Compares the output of every command with golden files.

To update the golden files: UPDATE_GOLDEN=1 pytest tests/cli/test_golden.py
"""

import os
import re
from pathlib import Path

import pytest

from tests.cli.manifests import NOW

INPUT = str(Path(__file__).parent / "queues_and_clusters.yaml")
GOLDEN = Path(__file__).parents[1] / "golden"

COMMANDS = {
    "plan.txt": ["plan"],
    "queues.txt": ["queues"],
    "pending.txt": ["pending"],
    "pending.json": ["pending", "-o", "json"],
    "clusters.txt": ["clusters"],
    "explain-waiting.txt": ["explain", "job", "pretrain", "-n", "ml"],
    "explain-blocked-by-head.txt": ["explain", "job", "backfill", "-n", "ml"],
    "explain-next.txt": ["explain", "job", "finetune", "-n", "ml"],
    "explain-admitted.txt": ["explain", "job", "running", "-n", "ml"],
    "explain-finished.txt": ["explain", "job", "done", "-n", "ml"],
    "explain-queue-missing.txt": ["explain", "job", "sweep", "-n", "lab"],
}


@pytest.mark.parametrize(("file", "arguments"), COMMANDS.items(), ids=COMMANDS)
def test_output_matches_golden_file(run, file, arguments):
    ended = run(*arguments, "-f", INPUT, "--now", NOW)
    assert (ended.code, ended.err) == (0, "")
    # The revision changes with every new setting.
    output = re.sub(r'(revision"?: "?)[0-9a-f]{12}', r"\g<1>000000000000", ended.out)
    if os.environ.get("UPDATE_GOLDEN"):
        (GOLDEN / file).write_text(output)
    assert output == (GOLDEN / file).read_text()


def test_golden_text_is_ascii_of_eighty_columns():
    for file in (file for file in COMMANDS if file.endswith(".txt")):
        text = (GOLDEN / file).read_text()
        assert text.isascii()
        assert "\x1b" not in text
        assert [line for line in text.splitlines() if line != line.rstrip()] == []
        if not file.startswith("explain"):
            assert max(len(line) for line in text.splitlines() if not line.startswith("Note:")) <= 80


def test_every_golden_file_belongs_to_a_command():
    assert {path.name for path in GOLDEN.iterdir()} == set(COMMANDS)
