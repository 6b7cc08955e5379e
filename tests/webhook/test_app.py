"""Tests which requests the webhook accepts, its probes and its metrics."""

import asyncio
import gzip
import io
import re
import socket

import pytest

from tests.waiting import LIMIT_SECONDS
from tests.webhook.conftest import MUTATE, exchange, serve, until_closed
from tests.webhook.reviews import GOOD, HEAD, UID, job_binding, review, review_of, volcano_queue, wire
from webhook.queue_cache import decode_cached
from webhook.review import Outcome

LIMIT = 4 << 20


async def chunked(size: int):
    """Yield a body whose length the headers do not tell."""
    yield b"[" * size


async def test_answer_is_an_admission_review(running):
    async with running.post(GOOD, path="/resourcebindings/mutate?timeout=5s") as answer:
        body = await answer.json()
    assert answer.status == 200
    assert (body["apiVersion"], body["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    assert (body["response"]["uid"], body["response"]["allowed"]) == (UID, True)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        pytest.param({"headers": {"Content-Encoding": "gzip"}, "data": gzip.compress(GOOD)}, 415, id="gzip"),
        pytest.param({"headers": {"Content-Encoding": "identity"}}, 415, id="identity"),
        pytest.param({"headers": {"Content-Type": "application/yaml"}}, 415, id="yaml"),
        pytest.param({"path": "/"}, 404, id="root"),
        pytest.param({"path": "/resourcebindings/mutate/"}, 404, id="trailing-slash"),
        pytest.param({"path": "/metrics"}, 404, id="metrics"),
        pytest.param({"path": "/%2e%2e/x"}, 404, id="dots"),
        pytest.param({"data": io.BytesIO(b"x" * (LIMIT + 1))}, 413, id="one-byte-too-many"),
        pytest.param({"data": io.BytesIO(b"x" * LIMIT)}, 400, id="maximum-size"),
        pytest.param({"data": chunked(LIMIT + 1)}, 413, id="one-byte-too-many-in-chunks"),
    ],
)
async def test_invalid_headers_are_refused_with_a_message(running, options, code):
    async with running.post(**({"data": GOOD} | options), skip_auto_headers=["Content-Encoding"]) as answer:
        status = await answer.json()
    assert answer.status == status["code"] == code
    assert status["message"]


@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "OPTIONS"])
async def test_other_methods_than_post_are_refused(running, method):
    url = running.url + "/resourcebindings/mutate"
    async with running.client.request(method, url, ssl=running.trust) as answer:
        assert answer.status == 405


async def test_error_of_the_webhook_is_answered_500_and_counted(running):
    def fail(request):
        raise RuntimeError("a mistake")

    running.app.handlers = {**running.app.handlers, MUTATE: fail}
    async with running.post(GOOD) as answer:
        assert answer.status == 500
    async with running.client.get(f"http://127.0.0.1:{running.plain_port}/metrics") as metrics:
        page = await metrics.text()
    assert f'volcano_global_webhook_requests_total{{code="500",path="{MUTATE}"}} 1' in page


async def test_content_length_of_64_mib_is_refused_unread(running):
    answer = await exchange(running.port, running.trust, HEAD + b"Content-Length: 67108864\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"larger than 4194304 bytes" in answer


async def test_incomplete_body_times_out(certificates):
    async with serve(certificates, body_seconds=0.2) as running:
        answer = await exchange(running.port, running.trust, HEAD + b"Content-Length: 1000\r\n\r\n{")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"not complete within 0.2 s" in answer


@pytest.mark.parametrize(
    "beginning", [pytest.param(b"", id="silent"), pytest.param(b"POST /resourcebind", id="half-a-request")]
)
async def test_connection_without_request_is_closed(certificates, beginning):
    async with serve(certificates, header_seconds=0.25) as running:
        assert await exchange(running.port, running.trust, beginning) == b""


async def test_idle_connection_outlives_the_header_timeout(certificates):
    request = HEAD + f"Content-Length: {len(GOOD)}\r\n\r\n".encode() + GOOD
    async with serve(certificates, header_seconds=2) as running:
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.trust)
        for pause in (0, 2.5):
            await asyncio.sleep(pause)
            writer.write(request)
            async with asyncio.timeout(LIMIT_SECONDS):
                headers = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(re.search(rb"(?i)content-length: (\d+)", headers)[1]))
            assert headers.startswith(b"HTTP/1.1 200 ")
        writer.close()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"\r\n\r\n\r\n", id="blank"),
        pytest.param(b"\x16\x03\x01\x00\x00", id="tls-in-tls"),
        pytest.param(b"POST / HTTP/9.9\r\n\r\n", id="version"),
        pytest.param(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", id="negative-length"),
        pytest.param(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 2\r\n\r\n", id="two-lengths"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: " + b"b" * 100_000 + b"\r\n\r\n", id="long-header"),
        pytest.param(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", id="broken-chunk"),
        pytest.param(
            HEAD + b"Transfer-Encoding: gzip, chunked\r\nConnection: close\r\n\r\n5\r\n{}{}{\r\n0\r\n\r\n",
            id="compressed-transfer",
        ),
    ],
)
async def test_invalid_http_is_answered_400(running, text):
    answer = await exchange(running.port, running.trust, text)
    assert not answer or answer.startswith((b"HTTP/1.1 4", b"HTTP/1.0 4"))
    async with running.post(GOOD) as good:
        assert good.status == 200


async def test_both_ports_answer_health_probes(running):
    plain = f"http://127.0.0.1:{running.plain_port}"
    for url in (running.url, plain):
        for path in ("/healthz", "/readyz"):
            async with running.client.get(url + path, ssl=running.trust) as answer:
                assert (answer.status, await answer.text()) == (200, "ok\n")
    running.app.not_ready = lambda: "the certificate expired"
    async with running.client.get(f"{plain}/readyz") as answer:
        assert (answer.status, await answer.text()) == (503, "the certificate expired\n")


async def test_plain_port_takes_no_reviews(running):
    url = f"http://127.0.0.1:{running.plain_port}/resourcebindings/mutate"
    async with running.client.post(url, data=GOOD) as answer:
        assert answer.status == 404


async def test_draining_server_closes_connections_after_answers(running):
    running.app.draining = True
    async with running.post(GOOD) as answer:
        assert answer.status == 200
        assert answer.headers["Connection"] == "close"


async def test_caller_that_never_ends_tls_is_disconnected(running):
    """From Python 3.12 on, the process ends only after all connections."""

    def close_from_the_server() -> bytes:
        with socket.create_connection(("127.0.0.1", running.port), timeout=10) as plain:
            connection = running.trust.wrap_socket(plain, server_hostname="127.0.0.1")
            connection.sendall(HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(GOOD) + GOOD)
            received = b""
            while b"patchType" not in received:
                received += connection.recv(65536)
        with socket.socket(fileno=connection.detach()) as silent:
            silent.settimeout(10)  # asyncio waits for 30 s by default
            return b"".join(iter(lambda: silent.recv(65536), b""))

    await asyncio.to_thread(close_from_the_server)


async def test_metrics_count_requests_and_outcomes(running):
    await running.post(GOOD)
    await running.post(b"{}")
    for number in range(30):
        await running.post(wire(review(job_binding(), namespace=f"n{number}")), path=f"/{number}")
    async with running.client.get(f"http://127.0.0.1:{running.plain_port}/metrics") as answer:
        page = await answer.text()
    path = 'path="/resourcebindings/mutate"'
    for outcome in Outcome:
        count = 1.0 if outcome is Outcome.PATCHED else 0.0
        assert f'volcano_global_webhook_responses_total{{outcome="{outcome}",{path}}} {count}' in page
    assert f'volcano_global_webhook_requests_total{{code="400",{path}}} 1.0' in page
    assert 'volcano_global_webhook_requests_total{code="404",path="other"} 30.0' in page
    assert page.count("volcano_global_webhook_requests_total{") == 3
    assert "n7" not in page, "neither unknown paths nor namespaces are labels"


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


async def test_connection_limit_closes_idle_ones_that_sent_a_request(certificates):
    async with serve(certificates, max_connections=16) as running:
        idle = []
        for _ in range(16):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.trust)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            idle.append((reader, writer))
        async with running.post(GOOD) as answer:
            assert answer.status == 200
        assert (await until_closed(idle[0][0])).endswith(b"ok\n")
        for _, writer in idle:
            writer.close()


async def test_buffer_limit_answers_503_to_further_bodies(certificates):
    async with serve(certificates, max_buffered_bytes=100_000) as running:
        writers = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", running.port, ssl=running.trust)
            writer.write(HEAD + b"Content-Length: 90000\r\n\r\n" + b"[" * 60_000)
            writers.append(writer)
        assert (await until_closed(reader)).startswith(b"HTTP/1.1 503 ")
        async with running.post(GOOD) as answer:
            assert answer.status == 200
        for writer in writers:
            writer.close()
    assert running.app.buffered == 0


async def review_queue(running, look, new, **request):
    """Return the answer to the review of a queue, for which the webhook lists the queues again with *look*."""
    running.app.refresh_queues = look
    async with running.post(wire(review_of(new, **request)), path="/queues/validate") as answer:
        return (await answer.json())["response"]


async def test_queue_denial_is_reviewed_again_with_a_fresh_list(running):
    running.queues.replace([])

    async def look():
        running.queues.replace([decode_cached(wire(volcano_queue("p")))])
        return True

    assert (await review_queue(running, look, volcano_queue(parent="p")))["allowed"] is True


async def test_queue_denial_becomes_a_warning_without_a_list(running):
    running.queues.replace([])

    async def look():
        return False

    response = await review_queue(running, look, volcano_queue(parent="p"))
    assert response["allowed"] is True
    (warning,) = response["warnings"]
    assert warning.startswith("not checked, because the queues cannot be listed now: queue 'q': parent queue 'p'")


async def test_queue_deletion_lists_children_first(running):
    running.queues.replace([decode_cached(wire(volcano_queue("p")))])

    async def look():
        running.queues.upsert(decode_cached(wire(volcano_queue("c", parent="p"))))
        return True

    response = await review_queue(running, look, None, old=volcano_queue("p"), operation="DELETE")
    assert response["allowed"] is False
