"""The guarantees of HyperJobs and the tests of each; renamed or deleted tests are detected."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
E2E, GROUPS = "tests/e2e/test_hyperjobs.py", "tests/e2e/test_hyperjob_groups.py"
SPLIT, PROPERTIES = "tests/controllers/hyperjob/test_split.py", "tests/controllers/hyperjob/test_split_properties.py"
RECONCILER, CRASHES = "tests/controllers/hyperjob/test_reconciler.py", "tests/controllers/hyperjob/test_crashes.py"
PROVED = {
    # On the real API server.
    "the documentation's manifest is taken as printed": (
        "tests/controllers/hyperjob/test_crd.py",
        "test_documented_manifest_is_stored_unchanged",
    ),
    "it becomes two Jobs of 32 replicas on cluster-a and cluster-b": (
        RECONCILER,
        "test_documented_hyperjob_becomes_two_pinned_jobs",
    ),
    "they run there and complete": (E2E, "test_documented_hyperjob_completes_on_two_clusters"),
    "upstream's 256 GPUs over two clusters of 128": (E2E, "test_upstreams_256_gpus_run_on_two_clusters_of_128"),
    "upstream's preferences among clusters": (
        E2E,
        "test_copies_prefer_their_clusters_until_these_are_full",
    ),
    "256 GPUs over clusters with 128, 64, 48 and 100 free": (
        E2E,
        "test_256_gpus_over_128_64_48_and_100_free_run_in_three_parts",
    ),
    "nothing fits: one reason, nothing in a member; then room, and all together, in one plan": (
        GROUPS,
        "test_no_part_is_dispatched_until_all_parts_fit",
    ),
    "minAvailable parts start together, the rest follows": (
        GROUPS,
        "test_minimum_parts_start_together_and_the_rest_follows",
    ),
    "every field of upstream's definition": (
        "tests/controllers/hyperjob/test_crd.py",
        "test_crd_has_every_upstream_field_with_its_type",
    ),
    # Properties.
    "least number of parts against an exhaustive search": (PROPERTIES, "test_no_split_has_fewer_parts"),
    "replicas conserved, no cluster above its headroom, at most maxDomains parts": (
        PROPERTIES,
        "test_replicas_are_conserved_within_each_headroom",
    ),
    "accelerators conserved": (PROPERTIES, "test_all_requested_accelerators_are_distributed"),
    "gang minimum kept per part": (PROPERTIES, "test_every_part_has_its_share_of_the_gang_minimum"),
    "partitions kept whole": (PROPERTIES, "test_minimum_partitions_are_distributed_completely"),
    "several jobs within maxDomains and the room they share": (
        PROPERTIES,
        "test_several_jobs_share_capacity_and_domains",
    ),
    "deterministic, in any order of the clusters": (
        PROPERTIES,
        "test_split_is_independent_of_cluster_order",
    ),
    "deterministic down to the objects": (PROPERTIES, "test_same_inputs_give_the_same_objects"),
    # Defects of the Go implementation, and threats.
    "Completed ones re-created their children after the TTL": (
        RECONCILER,
        "test_regression_jobs_deleted_by_ttl_are_not_recreated",
    ),
    "0 replicas were Completed": (RECONCILER, "test_regression_hyperjob_without_replicas_is_not_completed"),
    "foreign Jobs with two labels turned it Failed": (
        RECONCILER,
        "test_regression_foreign_jobs_with_our_labels_are_ignored",
    ),
    "the Job was created before its policy": (RECONCILER, "test_regression_policy_is_created_before_its_job"),
    "a foreign name left half of the children and no status": (
        RECONCILER,
        "test_regression_name_conflict_creates_nothing",
    ),
    "TB8 spoofed labels and foreign names": (RECONCILER, "test_tb8_job_of_another_owner_is_never_changed"),
    # Faults.
    "F28 a crash at each child write, enumerated, I5 at each revision": (
        CRASHES,
        "test_f28_crash_at_any_write_is_repaired",
    ),
    "F28 deletion that orphans": (CRASHES, "test_f28_deletion_follows_its_propagation_policy"),
    "F28 orphans are not adopted": (RECONCILER, "test_f28_orphaned_children_are_not_adopted"),
    "F6 the controller killed at each write": (
        "tests/faults/test_hyperjobs.py",
        "test_kill_at_any_write_creates_each_part_once",
    ),
    "the judge of the fault rig knows I5": (
        "tests/controllers/hyperjob/test_families.py",
        "test_second_job_of_a_part_is_reported",
    ),
    # For users and operators.
    "the examples": ("tests/controllers/hyperjob/test_examples.py", "test_example_is_split_with_the_expected_requests"),
    "one of each spelling in the demo": (
        "tests/localup/demo/test_scenario.py",
        "test_hyperjobs_of_both_groups_are_valid",
    ),
    "explain tells the split and why": (
        "tests/cli/test_hyperjobs.py",
        "test_undecided_hyperjob_shows_expected_split",
    ),
    "plan shows the Jobs it becomes": (
        "tests/cli/test_offline.py",
        "test_hyperjob_is_planned_as_its_parts",
    ),
    "hyperjob_split_ms for a hundred clusters": ("tests/benchmarks/hyperjob.py", "measure"),
}


@pytest.mark.parametrize(("file", "name"), PROVED.values(), ids=PROVED)
def test_guarantee_has_tests(file, name):
    found = ast.walk(ast.parse((ROOT / file).read_text()))
    assert name in {each.name for each in found if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
