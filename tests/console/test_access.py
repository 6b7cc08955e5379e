"""Login, rights, headers and limits of the console.

The weaknesses that KueueViz had are among them: streams for other sites (kueue#12734), unlimited input (kueue#12614),
work for each client and change (kueue#12535), connections without time limits (kueue#12590), unlimited reviews
(kueue#12536, kueue#13172), streams that outlive their token (kueue#12563), no authorization (kueue#11143), and
authentication that is off by default. That containers do not run as root (kueue#12586) is tested with the chart and the
image, and the limits of reviews and their caches with the reviews.
"""

import asyncio
import gzip
import zlib

import pytest

from console.renders import Renders
from console.settings import ConsoleSettings
from controller.api.visibility import RESOURCE
from tests.console.consoles import OPERATOR, console_of, model_of, tenant_of
from tests.console.objects import cluster, pending_job, queue

PAGES = (
    *("/", "/queues", "/queues/a", "/workloads", "/workloads/one/Job/train-one"),
    *("/hyperjobs", "/clusters", "/clusters/m1"),
)


@pytest.fixture
def model(tmp_path):
    jobs = [
        *pending_job("one", "train-one", "a"),
        *pending_job("two", "train-two", "b"),
        *pending_job("two", "later", "a"),
    ]
    return model_of(tmp_path, queue("a"), queue("b"), cluster("m1"), *jobs)


USERS = {"op": OPERATOR, "one": tenant_of("one"), "nothing": frozenset()}


async def test_no_page_without_a_token(model):
    async with console_of(model, USERS) as console:
        for path in PAGES:
            api = await console.get("/api/v1/overview" if path == "/" else f"/api/v1{path}")
            assert api.status == 401, path
            page = await console.get(path)
            assert (page.status, page.headers["Location"].partition("?")[0]) == (303, "/login"), path
        assert (await console.get("/events?path=/")).status == 401
        assert (await console.get("/", token="unknown")).status == 401


async def test_token_in_the_address_is_not_accepted(model):
    # Addresses are in logs and histories.
    async with console_of(model, USERS) as console:
        for name in ("token", "access_token", "authorization", "bearer"):
            assert (await console.get(f"/api/v1/overview?{name}=op")).status == 401
            assert (await console.get(f"/events?path=/&{name}=op")).status == 401


async def test_operator_sees_every_page(model):
    async with console_of(model, USERS) as console:
        for path in PAGES:
            page = await console.get(path, "op")
            assert page.status == 200, path
            api = await console.get("/api/v1/overview" if path == "/" else f"/api/v1{path}", "op")
            assert (api.status, api.content_type) == (200, "application/json"), path


async def test_tenant_sees_own_names_and_amounts_of_others(model):
    async with console_of(model, USERS) as console:
        text = await console.text("/queues/a", "one")
        assert "train-one" in text
        assert "later" not in text
        assert "1 workload of other namespaces" in text
        assert (await console.get("/workloads/two/Job/train-two", "one")).status == 404
        assert (await console.get("/queues/b", "one")).status == 404
        assert (await console.get("/clusters", "one")).status == 403


async def test_user_without_rights_sees_no_name(model):
    async with console_of(model, USERS) as console:
        for path in PAGES:
            text = await (await console.get(path, "nothing")).text()
            # What it has asked for itself is in the answer, which says no more than that.
            assert "train-" not in text.replace(path, "").replace("&#39;train-one&#39;", ""), path


async def test_unknown_and_foreign_objects_have_the_same_answer(model):
    async with console_of(model, USERS) as console:
        foreign = await (await console.get("/api/v1/workloads/two/Job/train-two", "one")).json()
        unknown = await (await console.get("/api/v1/workloads/two/Job/train-xyz", "one")).json()
        assert foreign == {**unknown, "message": unknown["message"].replace("train-xyz", "train-two")}


async def test_page_reviews_at_most_fifty_namespaces(tmp_path):
    jobs = [item for number in range(120) for item in pending_job(f"ns-{number:03}", "train", "a")]
    model = model_of(tmp_path, queue("a"), cluster("m1"), *jobs)
    async with console_of(model, {"one": tenant_of("ns-007")}) as console:
        await console.text("/queues/a?page=2", "one")
        reviewed = {permission.namespace for _, permission in console.access.reviews if permission.namespace}
        assert len(reviewed) <= 100
        assert "ns-007" in reviewed


async def test_session_cookie_is_out_of_reach_of_scripts_and_sites(model):
    async with console_of(model, USERS) as console:
        origin = str(console.client.make_url("/")).rstrip("/")
        answer = await console.client.post(
            "/login", data={"token": "op", "next": "/queues"}, headers={"Origin": origin}, allow_redirects=False
        )
        assert (answer.status, answer.headers["Location"]) == (303, "/queues")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        page = await console.client.get("/", headers={"Cookie": cookie.partition(";")[0]})
        assert page.status == 200
        assert "op" not in page.headers.get("Set-Cookie", "")


@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", "http://127.0.0.1"])
async def test_form_of_another_site_is_refused(model, origin):
    async with console_of(model, USERS) as console:
        headers = {"Origin": origin} if origin else {}
        for path in ("/login", "/logout"):
            answer = await console.client.post(path, data={"token": "op"}, headers=headers, allow_redirects=False)
            assert answer.status == 403
            assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://127.0.0.1", "http://queues.evil.example"])
async def test_page_of_another_site_reads_nothing(model, origin):
    async with console_of(model, USERS) as console:
        for path in ("/events?path=/", "/api/v1/overview", "/", "/login"):
            cookie = await console.get(path, Cookie="volcano-global=op", Origin=origin)
            token = await console.get(path, "op", Origin=origin)
            assert (cookie.status, token.status) == (403, 403), path
            assert "train" not in await cookie.text()
            assert "Access-Control-Allow-Origin" not in cookie.headers
        own = str(console.client.make_url("/")).rstrip("/")
        assert (await console.get("/api/v1/overview", Cookie="volcano-global=op", Origin=own)).status == 200


@pytest.mark.parametrize("following", ["//evil.example", "https://evil.example/", "/\\evil.example", "javascript:1"])
async def test_login_never_leads_to_another_site(model, following):
    async with console_of(model, USERS) as console:
        origin = str(console.client.make_url("/")).rstrip("/")
        form = {"token": "op", "next": following}
        answer = await console.client.post("/login", data=form, headers={"Origin": origin}, allow_redirects=False)
        assert answer.headers["Location"] == "/"


async def test_other_host_names_are_refused_without_encryption(model):
    async with console_of(model, USERS) as console:
        assert (await console.get("/api/v1/overview", "op", Host="evil.example")).status == 421


async def test_every_answer_has_the_security_headers(model):
    async with console_of(model, USERS) as console:
        for path, token in (("/", "op"), ("/login", ""), ("/nothing", "op"), ("/api/v1/overview", "op")):
            answer = await console.get(path, token)
            policy = answer.headers["Content-Security-Policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Cache-Control"] == "no-store"


async def test_pages_have_no_inline_script_or_style(model):
    async with console_of(model, USERS) as console:
        for path in PAGES:
            text = await console.text(path, "op")
            assert "<script>" not in text
            assert " style=" not in text
            assert " onclick" not in text


async def test_names_are_escaped(tmp_path):
    hostile = pending_job("one", "train", "a")
    hostile[0]["spec"]["priorityClassName"] = "<script>alert(1)</script>"
    model = model_of(tmp_path, queue("a"), cluster("m1"), *hostile)
    async with console_of(model, USERS) as console:
        text = await console.text("/workloads/one/Job/train", "op")
        assert "<script>alert" not in text
        assert "&lt;script&gt;" in text


async def test_foreign_namespace_is_not_served_by_a_filter(model):
    async with console_of(model, USERS) as console:
        listed = await (await console.get("/api/v1/workloads?namespace=two", "one")).json()
        assert listed["workloads"] == []
        own = await (await console.get("/api/v1/workloads?namespace=one", "one")).json()
        assert [row["name"] for row in own["workloads"]] == ["train-one"]


async def test_streams_are_limited_for_a_user_and_together(model):
    async with console_of(model, USERS, max_streams=3, max_streams_per_user=2) as console:
        first = [await console.get("/events?path=/", "op") for _ in range(2)]
        assert [each.status for each in first] == [200, 200]
        assert (await console.get("/events?path=/", "op")).status == 429
        other = await console.get("/events?path=/", "one")
        assert other.status == 200
        assert (await console.get("/events?path=/", "nothing")).status == 429
        for each in (*first, other):
            each.close()


async def test_requests_of_one_user_are_limited(model):
    async with console_of(model, USERS, requests_per_second=1) as console:
        answers = [(await console.get("/api/v1/overview", "op")).status for _ in range(12)]
        assert answers.count(429) >= 6


async def test_connection_without_a_request_is_closed(model, monkeypatch):
    monkeypatch.setattr("console.server._FIRST_REQUEST_SECONDS", 0.3)
    async with console_of(model, USERS, port=0) as console, console.server.serve(None) as port:
        for start in (b"", b"GET / HTTP/1.1\r\nHost: localhost\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(start)
            async with asyncio.timeout(30):
                assert await reader.read() == b""
            writer.close()


async def test_connections_are_limited(model):
    async with console_of(model, USERS, port=0, max_connections=10) as console, console.server.serve(None) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            answer = await reader.read()
        except ConnectionError:
            answer = b""
        assert answer == b""
        for _, each in (*held, (reader, writer)):
            each.close()


async def test_bodies_are_limited(model):
    async with console_of(model, USERS) as console:
        origin = str(console.client.make_url("/")).rstrip("/")
        answer = await console.client.post("/login", data={"token": "x" * 100_000}, headers={"Origin": origin})
        assert answer.status == 413


async def test_input_on_an_open_stream_is_not_buffered(model):
    request = b"GET /events?path=/ HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer op\r\n\r\n"
    async with console_of(model, USERS, port=0) as console, console.server.serve(None) as port:
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
async def test_invalid_parameters_are_refused(model, query):
    async with console_of(model, USERS) as console:
        assert (await console.get(f"/api/v1/workloads?{query}", "op")).status == 400


async def test_no_write_verb_but_login(model):
    async with console_of(model, USERS) as console:
        for verb in ("post", "put", "patch", "delete"):
            answer = await getattr(console.client, verb)("/queues/a", headers={"Authorization": "Bearer op"})
            assert answer.status == 405


async def read_event(answer) -> str:
    """Return the next compressed event of a stream."""
    async with asyncio.timeout(20):
        return (await answer.content.readuntil(b"\n\n")).decode()


async def test_stream_sends_the_page_again_when_it_changes(model):
    async with console_of(model, USERS) as console:
        stream = await console.get("/events?path=/workloads", "op")
        assert "train-one" in await read_event(stream)
        model.store.bindings.remove(next(each for each in model.store.bindings if each.template.name == "later"))
        model.refresh(model.snapshot.now + 1000)
        text = await read_event(stream) + await read_event(stream)
        assert "train-one" in text
        assert "later" not in text
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
        assert rendered == ["/workloads"]
        for binding in list(model.store.bindings):
            model.store.bindings.remove(binding)
        model.refresh(model.snapshot.now + 1000)
        for stream in streams:
            await read_event(stream)
        assert rendered == ["/workloads"] * 2
        for stream in streams:
            stream.close()


async def test_revoked_right_closes_the_stream(model, monkeypatch):
    monkeypatch.setattr("console.server._REVIEW_SECONDS", 0.2)
    async with console_of(model, USERS) as console:
        stream = await console.get("/events?path=/workloads", "one")
        assert "train-one" in await read_event(stream)
        console.access.users["one"] = frozenset()
        assert "event: reload" in await read_event(stream)


async def test_revoked_token_closes_the_stream(model, monkeypatch):
    monkeypatch.setattr("console.server._REVIEW_SECONDS", 0.2)
    async with console_of(model, USERS) as console:
        stream = await console.get("/events?path=/", "op")
        await read_event(stream)
        del console.access.users["op"]
        assert "event: reload" in await read_event(stream)


async def test_readers_with_equal_rights_share_a_render(model):
    users = {"op": OPERATOR, "other": OPERATOR}
    async with console_of(model, users) as console:
        await console.text("/", "op")
        shared = dict(console.renders._shared)
        await console.text("/", "other")
        assert dict(console.renders._shared) == shared


def test_other_addresses_than_loopback_need_a_certificate(tmp_path):
    with pytest.raises(ValueError, match="certificate-directory"):
        ConsoleSettings(host="0.0.0.0")
    with pytest.raises(ValueError, match="authenticated by TLS"):
        ConsoleSettings(proxy_client_ca=tmp_path / "ca.crt")
    assert RESOURCE == "workloads"


def test_event_can_follow_any_other_in_a_stream():
    from console.renders import event  # noqa: PLC0415 -- with the helper beneath

    parts = [event("page", "a\nb" * 1000), event("time", "12:00")]
    text = zlib.decompressobj(-zlib.MAX_WBITS).decompress(b"".join(parts)).decode()
    assert text.startswith("event: page\ndata: a\n")
    assert text.endswith("event: time\ndata: 12:00\n\n")
    assert gzip.compress(b"").startswith(b"\x1f\x8b")
