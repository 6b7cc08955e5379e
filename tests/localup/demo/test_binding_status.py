import json

import pytest

from controller.api.keys import ADMISSION_ANNOTATION
from localup.demo.progress import parse_binding


def binding(*, record=None, suspension=None, clusters=None, status=None):
    annotations = {ADMISSION_ANNOTATION: json.dumps(record)} if record else {}
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
    assert seen.job == "team-a/train"
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


@pytest.mark.parametrize(("uid", "plan"), [("u1", "plan@1"), ("u0", "")], ids=["same", "other"])
def test_only_a_record_for_the_same_uid_counts(uid, plan):
    assert parse_binding(binding(record={"uid": uid, "planID": "plan@1"})).plan == plan


def test_a_resumed_binding_without_clusters_is_not_admitted():
    assert not parse_binding(binding(suspension={"scheduling": False})).is_admitted
