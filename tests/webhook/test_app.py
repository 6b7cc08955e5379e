"""Tests which requests the webhook accepts, its probes and its metrics."""

import asyncio
import gzip
import io
import json

import aiohttp
import pytest

from tests.waiting import LIMIT_SECONDS
from tests.webhook.conftest import serve
from tests.webhook.reviews import UID, job_binding, review, review_of, volcano_queue, wire
from webhook.queue_cache import decode_cached
from webhook.review import Outcome

GOOD = wire(review(job_binding()))


async def until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await asyncio.wait_for(reader.read(), LIMIT_SECONDS)
    except (ConnectionError, OSError):
        return b""


async def raw(running, text: bytes) -> bytes:
    """Send *text* unchanged and return the answer until the connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.trust)
    writer.write(text)
    try:
        return await until_closed(reader)
    finally:
        writer.close()


async def test_answer_is_an_admission_review(running):
    async with running.post(GOOD) as answer:
        body = await answer.json()
    assert answer.status == 200
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert body["response"]["uid"] == UID
    assert body["response"]["allowed"] is True


async def test_query_string_is_ignored(running):
    async with running.post(GOOD, path="/resourcebindings/mutate?timeout=5s") as answer:
        assert answer.status == 200


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"headers": {"Content-Encoding": "gzip"}, "data": gzip.compress(GOOD)}, 415, id="gzip"),
        pytest.param({"headers": {"Content-Encoding": "identity"}}, 415, id="identity"),
        pytest.param({"headers": {"Content-Encoding": "zstd"}}, 415, id="zstd"),
        pytest.param({"headers": {"Content-Type": "application/yaml"}}, 415, id="yaml"),
        pytest.param({"headers": {"Content-Type": "text/plain; charset=utf-8"}}, 415, id="text"),
        pytest.param({"path": "/"}, 404, id="root"),
        pytest.param({"path": "/resourcebindings/mutate/"}, 404, id="trailing-slash"),
        pytest.param({"path": "/jobs/mutat"}, 404, id="unknown"),
        pytest.param({"path": "/metrics"}, 404, id="metrics"),
        pytest.param({"path": "/%2e%2e/x"}, 404, id="dots"),
        pytest.param({"data": io.BytesIO(b"x" * (4 << 20) + b"x")}, 413, id="one-byte-too-many"),
        pytest.param({"data": io.BytesIO(b"x" * (4 << 20))}, 400, id="as-many-as-are-allowed"),
    ],
)
async def test_invalid_headers_are_refused_with_a_message(running, options, code):
    async with running.post(**({"data": GOOD} | options), skip_auto_headers=["Content-Encoding"]) as answer:
        status = await answer.json()
    assert answer.status == status["code"] == code
    assert status["message"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"])
async def test_other_methods_than_post_are_refused(running, method):
    url = running.url + "/resourcebindings/mutate"
    async with running.client.request(method, url, ssl=running.trust) as answer:
        assert answer.status == 405


async def test_content_length_of_64_mib_is_refused_unread(running):
    head = b"POST /resourcebindings/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    answer = await raw(running, head + b"Content-Length: 67108864\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"larger than 4194304 bytes" in answer


async def test_endless_body_is_refused_at_the_limit(running):
    sent = 0

    async def endless():
        nonlocal sent
        while True:
            sent += 1 << 16
            yield b"[" * (1 << 16)

    try:
        async with running.post(endless()) as answer:
            assert answer.status == 413
    except aiohttp.ClientConnectionError:
        pass  # the connection was reset before the answer was read
    # The limit plus the buffers of two sockets and of TLS.
    assert sent < 16 << 20


async def test_incomplete_body_times_out(running):
    head = b"POST /resourcebindings/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    answer = await raw(running, head + b"Content-Length: 1000\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"not complete within 0.2 s" in answer


@pytest.mark.parametrize(
    "beginning", [pytest.param(b"", id="silent"), pytest.param(b"POST /resourcebind", id="half-a-request")]
)
async def test_connection_without_request_is_closed(running, beginning):
    started = asyncio.get_running_loop().time()
    assert await raw(running, beginning) == b""
    assert asyncio.get_running_loop().time() - started < 3


async def test_idle_connection_outlives_the_header_timeout(running):
    async with running.post(GOOD) as answer:
        first = answer.connection.transport if answer.connection else None
        await answer.read()
    await asyncio.sleep(0.4)
    async with running.post(GOOD) as answer:
        await answer.read()
    assert answer.status == 200
    assert first is None or not first.is_closing()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"\r\n\r\n\r\n", id="blank"),
        pytest.param(b"\x16\x03\x01\x00\x00", id="tls-in-tls"),
        pytest.param(b"POST / HTTP/9.9\r\n\r\n", id="version"),
        pytest.param(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", id="negative-length"),
        pytest.param(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 2\r\n\r\n", id="two-lengths"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: " + b"b" * 100_000 + b"\r\n\r\n", id="long-header"),
        pytest.param(
            b"POST /resourcebindings/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            id="broken-chunk",
        ),
        pytest.param(
            b"POST /resourcebindings/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n5\r\n{}{}{\r\n0\r\n\r\n",
            id="compressed-transfer",
        ),
    ],
)
async def test_invalid_http_is_answered_400(running, text):
    answer = await raw(running, text)
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    async with running.post(GOOD) as good:
        assert good.status == 200


async def test_both_ports_answer_health_probes(running):
    for url in (running.url, f"http://127.0.0.1:{running.plain_port}"):
        for path in ("/healthz", "/readyz"):
            async with running.client.get(url + path, ssl=running.trust) as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")


async def test_plain_port_takes_no_reviews(running):
    url = f"http://127.0.0.1:{running.plain_port}/resourcebindings/mutate"
    async with running.client.post(url, data=GOOD) as answer:
        assert answer.status == 404


async def test_readiness_names_the_reason(running):
    running.app.not_ready = lambda: "the certificate expired"
    async with running.client.get(f"http://127.0.0.1:{running.plain_port}/readyz") as answer:
        assert (answer.status, await answer.text()) == (503, "the certificate expired\n")


async def test_draining_server_closes_connections_after_answers(running):
    running.app.draining = True
    async with running.post(GOOD) as answer:
        assert answer.status == 200
        assert answer.headers["Connection"] == "close"


async def test_metrics_count_requests_and_outcomes(running):
    await running.post(GOOD)
    await running.post(b"{}")
    await running.post(b"{}", path="/x")
    async with running.client.get(f"http://127.0.0.1:{running.plain_port}/metrics") as answer:
        page = await answer.text()
    assert 'volcano_global_webhook_responses_total{outcome="patched",path="/resourcebindings/mutate"} 1.0' in page
    assert 'volcano_global_webhook_requests_total{code="400",path="/resourcebindings/mutate"} 1.0' in page
    assert 'volcano_global_webhook_requests_total{code="404",path="other"} 1.0' in page


async def test_unknown_paths_share_one_metric_label(running):
    for number in range(30):
        await running.post(json.dumps(review(job_binding(), namespace=f"n{number}")).encode(), path=f"/{number}")
    assert running.app.metrics.render().count(b"volcano_global_webhook_requests_total{") == 1
    assert b"n7" not in running.app.metrics.render()


def test_every_outcome_is_exported_as_zero(running):
    running.app.metrics.requests.initialize("/resourcebindings/mutate")
    page = running.app.metrics.render().decode()
    assert all(f'outcome="{outcome}"' in page for outcome in Outcome)


async def test_connection_limit_closes_the_longest_silent_one(certificates):
    async with serve(certificates, max_connections=16, header_seconds=30) as running:
        silent = [await asyncio.open_connection("127.0.0.1", running.port, ssl=running.trust) for _ in range(16)]
        async with running.post(GOOD) as answer:
            assert answer.status == 200
        assert await until_closed(silent[0][0]) == b""
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(silent[15][0].read(), 0.1)
        for _, writer in silent:
            writer.close()


async def test_buffer_limit_answers_503_to_further_bodies(certificates):
    async with serve(certificates, max_buffered_bytes=100_000) as running:
        head = (
            b"POST /jobs/mutate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n\r\n"
        )
        writers = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.trust)
            writer.write(head + b"[" * 60_000)
            writers.append(writer)
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 503 ")
        async with running.post(GOOD) as answer:
            assert answer.status == 200
        for writer in writers:
            writer.close()
    assert running.app.buffered == 0


def missing_queue():
    return wire(review_of(volcano_queue(parent="p")))


async def test_queue_denial_is_reviewed_again_with_a_fresh_list(running):
    running.queues.replace([])

    async def look():
        running.queues.replace([decode_cached(wire(volcano_queue("p")))])
        return True

    running.app.refresh_queues = look
    async with running.post(missing_queue(), path="/queues/validate") as answer:
        assert (await answer.json())["response"]["allowed"] is True


async def test_queue_denial_becomes_a_warning_without_a_list(running):
    running.queues.replace([])

    async def look():
        return False

    running.app.refresh_queues = look
    async with running.post(missing_queue(), path="/queues/validate") as answer:
        response = (await answer.json())["response"]
    assert response["allowed"] is True
    assert response["warnings"][0].startswith(
        "not checked, because the queues cannot be listed now: queue 'q': parent queue 'p'"
    )


async def test_queue_deletion_lists_children_first(running):
    running.queues.replace([decode_cached(wire(volcano_queue("p")))])

    async def look():
        running.queues.upsert(decode_cached(wire(volcano_queue("c", parent="p"))))
        return True

    running.app.refresh_queues = look
    body = wire(review_of(None, old=volcano_queue("p"), operation="DELETE"))
    async with running.post(body, path="/queues/validate") as answer:
        assert (await answer.json())["response"]["allowed"] is False
