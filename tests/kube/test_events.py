from typing import Any

from controller.kube.events import EventMessage, Reference, build_events, observed_count, series_patch

JOB = Reference("batch.volcano.sh/v1alpha1", "Job", "team-a", "train", "u1")
BINDING = Reference("work.karmada.io/v1alpha2", "ResourceBinding", "team-a", "train-job", "u2")


def written(note: str = "waits", **more: Any) -> list[dict[str, Any]]:
    news = EventMessage("u2", "waits", "Wait", "InsufficientCapacity", (JOB, BINDING), lambda: note)
    return [dict(each.manifest) for each in build_events(news, more.get("instance", "me"), 1_700_000_000_123)]


def test_events_regard_job_and_binding():
    first, second = written()
    assert (
        first["regarding"]
        == second["related"]
        == {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "namespace": "team-a",
            "name": "train",
            "uid": "u1",
        }
    )
    assert second["regarding"]["kind"] == "ResourceBinding"
    assert first["eventTime"] == "2023-11-14T22:13:20.123000Z"
    assert (first["type"], first["reason"], first["action"], first["note"]) == (
        "Normal",
        "InsufficientCapacity",
        "Wait",
        "waits",
    )


def test_same_content_has_the_same_event_name():
    names = [each["metadata"]["name"] for note in ("one", "one", "two") for each in written(note)]
    assert names[0:2] == names[2:4]
    assert len(set(names)) == 4


def test_cluster_scoped_object_has_events_in_default_namespace():
    role = Reference("rbac.authorization.k8s.io/v1", "ClusterRole", "", "x", "u")
    told = build_events(EventMessage("u", "waits", "Wait", "InsufficientCapacity", (role,), lambda: "n"), "me", 0)[0]
    assert (told.namespace, told.folder) == ("default", "/apis/events.k8s.io/v1/namespaces/default/events")
    assert "namespace" not in told.manifest["regarding"]


def test_long_notes_and_names_are_truncated():
    first = written("ü" * 2000, instance="host" * 100)[0]
    assert len(first["note"].encode()) <= 1024
    assert first["note"].endswith(" ...")
    assert len(first["reportingInstance"]) <= 128
    long = Reference("v1", "Pod", "ns", f"{'a' * 235}.{'b' * 17}", "u")
    name = build_events(EventMessage("u", "waits", "Wait", "InsufficientCapacity", (long,), lambda: "n"), "me", 0)[
        0
    ].name
    assert len(name) <= 253
    assert ".." not in name


def test_repetition_continues_stored_count():
    assert observed_count(b'{"series": {"count": 4}}') == 4
    assert observed_count(b'{"metadata": {}}') == observed_count(b'{"series": null}') == 1
    assert series_patch(5, 0)["series"] == {"count": 5, "lastObservedTime": "1970-01-01T00:00:00.000000Z"}
