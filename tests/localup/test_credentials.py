import stat

import pytest

from localup.credentials import IDENTITIES, issue, write_kubeconfig

URL = "https://127.0.0.1:20001"


@pytest.fixture
def credentials(tmp_path):
    return issue(tmp_path)


def test_only_the_admin_is_in_system_masters():
    assert [name for name, identity in IDENTITIES.items() if "system:masters" in identity.groups] == ["admin"]


def test_no_key_or_token_is_readable_by_others(credentials):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in credentials.folder.iterdir()}
    assert set(modes.values()) == {0o600}


def test_unknown_identity_is_rejected_with_known_ones(credentials):
    with pytest.raises(KeyError, match="unknown identity 'root'; known: admin"):
        write_kubeconfig(credentials, "root", url=URL)
