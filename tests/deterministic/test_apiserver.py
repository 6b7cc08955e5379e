"""Semantics of the in-memory API server that `test_equivalence` does not draw at random."""

from typing import Any

import pytest

from tests.deterministic.apiserver import ApiServer
from tests.deterministic.worlds import ROOTS, THINGS, deletions_of_orphans, new_server, send, thing

MAPS = ROOTS["configmaps"]


@pytest.fixture
def server() -> ApiServer:
    return new_server()


def create(server: ApiServer, name: str, **metadata: Any) -> Any:
    response = send(server, "POST", ROOTS["things"], thing(name, {"size": 1}, **metadata))
    assert response.status == 201
    return response.body


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
    plain, marked = (send(server, "GET", MAPS, watch="true", allowWatchBookmarks=allow).watch for allow in ("", "true"))
    for watch in (plain, marked):
        server.send_bookmarks(watch)
    assert plain.take() == []
    assert [event["object"]["metadata"]["resourceVersion"] for event in marked.take()] == [str(server.version)]


def test_list_at_a_future_version_times_out(server):
    response = send(server, "GET", MAPS, resourceVersion="1000")
    assert (response.status, response.body["details"]["retryAfterSeconds"]) == (504, 1)


def test_dependents_of_deleted_owners_are_collected(server):
    uid = create(server, "owner")["metadata"]["uid"]
    reference = {"apiVersion": "example.io/v1", "kind": "Thing", "name": "owner", "uid": uid}
    create(server, "dependent", ownerReferences=[reference])
    assert not list(deletions_of_orphans(server))
    send(server, "DELETE", f"{ROOTS['things']}/owner", {"propagationPolicy": "Background"})
    for due in list(deletions_of_orphans(server)):
        server.handle(due)
    assert not server.objects(THINGS)
