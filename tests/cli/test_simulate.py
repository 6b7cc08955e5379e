"""The `simulate` command: reports, traces from manifests, and invalid options."""

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from controller.cli.input.manifests import read
from controller.cli.input.traces import read_trace
from controller.engine.reasons import EvictionReason
from controller.simulator.trace import DEFAULT_GRACE, grace_ms
from tests.cli.manifests import NOW, binding, cluster, cluster_scoped, configuration, job, policy, queue, units, write
from tests.traces.__main__ import SHAPES
from tests.traces.__main__ import main as print_load
from tests.traces.cohorts import gang_load
from tests.traces.load import LoadSize, manifests, to_trace
from tests.traces.philly import philly_load

GOLDEN = Path(__file__).parents[1] / "simulator" / "golden" / "gang.txt"
START = 10**12
RUNTIME, SUBMIT = "volcano-global.io/runtime", "volcano-global.io/submit"


def timed(name, *, at="0s", runs="10s", cpus=1, **more):
    return job(name, units(cpus), queue="a", annotations={SUBMIT: at, RUNTIME: runs}, **more)


@pytest.fixture
def simulate(run, tmp_path):
    """Return a function that simulates documents with JSON output, unless *options* are given."""

    def simulate(*documents, options=("-o", "json")):
        return run("simulate", "-f", write(tmp_path, *documents), "--now", NOW, *options)

    return simulate


def events(ended):
    """Return time, action and name of the events except waits."""
    listed = ended.answer["events"]
    return [(event["time"], event["action"], event["name"]) for event in listed if event["action"] != "Wait"]


@pytest.fixture
def load_file(tmp_path):
    """Return a function that writes a generated load to a file and returns the file's name."""
    return lambda load: write(tmp_path, *manifests(load))


WORLD = cluster("m", units(8)), queue("a")


def test_gang_simulation_matches_golden_file(run, load_file):
    ended = run("simulate", "-f", load_file(gang_load()), "--compare", "per-pod")
    assert (ended.code, ended.err) == (0, "")
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(ended.out)
    assert ended.out == GOLDEN.read_text()


def test_more_pods_than_can_be_simulated_one_by_one_are_refused(simulate):
    ended = simulate(*WORLD, timed("huge", replicas=2**31 - 1), options=("--compare", "per-pod"))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(
        "--compare per-pod: the jobs have 2,147,483,647 pods; at most 1,000,000 are simulated one by one, and Job "
        "ml/huge has 2,147,483,647\n"
    )


def test_annotations_set_submission_and_run_time(simulate):
    assert events(simulate(*WORLD, timed("j1", cpus=8), timed("j2", at="1m5ms", runs="1h", cpus=8))) == [
        (0, "Submit", "j1"),
        (0, "Admit", "j1"),
        (10, "Finish", "j1"),
        (60.005, "Submit", "j2"),
        (60.005, "Admit", "j2"),
        (3660.005, "Finish", "j2"),
    ]


def test_job_without_run_time_takes_the_default_with_a_note(simulate):
    documents = *WORLD, job("j", units(1), queue="a")
    ended = simulate(*documents)
    assert ended.answer["summary"]["makespan"] == 600
    without = f"without the annotation {RUNTIME} and without spec.runningEstimate"
    assert ended.err == f"note: 1 job {without} is assumed to run 600s (--runtime)\n"
    assert simulate(*documents, options=("-o", "json", "--runtime", "90s")).answer["summary"]["makespan"] == 90


@pytest.mark.parametrize(("annotations", "seconds"), [({}, 7200), ({RUNTIME: "90s"}, 90)])
def test_job_without_annotation_runs_as_long_as_its_estimate(simulate, annotations, seconds):
    estimated = job("j", units(1), queue="a", annotations=annotations)
    estimated["spec"]["runningEstimate"] = "2h"
    ended = simulate(*WORLD, estimated)
    assert (ended.answer["summary"]["makespan"], ended.err) == (seconds, "")


def test_running_job_continues_for_its_remaining_run_time(simulate):
    record = {"uid": "u", "queue": "a", "charge": units(8), "clusters": ["m"], "admittedAt": "2026-03-01T09:59:30Z"}
    old = job("old", units(8), queue="a", annotations={RUNTIME: "1m"})
    bound = binding("old", clusters=["m"], phase="Running", record=record, uid="u")
    listed = events(simulate(cluster("m", units(8), used=units(8)), queue("a"), old, bound, timed("new", cpus=8)))
    assert listed == [(0, "Submit", "new"), (30, "Finish", "old"), (30, "Admit", "new"), (40, "Finish", "new")]


def test_evicted_running_job_runs_from_its_beginning_again(simulate):
    record = {"uid": "u", "queue": "a", "charge": units(8), "clusters": ["m"], "admittedAt": "2026-03-01T09:00:00Z"}
    old = job("old", units(8), queue="a", annotations={RUNTIME: "2h"})
    bound = binding("old", clusters=["m"], phase="Running", record=record, uid="u")
    preempting = configuration(preemption={"enabled": True, "gracePeriod": "0s"})
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 9}
    new = timed("new", at="10s", runs="1m", cpus=8, priority="urgent")
    listed = events(simulate(preempting, urgent, cluster("m", units(8), used=units(8)), queue("a"), old, bound, new))
    assert [entry for entry in listed if entry[1] != "Submit"] == [
        (10, "Evict", "old"),
        (10, "Admit", "new"),
        (70, "Finish", "new"),
        (70, "Admit", "old"),
        (7270, "Finish", "old"),
    ]


def test_configuration_and_policies_of_the_files_apply(simulate, tmp_path):
    slow = configuration(patches={"perSecond": 1})
    assert (1, "Admit", "j1") in events(simulate(*WORLD, slow, timed("j1")))
    assert (0, "Admit", "j1") in events(simulate(*WORLD, slow, timed("j1"), options=("-o", "json", "--writes", "0")))
    grace = configuration(reclaim={"gracePeriod": "5s"}, preemption={"gracePeriod": "7s"})
    engine_policy = read_trace(read([write(tmp_path, *WORLD, grace)]), now=0, runtime=0).trace.policy
    periods = {reason: grace_ms(engine_policy, reason) for reason in EvictionReason}
    grace_periods = {reason: period for reason, period in periods.items() if period != DEFAULT_GRACE}
    of_preemption = dict.fromkeys(("Preempted", "AdvanceReservation", "BackfillOverrun"), 7000)
    assert grace_periods == {"Reclaimed": 5000, **of_preemption}
    placement = {"clusterAffinity": {"clusterNames": ["n"]}}
    answer = simulate(*WORLD, cluster("n", units(2)), policy("p", placement), timed("j")).answer
    assert [event["clusters"] for event in answer["events"] if event["action"] == "Admit"] == [[{"name": "n"}]]


def test_pending_job_is_an_event_with_its_reason(simulate):
    answer = simulate(*WORLD, timed("j1", cpus=8), timed("j2", cpus=8)).answer
    [wait] = [event for event in answer["events"] if event["action"] == "Wait"]
    assert (wait["time"], wait["name"], wait["reason"]) == (0, "j2", "InsufficientCapacity")
    assert wait["message"] == "it requests 8 cpu, all usable clusters together have 0 left"


def test_until_stops_the_simulation(simulate):
    summary = simulate(*WORLD, timed("j1", runs="1h"), options=("-o", "json", "--until", "15m")).answer["summary"]
    assert (summary["end"], summary["jobs"]["running"], summary["makespan"]) == (900, 1, None)


def test_a_single_deadlocked_job_is_counted_in_the_singular(simulate):
    ended = simulate(*WORLD, timed("giant", cpus=5, replicas=2), options=("--compare", "per-pod"))
    assert "Deadlock: 1 job holds capacity with 1 pod and cannot start." in ended.text


def test_never_admitted_jobs_are_listed_with_cpu_time(simulate):
    ended = simulate(*WORLD, timed("giant", cpus=9), options=("-v",))
    assert "NEVER ADMITTED" in ended.out
    assert "ml/giant" in ended.out
    assert "ExceedsTotalCapacity" in ended.out
    assert "s of CPU in 1 cycles" in ended.err


def test_workload_without_namespace_is_listed_by_its_name(simulate):
    lines = simulate(*WORLD, *cluster_scoped("big"), options=()).out.splitlines()
    assert [line.split()[0] for line in lines if "QueueNotFound" in line][-1] == "big"


@pytest.mark.parametrize("shape", SHAPES)
def test_printed_load_is_read_as_the_generated_trace(capsys, tmp_path, shape):
    print_load([shape, "--jobs", "40", "--queues", "3", "--clusters", "2", "--seed", "4"])
    (tmp_path / "load.yaml").write_text(capsys.readouterr().out)
    trace = read_trace(read([str(tmp_path / "load.yaml")]), now=START, runtime=0).trace
    load = SHAPES[shape](LoadSize(jobs=40, queues=3, clusters=2, seed=4))
    assert trace == to_trace(load, start=START)
    jobs = sorted(
        (job.at, job.namespace, job.name, job.runtime, load.classes.get(job.priority_class, 0)) for job in load.jobs
    )
    assert jobs == [
        (
            submission.at,
            submission.workload.namespace,
            submission.workload.name,
            submission.runtime,
            submission.workload.priority,
        )
        for submission in trace.submissions
    ]
    assert all(submission.workload.created_at == START + submission.at for submission in trace.submissions)


def test_table_of_many_queues_fits_eighty_columns(run, load_file):
    ended = run("simulate", "-f", load_file(philly_load(LoadSize(jobs=60, queues=50, clusters=1))))
    assert ended.code == 0
    assert max(map(len, ended.out.splitlines())) <= 80


def test_backfill_is_compared_and_plotted(run, load_file, tmp_path):
    plot = tmp_path / "plot.svg"
    ended = run("simulate", "-f", load_file(gang_load()), "--compare", "backfill", "--plot", str(plot))
    assert ended.code == 0
    for variant in ("configured", "traverse", "reservations", "easy"):
        assert any(line.startswith(variant) and line.split()[-1] == "5" for line in ended.out.splitlines())
        assert plot.read_text().count(f">{variant}<") == 5
    assert ET.parse(plot).getroot().tag.endswith("svg")


def test_reservation_that_was_never_in_force_left_nothing_idle(simulate):
    times = {"from": "2030-01-02T00:00:00Z", "until": "2030-01-02T04:00:00Z"}
    kept = configuration(advanceReservations=[{"name": "launch", "clusters": ["m"], **times}])
    assert "Kept free for launch  nothing idle" in simulate(*WORLD, kept, timed("j"), options=()).out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param((), "name files with -f", id="nothing"),
        pytest.param(("-f", "x", "--until", "soon"), "'soon' is not a duration", id="span"),
        pytest.param(("--kubeconfig", "k", "-n"), "No such option", id="unknown"),
        pytest.param(("--kubeconfig", "k"), "simulate cannot read the live control plane", id="live"),
        pytest.param(("-f", "x", "--watch"), "simulate runs once; remove --watch", id="watch"),
        pytest.param(("-f", "x", "--plot", "p.svg"), "--plot draws --compare backfill", id="plot-without-comparison"),
        pytest.param(
            ("-f", "x", "--compare", "backfill", "--plot", "no-folder/p.svg"),
            "cannot write no-folder/p.svg: folder no-folder does not exist or is not writable",
            id="plot-without-folder",
        ),
        pytest.param(("-f", "x", "-o", "csv"), "-o csv is for lists of objects", id="format-of-lists"),
    ],
)
def test_invalid_options_are_rejected_before_reading_files(run, arguments, why):
    ended = run("simulate", *arguments)
    assert ended.code == 2
    assert why in " ".join(ended.err.split())


def test_invalid_time_error_names_file_document_and_field(simulate):
    ended = simulate(*WORLD, timed("j", runs="soon"))
    assert ended.code == 2
    assert f"document 3 (Job ml/j): metadata.annotations[{RUNTIME}]: 'soon' is not a duration" in ended.err
