import io
from dataclasses import replace

import pytest
from rich.console import Console

from localup.demo import table
from localup.demo.progress import JobStage, PendingReason, Timeline, TimelineEntry
from localup.demo.scenario import volcano_job
from localup.demo.table import DemoConsole, QueueUsage, UsageHistory, parse_queue_usage


def printed(shown, *, width=80):
    out = io.StringIO()
    Console(file=out, width=width).print(shown)
    return out.getvalue()


def console_output(*, terminal, width=80):
    out = io.StringIO()
    return out, DemoConsole(Console(file=out, force_terminal=terminal, width=width, highlight=False, _environ={}))


METRICS = """\
volcano_global_queue_resource_usage{queue="team-a",resource="cpu"} 12.0
volcano_global_queue_resource_fair_share{queue="team-a",resource="cpu"} 9.6
volcano_global_queue_resource_limit{queue="team-a",resource="cpu"} 48.0
volcano_global_admitted_active_workloads{queue="team-a"} 3.0
volcano_global_pending_workloads{queue="team-a",status="active"} 3.0
volcano_global_pending_workloads{queue="team-a",status="inadmissible"} 1.0
"""
LINE = TimelineEntry(
    12.34, "team-a/train-01", JobStage.PENDING, "InsufficientCapacity: " + "no candidate cluster has room now " * 3
)


@pytest.mark.parametrize(
    ("held", "text"),
    [
        pytest.param(4.0, "4", id="whole"),
        pytest.param(2.3, "2.3", id="tenths"),
        pytest.param(40 / 3, "13.3", id="rounded-down"),
        pytest.param(0, "-", id="nothing"),
        pytest.param(None, "-", id="unknown"),
    ],
)
def test_amounts_are_units_rounded_down_to_tenths(held, text):
    assert table.format_amount(held) == text


def test_queue_table_shows_usage_and_fair_share():
    rows = parse_queue_usage(METRICS, ["team-a"])
    text = printed(table.queue_table(7.6, rows))
    assert "queues at 7.6 s" in text
    assert text.splitlines()[-1].split() == ["team-a", "12", "9.6", "48", "-", "-", "-", "3", "4"]


def test_controller_that_does_not_lead_reports_no_usage():
    assert parse_queue_usage("# TYPE volcano_global_leader gauge\nvolcano_global_leader 0.0\n", ["team-a"]) == []


def test_every_table_fits_80_columns(demo_job, binding_status):
    timeline, usage = Timeline(), UsageHistory()
    timeline.on_submitted(demo_job, 0)
    timeline.on_binding(binding_status(), 1.0)
    timeline.on_pending_reason(PendingReason(demo_job.name, "PriorityClassNotAllowed", ""), 2.0)
    usage.moments.append((0, [QueueUsage("team-a", {"cpu": 123456, "nvidia.com/gpu": 123456})]))
    for shown in (table.job_table(timeline.jobs.values()), table.peak_table(usage, ["team-a"])):
        assert "…" not in printed(shown)
        assert max(map(len, printed(shown).splitlines())) <= 80


def test_pending_job_is_shown_with_its_reason(demo_job, binding_status):
    timeline = Timeline()
    timeline.on_submitted(demo_job, 0)
    timeline.on_binding(binding_status(), 1.0)
    timeline.on_pending_reason(PendingReason(demo_job.name, "QueueClosed", ""), 2.0)
    last = printed(table.job_table(timeline.jobs.values())).splitlines()[-1]
    assert last.split() == ["team-a/train", "team-a", "-", "-", "-", "pending:", "QueueClosed"]


def test_piped_entry_is_one_plain_line():
    out, console = console_output(terminal=False)
    console.print_entries([LINE])
    assert out.getvalue() == f"  12.3  team-a/train-01   pending   {LINE.text}\n"


def test_terminal_entry_is_coloured_and_wrapped():
    out, console = console_output(terminal=True)
    console.print_entries([LINE])
    first, *more = out.getvalue().splitlines()
    assert "\x1b[33mpending" in first
    assert more
    assert all(line.startswith(" " * 36) and len(line) <= 80 for line in more)


def test_piped_sentence_is_not_wrapped():
    out, console = console_output(terminal=False)
    console.print("word " * 40)
    assert out.getvalue().count("\n") == 1


def view_of_nine_jobs(demo_job, binding_status, *, lines):
    timeline = Timeline()
    for number in range(9):
        name = f"team-a/train-{number}"
        timeline.on_submitted(replace(demo_job, manifest=volcano_job(name, "team-a", pods=1, runtime="1s")), 0)
        timeline.on_binding(binding_status(job=name), 1.0)
    timeline.on_pending_reason(
        PendingReason("team-a/train-0", "InsufficientCapacity", "no candidate cluster has room now " * 3), 1.0
    )
    amounts = {"cpu": 1328, "nvidia.com/gpu": 352}
    queues = table.queue_table(7.6, [QueueUsage("global-ai", amounts, amounts, amounts, admitted=12, pending=12)])
    return table.live_view(queues, timeline.jobs.values(), (), lines=lines)


def test_live_view_fits_the_terminal(demo_job, binding_status):
    lines = printed(view_of_nine_jobs(demo_job, binding_status, lines=14)).rstrip().splitlines()
    assert len(lines) <= 14
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "and 4 more"


def test_live_view_shows_the_pending_reason_on_one_line(demo_job, binding_status):
    (line,) = [
        splitline
        for splitline in printed(view_of_nine_jobs(demo_job, binding_status, lines=40)).splitlines()
        if "train-0" in splitline
    ]
    assert line.split()[:4] == ["team-a/train-0", "team-a", "pending", "InsufficientCapacity:"]
    assert line.endswith("…")


def test_live_view_is_redrawn_below_new_entries(demo_job, binding_status):
    out, console = console_output(terminal=True)
    with console.live_table():
        assert console.table_height == 24
        console.update_table(view_of_nine_jobs(demo_job, binding_status, lines=24))
        console.print_entries([LINE])
        console.update_table(view_of_nine_jobs(demo_job, binding_status, lines=24))
    assert console.table_height is None
    assert out.getvalue().count("\x1b[1A\x1b[2K") > 24, "previous lines are erased"


def test_piped_output_has_no_live_view(demo_job, binding_status):
    out, console = console_output(terminal=False)
    with console.live_table():
        assert console.table_height is None
        console.update_table(view_of_nine_jobs(demo_job, binding_status, lines=24))
    assert out.getvalue() == ""
