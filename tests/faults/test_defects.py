"""Tests that defects of an earlier Go implementation are absent.

Defects covered by tests in other folders are listed in a table, which is verified when tests are renamed.
"""

import ast
from pathlib import Path

import pytest
import yaml

from tests.rig import fake_karmada
from tests.rig.faults import Delay, ErrorReply
from tests.rig.harness import open_harness

ROOT = Path(__file__).parents[2]
OBJECTS, LEADERS, ANSWERS = (f"tests/faults/test_{name}.py" for name in ("objects", "leaders", "api_responses"))
HYPERJOBS = "tests/controllers/hyperjob/test_reconciler.py"
PROVED = {
    "finished jobs hold quota until their binding is deleted": (
        OBJECTS,
        "test_finished_jobs_free_their_quota_exactly_once",
    ),
    "closed queues admit": (
        OBJECTS,
        "test_unusable_queues_keep_admitted_jobs_and_admit_none",
    ),
    "an empty queue is never admitted": (
        "tests/webhook/test_volcano.py",
        "test_a_job_that_names_no_queue_goes_to_the_default_queue",
    ),
    "a late event undid the resuming and freed the quota": (
        ANSWERS,
        "test_event_during_admission_write_frees_no_capacity",
    ),
    "a decision for one uid was patched onto a re-created binding": (
        "tests/scheduling/test_patches.py",
        "test_patch_fails_on_recreated_binding",
    ),
    "a binding deleted while queued poisoned its name": (
        OBJECTS,
        "test_recreated_binding_is_admitted_independently",
    ),
    "the webhook overwrites all of the suspension": (
        "tests/webhook/test_resourcebindings.py",
        "test_volcano_job_is_suspended_without_clusters",
    ),
    "preset clusters pass through": (
        "tests/webhook/test_threats.py",
        "test_tb2_preset_clusters_are_removed_for_every_user",
    ),
    "malformed reviews panic": ("tests/webhook/test_review.py", "test_body_without_a_review_is_answered_400"),
    "a 64 MiB body is read and parsed": (
        "tests/webhook/test_app.py",
        "test_content_length_of_64_mib_is_refused_unread",
    ),
    "deleting a priority class hides admitted jobs": (
        OBJECTS,
        "test_deleted_priority_class_keeps_admitted_jobs_charged",
    ),
    "completed HyperJobs make their children again after the TTL": (
        HYPERJOBS,
        "test_regression_jobs_deleted_by_ttl_are_not_recreated",
    ),
    "a HyperJob of no replicas is completed": (HYPERJOBS, "test_regression_hyperjob_without_replicas_is_not_completed"),
    "foreign Jobs with two labels turn a HyperJob failed": (
        HYPERJOBS,
        "test_regression_foreign_jobs_with_our_labels_are_ignored",
    ),
    "a Job is created before its policy": (HYPERJOBS, "test_regression_policy_is_created_before_its_job"),
    "a foreign name leaves half of the children": (
        HYPERJOBS,
        "test_regression_name_conflict_creates_nothing",
    ),
    "two leaders at each rollout": (
        LEADERS,
        "test_standby_takes_over_at_once_after_a_release",
    ),
    "no certificate rotation": ("tests/webhook/test_load.py", "test_f20_rotations_under_load_fail_no_call"),
    "no caller authentication": ("tests/webhook/test_callers.py", "test_other_callers_reach_no_handler"),
    "no metrics": ("tests/reporting/test_metrics.py", "test_state_is_collected_at_scrape"),
}
SCENARIOS = {
    "nothing is shared between queues": "queue priority decides which of ten queues gets the whole cluster",
    "clusters that turn NotReady stay counted": "a cluster that becomes not ready is not counted as capacity",
    "the weight is never read": "the weight of a queue is used",
    "deserved is never read": "deserved of a queue is used",
    "the guarantee is never read": "the guarantee of a queue is used",
    "the parent is never read": "the parent of a queue is used",
    "the dequeue strategy is never read": "the dequeue strategy of a queue is used",
    "reclaimable is never read": "a queue that is not reclaimable keeps its borrowed capacity",
    "the priority of a queue changes nothing": "queue priority decides which of ten queues gets the whole cluster",
    "a large important job is passed over for ever": "a large workload of high priority is tried first",
}


@pytest.mark.parametrize(("file", "name"), PROVED.values(), ids=PROVED)
def test_defect_is_covered_by_an_existing_test(file, name):
    found = ast.walk(ast.parse((ROOT / file).read_text()))
    assert name in {item.name for item in found if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize("title", SCENARIOS.values(), ids=SCENARIOS)
def test_defect_is_covered_by_a_scenario(title):
    files = (ROOT / "tests/scenarios").glob("*.yaml")
    assert any(title in item["title"] for file in files for item in yaml.safe_load_all(file.read_text()))


async def test_cluster_without_summary_is_skipped(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("never-ready")
        await harness.karmada.cluster("works", cpu="1")
        await harness.karmada.job("one", "q")
        await harness.controller.start()
        await harness.done("one")
        assert harness.bindings()["one"].clusters == ("works",)


async def test_all_tasks_of_a_job_are_charged(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        await harness.start(cpu="9", capability={"cpu": "3"})
        for name in ("first", "second"):
            manifest = fake_karmada.job(name, "q")
            leader = manifest["spec"]["tasks"][0]
            manifest["spec"]["tasks"] = [{**leader, "name": "leader"}, {**leader, "name": "worker"}]
            manifest["spec"]["minAvailable"] = 2
            await harness.karmada.submit(manifest)
        await harness.done("first", "second")


async def test_unknown_priority_class_or_failed_reads_lose_nothing(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        await harness.karmada.queue("q")
        await harness.karmada.cluster("m1", cpu="1")
        harness.proxy.add(ErrorReply(lambda call: call.method == "GET" and not call.is_lease, times=8, status=500))
        await harness.karmada.job("unknown", "q", priority="no-such-class")
        await harness.controller.start()
        await harness.done("unknown")


@pytest.mark.smoke
async def test_first_cycle_after_restart_counts_all_admitted(plane, tmp_path):
    """50 jobs run; pages of bindings arrive slowly, all other lists immediately."""
    async with open_harness(plane, tmp_path, "--page-size", "10", plays=False) as harness:
        await harness.karmada.queue("q", capability={"cpu": "50"})
        await harness.karmada.cluster("m1", cpu="90")
        for number in range(50):
            await harness.karmada.job(f"runs-{number}", "q")
        await harness.controller.start()
        await harness.admitted(*(f"runs-{number}" for number in range(50)))
        harness.controller.kill()
        for number in range(10):
            await harness.karmada.job(f"waits-{number}", "q", priority="")
        harness.proxy.add(
            Delay(lambda call: call.resource == "resourcebindings" and "continue" in call.query, seconds=0.2)
        )
        await harness.controller.start()
        await harness.expect_pending_reasons()
        await harness.expect_no_writes(seconds=0.5)
        assert sum(binding.admitted for binding in harness.bindings().values()) == 50
