"""The examples can be planned and simulated from a fresh checkout."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = ("-f", str(ROOT / "examples"), "-f", str(ROOT / "examples" / "what-if"))


def test_examples_can_be_planned_from_files(run):
    ended = run("plan", *FILES, "-o", "json")
    admitted = ended.clusters()
    assert {admitted[name][0] for name in ("mpi-gang", "torchrun-gang")} <= {"member1"}
    assert (admitted["llm-train-hyperjob-0"], admitted["llm-train-hyperjob-1"]) == (["cluster-a"], ["cluster-b"])


def test_examples_can_be_simulated(run):
    summary = run("simulate", *FILES, "-o", "json").answer["summary"]
    assert summary["jobs"]["finished"] >= len(
        ("mpi-gang", "torchrun-gang", "llm-train-hyperjob-0", "llm-train-hyperjob-1")
    )


def test_two_teams_get_shares_by_weight(run):
    ended = run("plan", "-f", str(ROOT / "docs" / "examples" / "two-teams.yaml"), "-o", "json")
    admitted = [step["namespace"] for step in ended.answer["decisions"] if step["action"] == "Admit"]
    assert (admitted.count("team-a"), admitted.count("team-b")) == (2, 4)


def test_comparison_ends_although_a_gang_never_fits(run):
    ended = run("simulate", "-f", str(ROOT / "examples"), "--compare", "backfill")
    easy = next(line.split() for line in ended.out.splitlines() if line.startswith("easy"))
    assert (ended.code, easy[-1]) == (0, "6")
