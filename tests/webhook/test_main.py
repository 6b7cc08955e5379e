"""Tests the webhook process: it starts without a certificate, and drains before it stops."""

import asyncio
import signal

import aiohttp
import pytest
import structlog

from tests.webhook.conftest import MUTATE, trust_context
from tests.webhook.process import WebhookProcess
from tests.webhook.reviews import GOOD
from webhook.__main__ import main
from webhook.settings import WebhookSettings, parse_flags

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_drains_before_exit(certificates, number):
    with WebhookProcess(certificates / "serving", "--drain-seconds", "0.3") as webhook:
        plain, context = f"http://127.0.0.1:{webhook.plain_port}", trust_context(certificates)
        async with aiohttp.ClientSession() as client:
            async with client.get(f"{plain}/readyz") as answer:
                assert answer.status == 200
            webhook.send(number)
            webhook.wait_for("webhook draining")
            async with client.get(f"{plain}/readyz") as answer:
                assert (answer.status, await answer.text()) == (503, "draining\n")
            async with client.post(
                f"https://127.0.0.1:{webhook.port}{MUTATE}", data=GOOD, headers=JSON, ssl=context
            ) as answer:
                assert answer.status == 200
        assert await asyncio.to_thread(webhook.end) == 0


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--port", "70000"], "webhook: --port '70000'"),
        (["--drain-seconds", "-1"], "webhook: --drain-seconds '-1'"),
        (["--admission-configuration", "/none.yaml"], "webhook: the VolcanoGlobalConfiguration cannot be read"),
    ],
)
def test_startup_error_is_one_sentence(flags, expected):
    with pytest.raises(SystemExit, match=expected):
        main(flags)
    structlog.reset_defaults()


def test_help_describes_every_flag(capsys):
    with pytest.raises(SystemExit):
        parse_flags(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name, field in WebhookSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert field.description in text
