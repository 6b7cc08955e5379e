import json

import pytest

from localup.demo.progress import RECORD, binding_of_work, parse_binding


def binding(*, record=None, suspension=None, clusters=None, status=None):
    annotations = {RECORD: json.dumps(record)} if record else {}
    spec = {"resource": {"kind": "Job", "name": "train"}}
    if suspension is not None:
        spec["suspension"] = suspension
    if clusters is not None:
        spec["clusters"] = [{"name": name} for name in clusters]
    metadata = {"namespace": "team-a", "name": "train-job", "uid": "u1", "resourceVersion": "7"}
    found = {"metadata": metadata | {"annotations": annotations}, "spec": spec}
    if status is not None:
        found["status"] = {"aggregatedStatus": [{"clusterName": "member1", "status": status}]}
    return found


def test_new_binding_is_only_suspended():
    seen = parse_binding(binding(suspension={"scheduling": True}))
    assert (seen.version, seen.job, seen.binding) == (7, "team-a/train", "team-a/train-job")
    assert seen.suspended
    assert not seen.is_admitted
    assert not seen.has_started


def test_running_job_is_read_from_cluster_status():
    status = {"state": {"phase": "Running"}, "running": 3}
    seen = parse_binding(binding(suspension={"scheduling": False}, clusters=["member1"], status=status))
    assert seen.is_admitted
    assert (seen.phase, seen.pods) == ("Running", 3)
    assert seen.has_started
    assert not seen.is_over


@pytest.mark.parametrize(
    ("record", "is_recorded"),
    [
        pytest.param({"uid": "u1", "charge": {"cpu": "4"}}, True, id="admission"),
        pytest.param({"uid": "u1", "charge": {}}, False, id="eviction"),
        pytest.param({"uid": "u0", "charge": {"cpu": "4"}}, False, id="other-binding"),
        pytest.param(None, False, id="none"),
    ],
)
def test_only_a_record_for_the_same_uid_counts(record, is_recorded):
    assert parse_binding(binding(record=record)).has_record is is_recorded


def test_a_resumed_binding_without_clusters_is_not_admitted():
    assert not parse_binding(binding(suspension={"scheduling": False})).is_admitted


def test_a_work_names_its_binding():
    annotations = {"resourcebinding.karmada.io/namespace": "team-a", "resourcebinding.karmada.io/name": "train-job"}
    assert binding_of_work({"metadata": {"annotations": annotations}}) == "team-a/train-job"


def test_work_without_binding_annotations_has_no_binding():
    assert binding_of_work({"metadata": {"name": "namespace-ml"}}) is None
