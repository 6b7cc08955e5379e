import json

from controller.api.keys import PART_ANNOTATION
from tests.rig.history import Change
from tests.rig.hyperjob_invariant import HyperJobChecker

OWNER = {"kind": "HyperJob", "uid": "u", "controller": True}


def hyperjob(phase, *parts):
    split = {"parts": [{"name": name, "phase": "Pending"} for name in parts]}
    return change(
        "hyperjobs", "llm", {"metadata": {"uid": "u", "name": "llm"}, "status": {"phase": phase, "split": split}}
    )


def job(name, index, *, before=None):
    metadata = {
        "ownerReferences": [OWNER],
        "labels": {"volcano.sh/replicatedjob-name": "t"},
        "annotations": {PART_ANNOTATION: json.dumps({"index": index})},
    }
    return change("jobs", name, {"metadata": metadata}, before=before)


def change(kind, name, after, *, before=None):
    return Change(1, kind, ("ml", name), before, after, 0.0)


def entered(*changes):
    families = HyperJobChecker()
    return families, [each for change in changes for each in families.apply(change)]


def test_second_job_of_a_part_is_reported():
    _, found = entered(hyperjob("Pending", "a", "b"), job("a", 0), job("b", 0))
    assert found == ["1: Job ml/b is a second one for ('u', 't', 0)"]


def test_job_created_after_the_end_is_reported():
    _, found = entered(hyperjob("Completed", "a"), job("a", 0))
    assert found == ["1: Job ml/a was made although its HyperJob is Completed"]


def test_jobs_that_differ_from_their_split_are_reported():
    families, found = entered(hyperjob("Pending", "a", "b"), job("a", 0))
    assert found == []
    assert list(families.unlike_their_split()) == ["HyperJob llm has ['a'] instead of ['a', 'b']"]
