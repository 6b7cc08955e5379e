"""The API client against a failing server, and against a real one."""

import json
import ssl
import stat
import tracemalloc
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from cryptography.x509 import load_pem_x509_certificate
from cryptography.x509.oid import ExtendedKeyUsageOID

from controller.kube.client import MAX_PAGE, Api, Timeouts
from controller.kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from controller.kube.kubeconfig import KubeconfigError, load_access
from tests.authority import Authority
from tests.scripted_server import (
    ScriptedServer,
    answering,
    cut,
    paging,
    refusing,
    scripted_server,
    silent,
    thing,
    watching,
)

THINGS = "/apis/example.io/v1/things"
THING = "/apis/example.io/v1/namespaces/ns/things/a"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@pytest.fixture
async def api(server, tmp_path) -> AsyncIterator[Api]:
    async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig"), timeouts=Timeouts(renewal=0)) as api:
        yield api


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, ApiError),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (422, Invalid),
        (429, TooManyRequests),
        (500, ServerError),
        (504, ServerError),
    ],
)
async def test_each_status_has_its_error_class(server, api, status, error):
    server.says("PATCH", THING, refusing(status, "the reason", retry_after=2))
    with pytest.raises(ApiError) as caught:
        await api.patch(THING, b"[]")
    assert type(caught.value) is error
    assert str(caught.value) == f"PATCH {THING}: {status} the reason"
    assert caught.value.retry_after == 2


async def test_error_without_status_object_is_read(server, api):
    server.says("GET", THING, answering(502, "upstream is away", {"Retry-After": "7"}))
    with pytest.raises(ServerError, match="upstream is away") as caught:
        await api.get(THING)
    assert caught.value.retry_after == 7


@pytest.mark.parametrize(
    ("answer", "timeouts", "says"),
    [
        pytest.param(silent, Timeouts(write=0.1, grace=0.1), "no response in time", id="timeout"),
        pytest.param(cut, Timeouts(), "the server closed it", id="cut"),
    ],
)
async def test_missing_answer_leaves_outcome_unknown(server, tmp_path, answer, timeouts, says):
    server.says("PATCH", THING, answer)
    async with Api.connect(server.kubeconfig(tmp_path / "kubeconfig"), timeouts=timeouts) as api:
        with pytest.raises(Unreachable, match=says) as caught:
            await api.patch(THING, b"[]")
    assert caught.value.sent


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        pytest.param("https://127.0.0.1:1", "cannot connect: 127.0.0.1:1: connection refused", id="refused"),
        pytest.param("https://no.invalid", "the host name no.invalid cannot be resolved", id="unknown-host"),
    ],
)
async def test_failed_connection_is_described_and_nothing_sent(server, tmp_path, address, expected):
    path = server.kubeconfig(tmp_path / "kubeconfig")
    path.write_text(path.read_text().replace(f"http://127.0.0.1:{server.port}", address))
    async with Api.connect(path) as api:
        with pytest.raises(Unreachable, match=expected) as failed:
            await api.patch(THING, b"[]")
    assert "<ssl" not in str(failed.value)
    assert not failed.value.sent


async def test_writes_carry_server_timeout(server, api):
    server.says("PATCH", THING, answering(200, {}))
    await api.patch(THING, b"[]", parameters={"fieldManager": "me"})
    assert server.seen("PATCH") == [{"fieldManager": "me", "timeout": "10s"}]


async def names_of(api):
    """Return all names, and the length of each page."""
    names, lengths, token = [], [], ""
    while True:
        page = await api.list_page(THINGS, limit=64, token=token)
        of_page = [json.loads(bytes(raw))["metadata"]["name"] for raw in page.items or ()]
        names += of_page
        lengths.append(len(of_page))
        token = page.metadata.continue_token
        if not token:
            return names, lengths


def things(count, size):
    return [thing(f"t{n}", 1, data="x" * size) for n in range(count)]


async def test_pages_are_halved_until_they_fit_and_remembered(server, api, monkeypatch):
    monkeypatch.setattr("controller.kube.client.MAX_PAGE", 64 << 10)
    large = things(100, 10_000)
    server.says("GET", THINGS, paging(*large, version=7))
    names, lengths = await names_of(api)
    assert names == [manifest["metadata"]["name"] for manifest in large]
    assert set(lengths) == {4}
    assert [int(query["limit"]) for query in server.seen("GET")][:6] == [64, 32, 16, 8, 4, 4]


async def test_pages_grow_again_after_large_objects(server, api, monkeypatch):
    monkeypatch.setattr("controller.kube.client.MAX_PAGE", 64 << 10)
    server.says("GET", THINGS, paging(*things(16, 30_000), *things(200, 10), version=7))
    _, lengths = await names_of(api)
    assert sum(lengths) == 216
    assert max(lengths) == 64
    assert len(lengths) < 40


async def test_object_larger_than_page_limit_is_read_alone(server, api, monkeypatch):
    monkeypatch.setattr("controller.kube.client.MAX_PAGE", 64 << 10)
    server.says("GET", THINGS, paging(*things(3, 100_000), version=7))
    assert (await names_of(api))[1] == [1, 1, 1]
    monkeypatch.setattr("controller.kube.client.MAX_BODY", 80 << 10)
    with pytest.raises(Unreachable, match="longer than 81920 bytes"):
        await names_of(api)


async def test_metadata_pages_have_their_own_page_size(server, api, monkeypatch):
    monkeypatch.setattr("controller.kube.client.MAX_PAGE", 64 << 10)
    server.says("GET", THINGS, paging(*things(100, 10_000), version=7))
    await names_of(api)
    server.says("GET", THINGS, paging(*things(100, 10), version=7))
    page = await api.list_page(THINGS, limit=64, metadata_only=True)
    assert len(page.items or ()) == 64


async def test_pages_of_large_objects_take_little_memory(server, api):
    item = json.dumps(thing("t", 1, data="x" * 1_300_000)).encode()

    async def stream(request):
        # Item by item, so that this process holds no page but the client's.
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"metadata": {"resourceVersion": "7"}, "items": [')
        for position in range(min(24, int(request.query["limit"]))):
            await response.write(b"," * bool(position) + item)
        await response.write(b"]}")
        return response

    server.says("GET", THINGS, stream)
    tracemalloc.start()
    try:
        page = await api.list_page(THINGS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 0 < len(page.items or ()) < 13
    assert peak < 3 * MAX_PAGE


@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_page_of_a_proxy_in_place_of_an_object_is_unreachable(server, api, method):
    async def maintenance(_):
        return web.Response(text="<html>maintenance</html>", content_type="text/html")

    server.says(method, THINGS, maintenance)
    with pytest.raises(Unreachable, match="not a JSON object"):
        await (api.get(THINGS) if method == "GET" else api.patch(THINGS, b"[]"))


async def test_page_that_is_not_a_list_is_unreachable(server, api):
    server.says("GET", "/apis/example.io/v1/things", answering(200, ["what?"]))
    with pytest.raises(Unreachable, match="not a list"):
        await api.list_page("/apis/example.io/v1/things")


async def test_endless_line_is_an_error(server, api):
    server.says("WATCH", "/things", watching(b"x" * 100_000, b"y" * 100_000, then="hang"))
    async with api.stream("/things", {"watch": "true"}, idle_timeout=1, max_line=65536) as lines:
        with pytest.raises(Unreachable, match="a line is longer than 65536 bytes"):
            await anext(lines)


async def test_lines_are_joined_across_chunks(server, api):
    server.says("WATCH", "/things", watching(b"fir", b"st\nsec", b"ond\n", b"\n", b"third\n"))
    async with api.stream("/things", {"watch": "true"}, idle_timeout=1) as lines:
        assert [line async for line in lines] == [b"first", b"second", b"third"]


async def test_renewed_credentials_are_used_without_restart(server, api, tmp_path):
    async def guarded(request):
        known = request.headers["Authorization"] == "Bearer t1"
        return await (answering(200, {}) if known else refusing(401))(request)

    server.says("PATCH", THING, guarded)
    with pytest.raises(Unauthorized):
        await api.patch(THING, b"[]")
    path = tmp_path / "kubeconfig"
    path.write_text(path.read_text().replace("t0", "t1"))
    await api.patch(THING, b"[]")
    await api.patch(THING, b"[]")
    assert len(server.seen("PATCH")) == 4
    path.unlink()
    server.says("PATCH", THING, refusing(401))
    with pytest.raises(Unauthorized):
        await api.patch(THING, b"[]")


@pytest.mark.parametrize("is_embedded", [False, True], ids=["files", "embedded"])
async def test_renewed_client_certificate_is_used_without_restart(tmp_path, *, is_embedded):
    authority = Authority(tmp_path / "authority")
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
    serving.verify_mode = ssl.CERT_OPTIONAL
    serving.load_cert_chain(*authority.issue("localhost", usage=ExtendedKeyUsageOID.SERVER_AUTH))
    path, accepted, seen = tmp_path / "kubeconfig", "", []

    def renew() -> str:
        files = authority.issue("controller")
        user = {"client-certificate": str(files[0]), "client-key": str(files[1])}
        if is_embedded:
            user = {f"{name}-data": b64encode(Path(file).read_bytes()).decode() for name, file in user.items()}
        config = yaml.safe_load(server.kubeconfig(path).read_text())
        config["clusters"][0]["cluster"] |= {
            "server": f"https://localhost:{server.port}",
            "certificate-authority": str(authority.file),
        }
        config["users"][0]["user"] = user
        path.write_text(yaml.safe_dump(config))
        return f"{load_pem_x509_certificate(files[0].read_bytes()).serial_number:X}"

    async def guarded(request):
        serial = request.transport.get_extra_info("peercert")["serialNumber"].lstrip("0")
        seen.append(serial)
        return await (answering(200, {}) if serial == accepted else refusing(401))(request)

    async with scripted_server(serving) as server:
        server.says("GET", THING, guarded)
        former = renew()
        async with Api.connect(path, timeouts=Timeouts(renewal=0)) as api:
            with pytest.raises(Unauthorized):
                await api.get(THING)
            accepted = renew()
            await api.get(THING)
            await api.get(THING)
    assert seen == [former, former, accepted, accepted]


async def test_replaced_ca_of_the_server_is_trusted_without_restart(tmp_path):
    former, new = Authority(tmp_path / "former"), Authority(tmp_path / "new")
    serving, path = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), tmp_path / "kubeconfig"
    serving.load_cert_chain(*new.issue("localhost", usage=ExtendedKeyUsageOID.SERVER_AUTH))
    async with scripted_server(serving) as server:
        server.says("GET", THING, answering(200, {}))

        def trust(authority: Authority) -> None:
            config = yaml.safe_load(server.kubeconfig(path).read_text())
            config["clusters"][0]["cluster"] |= {
                "server": f"https://localhost:{server.port}",
                "certificate-authority": str(authority.file),
            }
            path.write_text(yaml.safe_dump(config))

        trust(former)
        async with Api.connect(path, timeouts=Timeouts(renewal=0)) as api:
            with pytest.raises(Unreachable, match="certificate"):
                await api.get(THING)
            trust(new)
            await api.get(THING)


async def test_exec_plugin_provides_token(server, tmp_path):
    plugin = tmp_path / "plugin"
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "e1"}}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    path = server.kubeconfig(tmp_path / "kubeconfig")
    config = yaml.safe_load(path.read_text())
    config["users"][0]["user"] = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    }
    path.write_text(yaml.safe_dump(config))

    async def who(request):
        return await answering(200, {"as": request.headers["Authorization"]})(request)

    server.says("GET", THING, who)
    async with Api.connect(path) as api:
        assert json.loads(await api.get(THING)) == {"as": "Bearer e1"}


async def test_environment_proxies_are_ignored(server, api, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.says("GET", THING, answering(200, {}))
    await api.get(THING)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param(None, "no such file", id="missing"),
        pytest.param("", "it is not a kubeconfig", id="empty"),
        pytest.param("a: [", "it is not valid YAML in line 1$", id="not-yaml"),
        pytest.param(b"\x86", "it is not UTF-8 text$", id="not-text"),
        pytest.param("just words", "it is not a kubeconfig", id="not-a-mapping"),
        pytest.param("{current-context: a, contexts: [], clusters: [], users: []}", "contexts", id="no-context"),
    ],
)
async def test_invalid_kubeconfig_is_named_with_its_problem(tmp_path, text, says):
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(KubeconfigError, match=says) as caught:
        async with Api.connect(path):
            pass
    assert str(path) in str(caught.value)


async def test_folder_is_no_kubeconfig(tmp_path):
    with pytest.raises(KubeconfigError, match=r"it is a folder$"):
        await load_access(tmp_path)


async def test_missing_context_is_named(server, tmp_path):
    with pytest.raises(KubeconfigError, match=r"it has no context 'gone'$"):
        await load_access(server.kubeconfig(tmp_path / "kubeconfig"), "gone")


async def test_server_with_unknown_ca_is_rejected(control_plane, tmp_path):
    config = yaml.safe_load(control_plane.kubeconfig("tenant").read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    async with Api.connect(path) as api:
        with pytest.raises(Unreachable, match="certificate") as caught:
            await api.get("/api/v1/namespaces")
    assert not caught.value.sent
