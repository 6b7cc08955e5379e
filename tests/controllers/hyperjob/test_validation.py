import json
from pathlib import Path

import pytest

from controller.api.hyperjob_validation import hyperjob_violations, resize_template
from controller.api.hyperjobs import HyperJobError, read_hyperjob
from controller.api.keys import HYPERJOBS
from controller.controllers.hyperjob import observed as observation
from controller.controllers.hyperjob.observed import decode_hyperjob, decode_part_job, has_all_fields
from tests.controllers.hyperjob.objects import GPU, auto, document, hyperjob, replicated, task
from tests.files import read_object

ROOT = Path(__file__).parents[3]


def split(*tasks, **policy):
    return hyperjob(replicated("t", *tasks, splitPolicy=policy))


PARTITIONS = {"partitionPolicy": {"totalPartitions": 2, "partitionSize": 4}}
CLUSTERS = [{"name": "a", "replicas": 3}, {"name": "b", "replicas": 2}]


def test_minimum_of_partitions_stays_whole_when_it_is_scaled():
    partitions = {"totalPartitions": 4, "partitionSize": 2, "minPartitions": 1}
    job = replicated("t", task(replicas=8, minAvailable=2, partitionPolicy=partitions))
    policy = {"mode": "static", "accelerators": 12, "acceleratorType": GPU}
    (scaled,) = resize_template(hyperjob({**job, "splitPolicy": policy}).spec.replicated_jobs[0]).tasks
    assert (scaled.replicas, scaled.min_available, scaled.partition_policy.min_partitions) == (12, 2, 1)


@pytest.mark.parametrize(
    ("job", "flaw"),
    [
        pytest.param(
            read_hyperjob({**document(), "spec": {}}), "spec.replicatedJobs is empty; name at least one job", id="empty"
        ),
        pytest.param(hyperjob(replicated("t"), replicated("t")), "replicated job 't' is repeated", id="same-name"),
        pytest.param(hyperjob(minAvailable=2), "there are 1 parts; ask for 1 at most", id="minimum-above-parts"),
        pytest.param(hyperjob(minAvailable=0), "minAvailable is 0; write one or more", id="minimum-zero"),
        pytest.param(auto(maxDomains=0), "maxDomains is 0", id="no-domain"),
        pytest.param(hyperjob(replicated("t", replicas=-1)), "replicas is -1", id="negative-copies"),
        pytest.param(hyperjob(replicated("t", task(replicas=-2))), "has -2 replicas", id="negative-replicas"),
        pytest.param(split(strategy="ByCluster"), "needs splitPolicy.clusters", id="no-clusters"),
        pytest.param(split(strategy="ByCluster", clusters=CLUSTERS), "share out 5 replicas, but", id="sum"),
        pytest.param(split(strategy="ByReplicas"), "needs splitPolicy.parts", id="no-parts"),
        pytest.param(split(strategy="ByReplicas", parts=5), "4 pods cannot be divided into 5 parts", id="too-many"),
        pytest.param(split(mode="static", accelerators=8), "needs acceleratorType", id="no-type"),
        pytest.param(
            split(task(gpu=8), mode="static", accelerators=12, acceleratorType=GPU), "not a whole number", id="uneven"
        ),
        pytest.param(
            split(task(replicas=8, **PARTITIONS), mode="static", accelerators=6, acceleratorType=GPU),
            "6 nvidia.com/gpu are not a whole number of partitions; the template requests 8",
            id="uneven-partitions",
        ),
        pytest.param(
            split(task(gpu=0), mode="static", accelerators=8, acceleratorType=GPU), "asks for nvidia.com/gpu", id="none"
        ),
        pytest.param(hyperjob(replicated("t", replicas=400_000)), "would have 400000 parts; ask for 1000", id="copies"),
        pytest.param(
            hyperjob(replicated("t", replicas=600), replicated("u", replicas=401)),
            "would have 1001 parts",
            id="sum-of-jobs",
        ),
        pytest.param(
            split(task(replicas=2**31 - 1), strategy="ByReplicas", parts=2**31 - 1), "ask for 1000 at most", id="parts"
        ),
        pytest.param(
            split(task(replicas=2**31 - 1), mode="auto"), "2147483647 pods cannot be divided", id="pods-to-divide"
        ),
        pytest.param(
            hyperjob(replicated("t", task(note="x" * 2**20), replicas=100)), "are too large together", id="bytes"
        ),
        pytest.param(
            hyperjob(*(replicated(f"t{i}", task(note="x" * 300_000), replicas=200) for i in range(5))),
            "its 1000 parts with 30",
            id="bytes-of-all-jobs",
        ),
        pytest.param(
            read_hyperjob(
                {
                    **document(replicated("t", replicas=1000)),
                    "metadata": {"name": "llm", "namespace": "ml", "annotations": {"a": "x" * 250_000}},
                }
            ),
            "are too large together",
            id="bytes-of-annotations",
        ),
        pytest.param(
            hyperjob(replicated("t", replicas=1000), clusterAffinity={"clusterNames": ["c" * 50] * 2000}),
            "are too large together",
            id="bytes-of-affinity",
        ),
        pytest.param(
            hyperjob(
                replicated(
                    "t",
                    {"name": "w", "replicas": 1, "template": {"spec": {"containers": [{}] * 10_000}}},
                    replicas=100,
                )
            ),
            "are too large together",
            id="bytes-of-the-environment",
        ),
        pytest.param(
            split(task(gpu=8), mode="static", accelerators=8, acceleratorType="ascend910c"),
            f"'ascend910c' is not a qualified resource name; write {GPU}",
            id="unqualified-type",
        ),
        pytest.param(
            split(task(gpu=0), mode="static", accelerators=8, acceleratorType="ascend910c"),
            "write huawei.com/ascend910c, in acceleratorType and in a task",
            id="unqualified-type-without-resource",
        ),
        pytest.param(auto(policy={"minReplicas": 9}), "there are only 4 pods", id="least-above-all"),
        pytest.param(
            hyperjob(replicated("t", task(), spec={"plugins": {"mpi": []}})), "finds no master task", id="mpi-master"
        ),
        pytest.param(hyperjob(replicated("t", spec={"minAvailable": 9})), "more than the 4 pods", id="gang"),
        pytest.param(hyperjob(name="a" * 60), "63 are allowed", id="long-name"),
        pytest.param(hyperjob(name="a.b"), "lower case letters", id="dotted-name"),
        pytest.param(hyperjob(replicated("t-")), "let it begin and end with a letter or a digit", id="no-label"),
        pytest.param(hyperjob(replicated("t", spec={"tasks": []})), "it has no tasks", id="no-tasks"),
    ],
)
def test_violation_names_its_fix(job, flaw):
    assert any(flaw in violation for violation in hyperjob_violations(job)), hyperjob_violations(job)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(hyperjob(), id="copies"),
        pytest.param(hyperjob(replicated("t", replicas=0)), id="no-copies"),
        pytest.param(auto(minAvailable=3), id="auto-with-minimum"),
        pytest.param(split(task("m", 1), task("w", 4), strategy="ByCluster", clusters=CLUSTERS), id="with-master"),
    ],
)
def test_valid_hyperjob_has_no_violations(job):
    assert hyperjob_violations(job) == ()


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("hyperjob-*.yaml")), ids=lambda file: file.stem)
def test_example_is_split_with_the_expected_requests(file):
    example = read_hyperjob(read_object(file))
    assert hyperjob_violations(example) == ()
    (job,) = example.spec.replicated_jobs
    assert resize_template(job).total_pods == job.template_spec.total_pods


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param(
            document(replicated("t", splitPolicy={"mode": "dynamic"})),
            r"spec.replicatedJobs\[0\].splitPolicy.mode: input should be 'static' or",
            id="field",
        ),
        pytest.param({"apiVersion": "training.volcano.sh/v2"}, r"write training.volcano.sh/v1alpha1", id="version"),
    ],
)
def test_unreadable_hyperjob_is_rejected_with_its_cause(changed, message):
    with pytest.raises(HyperJobError, match=message):
        read_hyperjob({**document(), **changed})


HASHED = {"labels": {"a": "b"}, "counts": [1, 2.0, -1], "on": True, "empty": {}, "none": None, "large": "x" * 2**20}


def _seen(spec, *, owner=True, mark=True):
    metadata = {"name": "large", "namespace": "ml", "uid": "u", "resourceVersion": "1"}
    metadata["labels"] = {"volcano.sh/hyperjob-name": "llm"}
    if owner:
        metadata["ownerReferences"] = [{"uid": "h", "controller": True}]
    if mark:
        metadata["annotations"] = {"volcano-global.io/part": '{"digest":"d"}'}
    return decode_part_job(json.dumps({"metadata": metadata, "spec": spec}).encode())


def test_few_hyperjobs_stay_decoded(monkeypatch):
    """A decoded one takes about twenty times its size, and the API server stores any number of 1.5 MB each."""
    cache = observation._DecodedHyperJobs()
    monkeypatch.setattr(observation, "_DECODED", cache)
    monkeypatch.setattr(observation, "_MAX_DECODED_BYTES", 10_000)
    seen = []
    for number in range(50):
        stored = document(name=f"llm-{number}")
        stored["metadata"]["resourceVersion"] = "1"
        seen.append(decode_hyperjob(json.dumps(stored).encode(), HYPERJOBS))
    assert 0 < len(cache._hyperjobs) < 15
    assert [one.hyperjob.metadata.name for one in seen] == [f"llm-{number}" for number in range(50)]
    assert seen[-1].hyperjob is seen[-1].hyperjob
    assert cache._size == sum(len(raw) + 64 * raw.count(b"{") for _, raw in cache._hyperjobs) <= 10_000


def test_dense_hyperjobs_do_not_stay_decoded(monkeypatch):
    """An empty container has two bytes in JSON, and its model more than a kilobyte."""
    cache = observation._DecodedHyperJobs()
    monkeypatch.setattr(observation, "_DECODED", cache)
    for number in range(5):
        dense = {"name": "w", "template": {"spec": {"containers": [{}] * 15_000}}}
        stored = document(replicated("t", dense), name=f"llm-{number}")
        stored["metadata"]["resourceVersion"] = "1"
        decode_hyperjob(json.dumps(stored).encode(), HYPERJOBS)
    assert len(cache._hyperjobs) * 15_000 * 64 <= observation._MAX_DECODED_BYTES


def test_deeply_nested_hyperjob_is_unreadable():
    nested = {}
    for _ in range(99):
        nested = {"a": nested}
    stored = document(clusterAffinity=nested)
    stored["metadata"]["resourceVersion"] = "1"
    seen = decode_hyperjob(json.dumps(stored).encode(), HYPERJOBS)
    assert (seen.hyperjob, seen.decode_error) == (None, "it is nested more than 100 levels deep")


@pytest.mark.parametrize(
    "container",
    [
        pytest.param({"resources": {"requests": {f"r{number}": [] for number in range(20_000)}}}, id="wrong-amounts"),
        pytest.param({"env": [1] * 20_000}, id="wrong-variables"),
        pytest.param({"env": [{}] * 20_000}, id="variables"),
    ],
)
def test_hyperjob_of_too_many_values_is_unreadable(container):
    """Its models, or the errors in them, would take many times the memory of the controller."""
    stored = document(replicated("t", {"name": "w", "template": {"spec": {"containers": [container]}}}))
    stored["metadata"]["resourceVersion"] = "1"
    seen = decode_hyperjob(json.dumps(stored).encode(), HYPERJOBS)
    assert (seen.hyperjob, seen.decode_error) == (
        None,
        "its spec has more than 20000 values; make its templates smaller",
    )


@pytest.mark.parametrize("missing", ["owner", "mark"])
def test_fields_of_a_job_that_is_no_part_are_not_stored(missing):
    """Any tenant may label large Jobs."""
    assert not _seen({"tasks": ["x"] * 1000}, **{missing: False}).fields


def test_fields_of_a_part_are_stored_as_hashes():
    seen = _seen({"tasks": ["x" * 2**20]})
    assert len(seen.fields) < 30
    assert "x" * 100 not in repr(seen)


def test_additional_fields_of_a_part_are_ignored():
    seen = _seen({**HASHED, "added": [1], "labels": {"a": "b", "c": "d"}})
    assert has_all_fields(seen, {"metadata": {"name": "large"}, "spec": HASHED})
    assert has_all_fields(seen, {"spec": {"counts": [1, 2, -1]}})


@pytest.mark.parametrize(
    "changed",
    [
        {"labels": {"a": "c"}},
        {"labels": {"c": "b"}},
        {"counts": [1, 2.0, -2]},
        {"counts": [1, 2.0]},
        {"counts": [2.0, 1, -1]},
        {"counts": {}},
        {"on": "True"},
        {"empty": []},
        {"none": ""},
        {"large": "x" * (2**20 - 1)},
        {"more": {}},
    ],
)
def test_changed_field_of_a_part_is_detected(changed):
    assert not has_all_fields(_seen(HASHED), {"spec": {**HASHED, **changed}})
