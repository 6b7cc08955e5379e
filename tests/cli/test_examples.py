"""What the README's first commands show to who types them in a fresh checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ("-f", str(ROOT / "examples"), "-f", str(ROOT / "examples" / "what-if"))


def test_the_examples_can_be_planned_without_a_control_plane(run):
    ended = run("plan", *FILES, "-o", "json")
    admitted = ended.clusters()
    assert {admitted[name][0] for name in ("mpi-gang", "torchrun-gang")} <= {"member1"}
    assert (admitted["llm-train-hyperjob-0"], admitted["llm-train-hyperjob-1"]) == (["cluster-a"], ["cluster-b"])


def test_the_examples_can_be_simulated(run):
    summary = run("simulate", *FILES, "-o", "json").answer["summary"]
    assert summary["jobs"]["finished"] >= len(
        ("mpi-gang", "torchrun-gang", "llm-train-hyperjob-0", "llm-train-hyperjob-1")
    )


def test_the_readme_names_these_files():
    text = (ROOT / "README.md").read_text()
    for command in ("plan", "simulate"):
        assert f"volcano-global {command} -f examples -f examples/what-if" in text
