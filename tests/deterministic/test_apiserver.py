"""Semantics of the in-memory API server that `test_equivalence` does not draw at random."""

from typing import Any

import pytest

from tests.deterministic.apiserver import ApiServer
from tests.deterministic.garbage_collector import cleanup
from tests.deterministic.objects import CONFIGMAPS, NAMESPACES
from tests.deterministic.worlds import ROOTS, THINGS, new_server, send, thing

MAPS = ROOTS["configmaps"]


@pytest.fixture
def server() -> ApiServer:
    return new_server()


def create(server: ApiServer, name: str, **metadata: Any) -> Any:
    response = send(server, "POST", ROOTS["things"], thing(name, {"size": 1}, **metadata))
    assert response.status == 201
    return response.body


def names(server: ApiServer) -> set[str]:
    return {name for kind in (THINGS, CONFIGMAPS) for _, name in server.objects(kind)}


def collect(server: ApiServer) -> None:
    while requests := list(cleanup(server)):
        for request in requests:
            server.handle(request)


def test_pages_show_the_first_version_until_it_expires(server):
    for name in "abc":
        create(server, name)
    first = send(server, "GET", ROOTS["things"], limit="2")
    create(server, "d")
    token = first.body["metadata"]["continue"]
    rest = send(server, "GET", ROOTS["things"], limit="2", **{"continue": token})
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["c"]
    assert rest.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]
    server.compact()
    gone = send(server, "GET", ROOTS["things"], limit="2", **{"continue": token})
    assert (gone.status, gone.body["reason"]) == (410, "Expired")
    rest = send(server, "GET", ROOTS["things"], limit="2", **{"continue": gone.body["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in rest.body["items"]] == ["c", "d"]


def test_watch_of_an_expired_version_reports_410_in_the_stream(server):
    version = create(server, "a")["metadata"]["resourceVersion"]
    create(server, "b")
    server.compact()
    watch = send(server, "GET", ROOTS["things"], watch="true", resourceVersion=version).watch
    assert watch is not None
    assert watch.ended
    assert [(event["type"], event["object"]["code"]) for event in watch.take()] == [("ERROR", 410)]


def test_bookmark_is_sent_only_to_watches_that_allow_it(server):
    plain, marked = (send(server, "GET", MAPS, watch="1", allowWatchBookmarks=allow).watch for allow in ("", "true"))
    for watch in (plain, marked):
        server.send_bookmarks(watch)
    assert plain.take() == []
    assert [event["object"]["metadata"]["resourceVersion"] for event in marked.take()] == [str(server.version)]


def test_list_at_a_future_version_times_out(server):
    response = send(server, "GET", MAPS, resourceVersion="1000")
    assert (response.status, response.body["details"]["retryAfterSeconds"]) == (504, 1)


def create_family(server: ApiServer, **metadata: Any) -> None:
    """Create an object with a dependent."""
    uid = create(server, "owner")["metadata"]["uid"]
    reference = {"apiVersion": "example.io/v1", "kind": "Thing", "name": "owner", "uid": uid}
    create(server, "dependent", ownerReferences=[reference], **metadata)


def test_foreground_deletion_waits_for_dependents(server):
    create_family(server, finalizers=["example.io/x"])
    send(server, "DELETE", f"{ROOTS['things']}/owner", {"propagationPolicy": "Foreground"})
    collect(server)
    assert names(server) == {"owner", "dependent"}
    send(server, "PATCH", f"{ROOTS['things']}/dependent", {"metadata": {"finalizers": None}}, "merge-patch")
    collect(server)
    assert names(server) == set()


@pytest.mark.parametrize(("policy", "left"), [("Background", set()), ("Orphan", {"dependent"})])
def test_dependents_are_collected_or_orphaned(server, policy, left):
    create_family(server)
    send(server, "DELETE", f"{ROOTS['things']}/owner", {"propagationPolicy": policy})
    collect(server)
    assert names(server) == left


def test_deleted_namespace_takes_its_objects_with_it(server):
    create(server, "a")
    assert send(server, "DELETE", "/api/v1/namespaces/ns").status == 200
    assert send(server, "POST", MAPS, {"metadata": {"name": "late"}}).body["details"]["causes"][0]["reason"] == (
        "NamespaceTerminating"
    )
    collect(server)
    assert not server.objects(NAMESPACES)
    assert names(server) == set()
