import io
from dataclasses import replace

import pytest
from rich.console import Console

from localup.demo import table
from localup.demo.progress import JobStage, PendingReason, Timeline, TimelineEntry
from localup.demo.scenario import volcano_job
from localup.demo.table import DemoConsole, QueueUsage, UsageHistory, parse_queue_usage
from tests.localup.demo.test_progress import JOB, SUSPENDED

METRICS = """\
volcano_global_queue_resource_usage{queue="team-a",resource="cpu"} 12.0
volcano_global_queue_resource_fair_share{queue="team-a",resource="cpu"} 9.68
volcano_global_queue_resource_limit{queue="team-a",resource="cpu"} 48.0
volcano_global_admitted_active_workloads{queue="team-a"} 3.0
volcano_global_pending_workloads{queue="team-a",status="active"} 3.0
volcano_global_pending_workloads{queue="team-a",status="inadmissible"} 1.0
"""
TEXT = "InsufficientCapacity: " + "no candidate cluster has room now " * 3
ENTRY = TimelineEntry(12.34, "team-a/train-01", JobStage.PENDING, TEXT)


def printed(shown):
    out = io.StringIO()
    Console(file=out, width=80).print(shown)
    return out.getvalue()


def console_output(*, terminal):
    out = io.StringIO()
    return out, DemoConsole(Console(file=out, force_terminal=terminal, width=80, highlight=False, _environ={}))


def pending_jobs(count, reason="InsufficientCapacity"):
    timeline = Timeline()
    for number in range(count):
        name = f"team-a/train-{number}"
        timeline.on_submitted(replace(JOB, manifest=volcano_job(name, "team-a", pods=1, runtime="1s")), 0)
        timeline.on_binding(replace(SUSPENDED, job=name), 1.0)
    timeline.on_pending_reason(PendingReason("team-a/train-0", reason, TEXT), 2.0)
    return timeline.jobs.values()


def view_of_nine_jobs(*, lines):
    amounts = {"cpu": 1328, "nvidia.com/gpu": 352}
    queues = table.queue_table(7.6, [QueueUsage("global-ai", amounts, amounts, amounts, admitted=12, pending=12)])
    return table.live_view(queues, pending_jobs(9), (), lines=lines)


def test_queue_table_shows_usage_and_fair_share():
    text = printed(table.queue_table(7.6, parse_queue_usage(METRICS, ["team-a"])))
    assert "queues at 7.6 s" in text
    # Amounts are rounded down to tenths.
    assert text.splitlines()[-1].split() == ["team-a", "12", "9.6", "48", "-", "-", "-", "3", "4"]


def test_controller_that_does_not_lead_reports_no_usage():
    assert parse_queue_usage("# TYPE volcano_global_leader gauge\nvolcano_global_leader 0.0\n", ["team-a"]) == []


def test_every_table_fits_80_columns():
    usage = UsageHistory([(0, [QueueUsage("team-a", {"cpu": 123456, "nvidia.com/gpu": 123456})])])
    jobs = printed(table.job_table(pending_jobs(1, "PriorityClassNotAllowed")))
    assert jobs.splitlines()[-1].endswith("pending: PriorityClassNotAllowed")
    for text in (jobs, printed(table.peak_table(usage, ["team-a"]))):
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= 80


def test_live_view_fits_the_terminal():
    lines = printed(view_of_nine_jobs(lines=14)).rstrip().splitlines()
    assert len(lines) <= 14
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "and 4 more"
    (line,) = [line for line in printed(view_of_nine_jobs(lines=40)).splitlines() if "train-0" in line]
    assert line.split()[:4] == ["team-a/train-0", "team-a", "pending", "InsufficientCapacity:"]
    assert line.endswith("…")


@pytest.mark.parametrize("terminal", [True, False])
def test_live_view_is_redrawn_on_terminals_only(terminal):
    out, console = console_output(terminal=terminal)
    with console.live_table():
        assert console.table_height == (24 if terminal else None)
        console.update_table(view_of_nine_jobs(lines=24))
        console.update_table(view_of_nine_jobs(lines=24))
    assert console.table_height is None
    assert (out.getvalue().count("\x1b[1A\x1b[2K") > 24) is terminal, "previous lines are erased"
    assert terminal or out.getvalue() == ""


def test_terminal_entry_is_coloured_and_wrapped():
    out, console = console_output(terminal=True)
    console.print_entries([ENTRY])
    first, *more = out.getvalue().splitlines()
    assert "\x1b[33mpending" in first
    assert more
    assert all(line.startswith(" " * 36) and len(line) <= 80 for line in more)


def test_piped_entry_is_one_plain_line():
    out, console = console_output(terminal=False)
    console.print_entries([ENTRY])
    console.print("word " * 40)
    assert out.getvalue() == f"  12.3  team-a/train-01   pending   {TEXT}\n{'word ' * 40}\n"
