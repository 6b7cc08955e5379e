"""Tests the command line of `certs`."""

import json
import threading

import msgspec
import pytest

import certs.__main__
from certs.__main__ import main, run_periodically
from certs.settings import CertificateSettings, parse_flags
from tests import commands


@pytest.fixture
def run(monkeypatch):
    """Return a function that runs a command on a folder."""
    monkeypatch.setenv("COLUMNS", "200")
    return lambda command, folder, *flags: commands.run(main, command, "--directory", folder, *flags)


def test_ensure_creates_what_is_missing_once(run, tmp_path):
    first = run("ensure", tmp_path, "--dns", "localhost", "--ip", "127.0.0.1")
    assert [json.loads(line)["event"] for line in first.stdout.splitlines()] == [
        "CA created",
        "serving certificate issued",
    ]
    second = run("ensure", tmp_path, "--dns", "localhost", "--ip", "127.0.0.1")
    assert (second.returncode, second.stdout) == (0, "")
    nameless = run("ensure", tmp_path)
    assert (nameless.returncode, "--dns or --ip" in nameless.stderr) == (2, True)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        pytest.param(["--dns", "a b"], "--dns: 'a b' is not a DNS name; write letters, digits, - and .", id="blank"),
        pytest.param(["--dns", ""], "--dns: '' is not a DNS name; write letters, digits, - and .", id="empty"),
        pytest.param(["--dns", "\xfc.example"], "--dns: '\xfc.example' is not a DNS name; write ", id="not-encoded"),
        pytest.param(["--ip", "localhost"], "--ip: 'localhost' is not an IP address; write names with --dns", id="ip"),
        pytest.param(["--replica", "webhook"], "--replica: 'webhook' is not an address; write HOST:PORT", id="port"),
        pytest.param(["--authority-days", "4e6"], "--authority-days: Input should be less than or ", id="long-ca"),
        pytest.param(["--overlap-seconds", "1e12"], "--overlap-seconds: Input should be less", id="long-overlap"),
        pytest.param(["--leaf-days", "inf"], "--leaf-days: Input should be less than or equal to 36500", id="endless"),
    ],
)
def test_flag_that_no_certificate_can_have_is_refused(run, tmp_path, flags, expected):
    folder = tmp_path / "store"
    ended = run("ensure", folder, "--dns", "localhost", *flags)
    assert (ended.returncode, ended.stdout, folder.exists()) == (2, "", False)
    assert ended.stderr.startswith(f"certs: {expected}")
    assert len(ended.stderr.splitlines()) == 1


def test_ctrl_c_prints_no_traceback(run, tmp_path, monkeypatch):
    def interrupt(_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(certs.__main__, "run", interrupt)
    ended = run("status", tmp_path)
    assert (ended.returncode, ended.stderr) == (130, "")


def test_status_does_not_create_the_folder(run, tmp_path):
    ended = run("status", tmp_path / "misspelled")
    assert (ended.returncode, (tmp_path / "misspelled").exists()) == (0, False)


def test_status_reports_certificates_and_renewal(run, tmp_path):
    assert run("status", tmp_path).stdout.splitlines() == [
        "authority: must be renewed now: it does not exist",
        "serving: must be renewed now: it does not exist",
    ]
    run("ensure", tmp_path, "--dns", "localhost", "--ip", "127.0.0.1")
    authority, serving = run("status", tmp_path, "--dns", "localhost").stdout.splitlines()
    assert authority.startswith("authority: valid until ")
    assert "; is renewed from " in authority
    assert serving.startswith("serving: valid until ")
    assert ", for 127.0.0.1, localhost; is renewed from " in serving
    assert "it does not cover other" in run("status", tmp_path, "--dns", "other").stdout


@pytest.mark.parametrize(
    ("kubeconfig", "expected"),
    [
        pytest.param(None, "certs: kubeconfig", id="none"),
        pytest.param("{}", "certs: kubeconfig", id="empty"),
        pytest.param(
            "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}],"
            " contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}",
            "certs: GET /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/volcano-global: cannot",
            id="unreachable",
        ),
    ],
)
def test_unreachable_api_server_is_an_error(run, tmp_path, kubeconfig, expected):
    file = tmp_path / "kubeconfig"
    if kubeconfig is not None:
        file.write_text(kubeconfig)
    flags = ("--dns", "localhost", "--webhook-configuration", "volcano-global", "--kubeconfig", file)
    result = run("ensure", tmp_path / "store", *flags)
    assert result.returncode == 1
    assert result.stderr.startswith(expected)
    assert "Traceback" not in result.stderr


def test_help_describes_every_flag_and_its_examples_parse(capsys):
    with pytest.raises(SystemExit):
        parse_flags(["--help"])
    flags, _, examples = capsys.readouterr().out.partition("examples:")
    text = " ".join(flags.split())
    for name, field in CertificateSettings.model_fields.items():
        if name != "command":
            assert f"--{name.replace('_', '-')}" in text
            assert field.description in text.replace("cert- manager", "cert-manager")
    lines = [line for line in examples.replace("\n      ", " ").splitlines() if "python -m certs" in line]
    commands = [parse_flags(line.split("python -m certs ")[1].split()).command for line in lines]
    assert commands == ["ensure", "ensure", "status"]


def test_object_that_cannot_be_decoded_is_read_again():
    stopping, runs = threading.Event(), list[bool]()

    class Undecodable:
        def run(self, *, rotate: bool) -> None:
            runs.append(rotate)
            if len(runs) == 2:
                stopping.set()
            msgspec.json.decode(b"{")

    run_periodically(Undecodable(), 0, stopping)
    assert len(runs) == 2
