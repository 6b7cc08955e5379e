import pytest

from controller.api.flags import SettingsError
from controller.settings import ControllerSettings, parse_flags


def test_every_flag_has_a_default_and_description():
    assert ControllerSettings()
    assert all(field.description for field in ControllerSettings.model_fields.values())


def test_help_lists_every_flag(capsys):
    with pytest.raises(SystemExit) as ended:
        parse_flags(["--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert all(f"--{name.replace('_', '-')}" in told for name in ControllerSettings.model_fields)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        pytest.param(["--port", "70000"], "--port '70000'", id="port"),
        pytest.param(["--write-seconds", "0"], "--write-seconds '0'", id="no-time"),
        pytest.param(["--page-size", "0"], "--page-size '0'", id="no-page"),
        pytest.param(["--kubeconfig", ""], "--kubeconfig '': it is empty; name a file", id="no-path"),
        pytest.param(["--fresh-seconds", "30"], "fresh-seconds must be above silence-seconds", id="stale"),
        pytest.param(["--scheduler-estimator-timeout-seconds", "9"], "--scheduler-estimator-timeout", id="patient"),
        pytest.param(["--scheduler-estimator-cert-file", "a"], "together", id="no-key"),
        pytest.param(
            ["--scheduler-estimator-cert-file", "a", "--scheduler-estimator-key-file", "b"],
            "not used without scheduler-estimator-ca-file",
            id="certificate-without-encryption",
        ),
        pytest.param(["--silence-seconds", "45"], "silence-seconds must be more than 1.25", id="deaf"),
    ],
)
def test_invalid_flag_is_rejected_by_name(flags, says):
    with pytest.raises(SettingsError, match=says):
        parse_flags(flags)
