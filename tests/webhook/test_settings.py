"""Tests the flags of the webhook."""

import pytest

from controller.api.flags import SettingsError
from webhook.settings import WebhookSettings, parse_flags


def test_defaults_without_flags():
    assert parse_flags([]) == WebhookSettings()


def test_flags_are_named_after_the_fields():
    settings = parse_flags(["--port", "9443", "--drain-seconds", "0.5", "--admission-configuration", "a.yaml"])
    assert (settings.port, settings.drain_seconds, str(settings.admission_configuration)) == (9443, 0.5, "a.yaml")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--port", "x"], "--port 'x'"),
        (["--port", "70000"], "--port '70000'"),
        (["--drain-seconds", "-1"], "--drain-seconds '-1'"),
        (["--max-body-bytes", "0"], "--max-body-bytes '0'"),
    ],
)
def test_invalid_value_is_named(flags, expected):
    with pytest.raises(SettingsError, match=expected):
        parse_flags(flags)


def test_unknown_flag_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse_flags(["--prot", "1"])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_help_describes_every_flag_and_default(capsys):
    with pytest.raises(SystemExit):
        parse_flags(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    for name, field in WebhookSettings.model_fields.items():
        assert f"--{name.replace('_', '-')}" in text
        assert field.description in text


def test_the_body_limit_is_4_mib():
    assert WebhookSettings().max_body_bytes == 4 * 1024 * 1024
