"""Login, rights, headers and limits of the console.

The weaknesses that KueueViz had are among them: streams for other sites (kueue#12734), unlimited input (kueue#12614),
work for each client and change (kueue#12535), connections without time limits (kueue#12590), unlimited reviews
(kueue#12536, kueue#13172), streams that outlive their token (kueue#12563), no authorization (kueue#11143), and
authentication that is off by default. That containers do not run as root (kueue#12586) is tested with the chart and the
image, and the limits of reviews and their caches with the reviews.
"""

import asyncio
import zlib
from contextlib import suppress
from itertools import count
from urllib.parse import quote, urlencode

import pytest
from aiohttp import ClientError
from aiohttp.test_utils import make_mocked_request
from msgspec.json import encode
from structlog.testing import capture_logs

from console.identity import _proxy_user
from console.renders import Renders, event
from console.settings import ConsoleSettings
from controller.api.hyperjobs import HYPERJOB_RESOURCES
from controller.controllers.hyperjob.observed import decode_hyperjob
from controller.kube.access_reviews import RefusedError, User
from tests.cli.manifests import queue
from tests.console.consoles import OPERATOR, cluster, console_of, model_of, pending_job, tenant_of
from tests.controllers.hyperjob.objects import two_copies
from tests.waiting import poll

PAGES = (
    *("/queues", "/queues/a", "/workloads", "/workloads/one/Job/train-one"),
    *("/hyperjobs", "/clusters", "/clusters/m1"),
)
OVERVIEW = "/api/v1/overview"


@pytest.fixture
def model(tmp_path):
    jobs = [pending_job(*job) for job in (("one", "train-one", "a"), ("two", "train-two", "b"), ("two", "later", "a"))]
    jobs[0]["spec"]["priorityClassName"] = "<script>alert(1)</script>"
    return model_of(tmp_path, queue("a"), queue("b"), cluster("m1"), *jobs)


async def test_no_page_without_a_token(console):
    for path in ("/", *PAGES):
        assert await console.status(OVERVIEW if path == "/" else f"/api/v1{path}", "") == 401, path
        page = await console.get(path)
        assert (page.status, page.headers["Location"].partition("?")[0]) == (303, "/login"), path
    assert await console.status("/events?path=/", "") == 401
    assert await console.status("/", "unknown") == 401


async def test_token_in_the_address_is_not_accepted(console):
    # Addresses are in logs and histories.
    for name in ("token", "access_token", "authorization", "bearer"):
        assert await console.status(f"{OVERVIEW}?{name}=op", "") == 401
        assert await console.status(f"/events?path=/&{name}=op", "") == 401


async def test_operator_sees_every_page_without_inline_scripts(console):
    for path in ("/", *PAGES):
        text = await console.text(path)
        assert "<script>" not in text
        assert " style=" not in text
        assert " onclick" not in text
        api = await console.get(OVERVIEW if path == "/" else f"/api/v1{path}", "op")
        assert (api.status, api.content_type) == (200, "application/json"), path


async def test_names_are_escaped(console):
    text = await console.text("/workloads/one/Job/train-one")
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text


async def test_tenant_sees_own_names_and_amounts_of_others(console):
    text = await console.text("/queues/a", "one")
    assert "train-one" in text
    assert "later" not in text
    assert "1 workload of other namespaces" in text
    assert await console.status("/workloads/two/Job/train-two", "one") == 404
    assert await console.status("/queues/b", "one") == 404
    assert await console.status("/clusters", "one") == 403


async def test_user_without_rights_sees_no_name(console):
    for path in ("/", *PAGES):
        text = await (await console.get(path, "nothing")).text()
        # What it has asked for itself is in the answer, which says no more than that.
        assert "train-" not in text.replace(path, "").replace("&#39;train-one&#39;", ""), path


async def test_unknown_and_foreign_objects_have_the_same_answer(console):
    foreign = await (await console.get("/api/v1/workloads/two/Job/train-two", "one")).json()
    unknown = await (await console.get("/api/v1/workloads/two/Job/train-xyz", "one")).json()
    assert foreign == {**unknown, "message": unknown["message"].replace("train-xyz", "train-two")}


async def test_foreign_namespace_is_not_served_by_a_filter(console):
    assert (await console.data("/workloads?namespace=two", "one"))["workloads"] == []
    own = await console.data("/workloads?namespace=one", "one")
    assert [row["name"] for row in own["workloads"]] == ["train-one"]


@pytest.mark.parametrize("path", ["/overview", "/queues", "/workloads", "/workloads?namespace=one"])
async def test_user_without_rights_changes_no_page_of_others(console, path):
    alone = await console.data(path, "one")
    console.renders.invalidate()
    await console.data(path, "nothing")
    assert await console.data(path, "one") == alone


async def test_page_reviews_at_most_fifty_namespaces(tmp_path):
    jobs = [pending_job(f"ns-{number:03}", "train", "a") for number in range(120)]
    model = model_of(tmp_path, queue("a"), cluster("m1"), *jobs)
    async with console_of(model, {"one": tenant_of("ns-007")}) as console:
        await console.text("/queues/a?page=2", "one")
        reviewed = {permission.namespace for _, permission in console.access.reviews if permission.namespace}
        assert len(reviewed) <= 100
        assert "ns-007" in reviewed


async def test_page_of_too_many_namespaces_has_those_that_are_known(model, monkeypatch):
    for number in range(120):
        body = {**two_copies(), "metadata": {"name": "llm", "namespace": f"ns-{number:03}", "uid": f"u-{number}"}}
        body["metadata"]["resourceVersion"] = "1"
        model.hyperjobs[HYPERJOB_RESOURCES[0]].upsert(decode_hyperjob(encode(body), HYPERJOB_RESOURCES[0]))
    account = "system:serviceaccount:ns-100:ci"
    rights = tenant_of("ns-007", "ns-100")
    async with console_of(model, {"one": rights, account: rights}) as console:
        own = await console.data("/hyperjobs", account)
        assert [row["namespace"] for row in own["hyperjobs"]] == ["ns-007", "ns-100"]
        console.access.reviews.clear()
        seen = await console.data("/hyperjobs", "one")
        assert [row["namespace"] for row in seen["hyperjobs"]] == ["ns-007"]
        assert sum(bool(permission.namespace) for _, permission in console.access.reviews) == 50
        assert len((await console.data("/hyperjobs?q=ns-100", "one"))["hyperjobs"]) == 1
        monkeypatch.setattr("console.renders._ATTEMPTS", 0)
        stream = await console.get("/events?path=/hyperjobs", "one")
        assert "No HyperJob that you may see" in await read_event(stream)
        stream.close()


# -- other sites -----------------------------------------------------------------


async def test_session_cookie_is_out_of_reach_of_scripts_and_sites(console):
    answer = await console.post("/login", console.origin, token="op", next="/queues")
    assert (answer.status, answer.headers["Location"]) == (303, "/queues")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    page = await console.get("/", Cookie=cookie.partition(";")[0])
    assert page.status == 200
    assert "op" not in page.headers.get("Set-Cookie", "")
    invalid = await console.post("/login", console.origin, token="unknown")
    assert (invalid.status, "Set-Cookie" in invalid.headers) == (401, False)
    left = await console.post("/logout", console.origin)
    assert (left.headers["Location"], "Max-Age=0" in left.headers["Set-Cookie"]) == ("/login", True)


@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", "http://127.0.0.1"])
async def test_form_of_another_site_is_refused(console, origin):
    for path in ("/login", "/logout"):
        answer = await console.post(path, origin, token="op")
        assert answer.status == 403
        assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://127.0.0.1", "http://queues.evil.example"])
async def test_page_of_another_site_reads_nothing(console, origin):
    for path in ("/events?path=/", OVERVIEW, "/", "/login"):
        cookie = await console.get(path, Cookie="volcano-global=op", Origin=origin)
        assert (cookie.status, await console.status(path, Origin=origin)) == (403, 403), path
        assert "train" not in await cookie.text()
        assert "Access-Control-Allow-Origin" not in cookie.headers
    assert await console.status(OVERVIEW, "", Cookie="volcano-global=op", Origin=console.origin) == 200


@pytest.mark.parametrize(
    "following", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:1", "//["]
)
async def test_login_never_leads_to_another_site(console, following):
    answer = await console.post("/login", console.origin, token="op", next=following)
    assert answer.headers["Location"] == "/"


async def test_other_host_names_are_refused_without_encryption(console):
    for host in ("evil.example", "["):
        assert await console.status(OVERVIEW, Host=host) == 421


async def test_allowed_host_names_have_no_case(model):
    async with console_of(model, allowed_hosts=["Queues.example.com"]) as console:
        assert await console.status(OVERVIEW, Host="queues.Example.com") == 200
        assert await console.status(OVERVIEW, Host="example.com") == 421


async def test_every_answer_has_the_security_headers(console):
    for path, token in (("/", "op"), ("/login", ""), ("/nothing", "op"), (OVERVIEW, "op")):
        headers = (await console.get(path, token)).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


def test_other_addresses_than_loopback_need_a_certificate(tmp_path):
    with pytest.raises(ValueError, match="certificate-directory"):
        ConsoleSettings(host="0.0.0.0")
    with pytest.raises(ValueError, match="authenticated by TLS"):
        ConsoleSettings(proxy_client_ca=tmp_path / "ca.crt")


@pytest.mark.parametrize(
    ("headers", "status", "message"),
    [
        pytest.param({}, 401, "did not send", id="no-user"),
        pytest.param({"X-Remote-User": "a" * 10_000}, 403, "more than 1,024 characters", id="long-user"),
        pytest.param(
            {"X-Remote-User": "a", "X-Remote-Group": "b" * 2_000}, 403, "more than 1,024 characters", id="long-group"
        ),
        pytest.param({"X-Remote-User": "system:admin"}, 403, "system:", id="component"),
        pytest.param(
            {"X-Remote-User": "a", "X-Remote-Group": "b, system:masters"}, 403, "system:", id="group-of-components"
        ),
    ],
)
def test_proxy_does_not_speak_for_components(headers, status, message):
    with pytest.raises(RefusedError, match=message) as refused:
        _proxy_user(make_mocked_request("GET", "/", headers=headers))
    assert refused.value.status == status
    user = _proxy_user(make_mocked_request("GET", "/", headers={"X-Remote-User": "a", "X-Remote-Group": "b, c"}))
    assert (user.username, user.groups) == ("a", ("b", "c", "system:authenticated"))


# -- limits ----------------------------------------------------------------------


async def test_streams_are_limited_for_a_user_and_together(model):
    async with console_of(model, max_streams=3, max_streams_per_user=2) as console:
        users = ("op", "op", "op", "one", "nothing")
        streams = [await console.get("/events?path=/", user) for user in users]
        assert [stream.status for stream in streams] == [200, 200, 429, 200, 429]
        for stream in streams:
            stream.close()


async def test_requests_of_one_user_are_limited(model):
    async with console_of(model, requests_per_second=1) as console:
        assert [await console.status(OVERVIEW) for _ in range(12)].count(429) >= 6


async def test_user_takes_no_requests_of_others_at_its_address(model):
    # Behind an ingress all users have one address.
    async with console_of(model, requests_per_second=1) as console:
        assert await console.status(OVERVIEW, "one") == 200
        assert [await console.status(OVERVIEW) for _ in range(12)].count(429) >= 6
        assert await console.status(OVERVIEW, "one") == 200
        assert [await console.status(OVERVIEW, f"unknown-{number}") for number in range(12)].count(429) >= 6
        assert await console.status(OVERVIEW, "one") == 200


async def test_cpu_time_of_pages_counts_as_requests_of_their_user(model, monkeypatch):
    """Otherwise one user could use up the CPU of the console with the most expensive pages."""
    passed = count(step=0.4)  # a page takes 0.4 s, as long as 100 requests
    monkeypatch.setattr("console.renders.thread_time", lambda: next(passed))
    async with console_of(model, requests_per_second=50) as console:
        statuses = [await console.status(f"{OVERVIEW}?x={number}") for number in range(8)]
        assert statuses.count(429) >= 4
        assert await console.status(OVERVIEW, "one") == 200


async def test_page_that_others_have_opened_counts_once(model, monkeypatch):
    passed = count(step=0.4)
    monkeypatch.setattr("console.renders.thread_time", lambda: next(passed))
    async with console_of(model, requests_per_second=50) as console:
        assert [await console.status(OVERVIEW) for _ in range(30)] == [200] * 30


async def test_stream_of_a_user_whose_rate_is_used_up_is_updated_later(model, monkeypatch):
    monkeypatch.setattr("console.server._BEHIND_SECONDS", 0.05)
    async with console_of(model, requests_per_second=5) as console:
        stream = await console.get("/events?path=/", "op")
        await stream.content.readany()
        console.server._identity.charge(User("op"), 0.1)
        console.renders.invalidate()
        console.server.on_update()
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                assert not await stream.content.readany()
        async with asyncio.timeout(30):
            assert await stream.content.readany()


async def test_connection_without_a_request_is_closed(model, monkeypatch):
    monkeypatch.setattr("console.server._FIRST_REQUEST_SECONDS", 0.3)
    async with console_of(model, port=0) as console, console.server.serve(None) as port:
        for start in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(start)
            async with asyncio.timeout(30):
                assert await reader.read() == b""
            writer.close()


async def test_connections_are_limited(model):
    async with console_of(model, port=0, max_connections=10) as console, console.server.serve(None) as port:

        async def connect():
            return await asyncio.open_connection("127.0.0.1", port)

        async def status_line(streams, request=b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"):
            reader, writer = streams
            writer.write(request)
            try:
                return await reader.read(12)
            except ConnectionError:
                return b""

        opened = [await connect() for _ in range(11)]
        # The oldest connection without a request is closed for the eleventh.
        assert await status_line(opened[0], b"") == b""
        assert {await status_line(streams) for streams in opened[1:]} == {b"HTTP/1.1 200"}
        # Connections that only stay open cannot keep others away.
        opened += [await connect() for _ in range(5)]
        assert {await status_line(streams) for streams in opened[-5:]} == {b"HTTP/1.1 200"}
        for _, writer in opened:
            writer.close()


async def test_incomplete_forms_keep_no_connection(model, monkeypatch):
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nContent-Length: 100\r\n"
    form = head + b"Content-Type: application/x-www-form-urlencoded\r\nExpect: 100-continue\r\n\r\ntoken="
    async with console_of(model, port=0, max_connections=10) as console, console.server.serve(None) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for reader, writer in opened:
            writer.write(form)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        reader, last = await asyncio.open_connection("127.0.0.1", port)
        last.write(b"GET /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
        monkeypatch.setattr("console.server._FIRST_REQUEST_SECONDS", 0)
        reader, later = await asyncio.open_connection("127.0.0.1", port)
        later.write(form)
        assert b"HTTP/1.1 408 Request Timeout\r\n" in await reader.readuntil(b"Timeout\r\n")
        for writer in (last, later, *(writer for _, writer in opened)):
            writer.close()


async def test_open_stream_is_not_closed_for_new_connections(model):
    stream = b"GET /events?path=/ HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer op\r\n\r\n"
    async with console_of(model, port=0, max_connections=10) as console, console.server.serve(None) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        for reader, writer in opened:
            writer.write(stream)
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        refused, last = await asyncio.open_connection("127.0.0.1", port)
        with suppress(ConnectionError):
            assert await refused.read() == b""
        assert not any(reader.at_eof() for reader, _ in opened)
        for writer in (last, *(writer for _, writer in opened)):
            writer.close()


async def test_malformed_request_leaves_no_trace_in_the_log(model, caplog):
    async with console_of(model, port=0) as console, console.server.serve(None) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nno colon\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
    assert not any(record.exc_info for record in caplog.records)


async def test_bodies_are_limited(console):
    assert (await console.post("/login", console.origin, token="x" * 100_000)).status == 413


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param({}, 400, id="no-text"),
        pytest.param({"Content-Type": "application/x-www-form-urlencoded; charset=none"}, 400, id="unknown-charset"),
        pytest.param({"Content-Encoding": "gzip"}, 400, id="not-compressed"),
        pytest.param({"Content-Type": "multipart/form-data"}, 415, id="no-boundary"),
        pytest.param({"Content-Type": "application/json"}, 415, id="json"),
    ],
)
async def test_form_that_cannot_be_read_is_not_logged(console, capsys, headers, status):
    form = {"Origin": console.origin, "Content-Type": "application/x-www-form-urlencoded", **headers}
    answer = await console.client.post("/login", data=b"token=secret\xff", headers=form, allow_redirects=False)
    assert (answer.status, "secret" in capsys.readouterr().out) == (status, False)


async def test_input_on_an_open_stream_is_not_buffered(model):
    request = b"GET /events?path=/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer op\r\n\r\n"
    async with console_of(model, port=0) as console, console.server.serve(None) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request)
        assert b"200" in await reader.readline()
        sent, chunk = 0, request * 1000
        try:
            while sent < 64 << 20:
                writer.write(chunk)
                async with asyncio.timeout(1):
                    await writer.drain()
                sent += len(chunk)
        except TimeoutError:
            pass
        # The sockets' own buffers hold some megabytes.
        assert sent < 32 << 20
        writer.transport.abort()


@pytest.mark.parametrize("query", ["page=0", "page=x", "page=99999", "sort=nonsense", f"q={'x' * 300}"])
async def test_invalid_parameters_are_refused(console, query):
    assert await console.status(f"/api/v1/workloads?{query}") == 400


@pytest.mark.parametrize("path", ["http://[", f"/workloads?{'&'.join(f'a{number}=1' for number in range(30))}"])
async def test_stream_of_no_page_is_refused(console, path):
    assert await console.status(f"/events?path={quote(path, safe='')}") == 400


@pytest.mark.parametrize("name", ["nothing", "..%2Fserver.py", "%00", "a" * 300])
async def test_unknown_file_is_not_found(console, name):
    assert await console.status(f"/static/{name}", "") == 404


async def test_no_write_verb_but_login(console):
    for verb in ("post", "put", "patch", "delete"):
        answer = await getattr(console.client, verb)("/queues/a", headers={"Authorization": "Bearer op"})
        assert answer.status == 405


async def test_answers_without_body_leave_the_connection_usable(console):
    # A proxy may take what follows for the answer to another user.
    headers = {"Authorization": "Bearer op"}
    tag = (await console.get("/static/console.js")).headers["Etag"]
    for path, status in (("/", 200), (OVERVIEW, 200), ("/static/console.js", 200), ("/events?path=/", 405)):
        assert (await console.client.head(path, headers=headers)).status == status
        assert await console.status("/login", "") == 200
    for condition in ({"If-None-Match": tag}, {"If-Modified-Since": "Fri, 01 Jan 2100 00:00:00 GMT"}):
        assert await console.status("/static/console.js", "", **condition) == 304
        assert await console.status("/login", "") == 200


# -- streams ---------------------------------------------------------------------


async def read_event(stream) -> str:
    """Return the next compressed event of a stream."""
    async with asyncio.timeout(20):
        return (await stream.content.readuntil(b"\n\n")).decode()


def remove_workloads(model, *names: str) -> None:
    for binding in [binding for binding in model.store.bindings if binding.template.name in names]:
        model.store.bindings.remove(binding)
    model.refresh(model.snapshot.now + 1000)


async def test_stream_sends_the_page_again_when_it_changes(console, model):
    stream = await console.get("/events?path=/workloads", "op")
    assert "train-one" in await read_event(stream)
    remove_workloads(model, "later")
    text = await read_event(stream) + await read_event(stream)
    assert "train-one" in text
    assert "later" not in text
    stream.close()


async def test_stream_whose_client_has_left_ends_without_error(console, model):
    with capture_logs() as logs:
        stream = await console.get("/events?path=/workloads", "op")
        await read_event(stream)
        stream.close()
        while console.server._streams:
            model.refresh(model.snapshot.now + 1000)
            await asyncio.sleep(0.01)
    assert [entry for entry in logs if entry["log_level"] == "error"] == []


async def test_stream_whose_client_leaves_at_once_ends_without_error(console, monkeypatch):
    page_of = Renders.page

    async def page_after_the_client_has_left(self, *arguments):
        for connection in console.client.server.runner.server.connections:
            connection.transport.abort()
        return await page_of(self, *arguments)

    monkeypatch.setattr(Renders, "page", page_after_the_client_has_left)
    with capture_logs() as logs:
        with pytest.raises(ClientError):
            await console.get("/events?path=/workloads", "op")
        await poll(lambda: not console.server._busy, "the end of the request")
    assert not logs


async def test_stream_that_is_not_read_is_closed(console, model, monkeypatch):
    stream = await console.get("/events?path=/workloads", "op")
    await read_event(stream)

    async def unread(*_):
        raise TimeoutError

    monkeypatch.setattr("console.server._send", unread)
    remove_workloads(model, "later")
    with pytest.raises(ClientError):
        await stream.content.read()


async def test_longest_change_has_a_stream(console):
    lines = ["apiVersion: scheduling.volcano.sh/v1beta1", "kind: Queue", "metadata: {name: a}", "spec:", "  deserved:"]
    text = "\r\n".join([*lines, *(f"    example.com/gpu-{number}: '{number}'" for number in range(10, 72))])
    assert 1_900 < len(text) <= 2_000
    # As a browser sends the form, and the script its address.
    page = f"/what-if?{urlencode({'change': text})}"
    assert await console.status(page) == 200
    stream = await console.get(f"/events?path={quote(page, safe='')}", "op")
    assert stream.status == 200, await stream.text()
    assert "example.com/gpu-71" in await read_event(stream)
    stream.close()


async def test_change_is_rendered_once_for_all_streams(model, monkeypatch):
    rendered = []
    render_page = Renders.html

    def count(renders, page, path, query, data, **more):
        rendered.append(path)
        return render_page(renders, page, path, query, data, **more)

    monkeypatch.setattr(Renders, "html", count)
    users = {f"op-{number}": OPERATOR for number in range(10)}
    async with console_of(model, users) as console:
        streams = [await console.get("/events?path=/workloads", user) for user in users]
        for stream in streams:
            await read_event(stream)
            assert "event: time" in await read_event(stream)
        assert rendered == ["/workloads"]
        remove_workloads(model, "train-one", "train-two", "later")
        for stream in streams:
            await read_event(stream)
        assert rendered == ["/workloads"] * 2
        for stream in streams:
            stream.close()


async def test_revoked_right_closes_the_stream(console, monkeypatch):
    monkeypatch.setattr("console.server._REVIEW_SECONDS", 0.2)
    stream = await console.get("/events?path=/workloads", "one")
    assert "train-one" in await read_event(stream)
    assert "event: time" in await read_event(stream)
    console.access.users["one"] = frozenset()
    assert "event: reload" in await read_event(stream)


async def test_open_stream_reviews_again_only_what_was_granted(tmp_path, monkeypatch):
    monkeypatch.setattr("console.server._REVIEW_SECONDS", 0.2)
    jobs = [pending_job(f"ns-{number:02}", "train", "a") for number in range(40)]
    model = model_of(tmp_path, queue("a"), cluster("m1"), *jobs)
    async with console_of(model, {"one": tenant_of("ns-07", "ns-08")}) as console:
        stream = await console.get("/events?path=/workloads", "one")
        await read_event(stream)
        console.access.reviews.clear()
        async with asyncio.timeout(30):
            while len(console.access.reviews) < 10:  # noqa: ASYNC110 -- the stream tells nothing of its reviews
                await asyncio.sleep(0.05)
        assert {permission.namespace for _, permission in console.access.reviews} == {"", "ns-07", "ns-08"}
        console.renders.invalidate()
        console.server.on_update()
        assert "event: time" in await read_event(stream)
        stream.close()


async def test_denied_namespaces_of_an_open_stream_are_bounded(console, monkeypatch):
    monkeypatch.setattr("console.server._MAX_DENIED", 100)
    reader = await console.renders.rights.reader(User("one"))
    request = make_mocked_request("GET", "/events", headers={"Authorization": "Bearer one"})
    for update in range(10):
        reader.namespaces |= {"one": True, **{f"ns-{update}-{number}": False for number in range(50)}}
        reader = await console.server._reviewed(request, reader)
    assert reader.namespaces == {
        "one": True,
        **{f"ns-{update}-{number}": False for update in (8, 9) for number in range(50)},
    }


async def test_revoked_token_closes_the_stream(console, monkeypatch):
    monkeypatch.setattr("console.server._REVIEW_SECONDS", 0.2)
    stream = await console.get("/events?path=/", "op")
    await read_event(stream)
    assert "event: time" in await read_event(stream)
    del console.access.users["op"]
    assert "event: reload" in await read_event(stream)


def test_event_can_follow_any_other_in_a_stream():
    parts = [event("page", "a\nb" * 1000), event("time", "12:00")]
    text = zlib.decompressobj(-zlib.MAX_WBITS).decompress(b"".join(parts)).decode()
    assert text.startswith("event: page\ndata: a\n")
    assert text.endswith("event: time\ndata: 12:00\n\n")
