import base64
import stat

import pytest
import yaml

from localup.credentials import IDENTITIES, issue, write_kubeconfig

URL = "https://127.0.0.1:20001"


@pytest.fixture
def credentials(tmp_path):
    return issue(tmp_path)


def test_only_the_admin_is_in_system_masters():
    assert [name for name, identity in IDENTITIES.items() if "system:masters" in identity.groups] == ["admin"]


def test_every_identity_has_a_unique_token(credentials):
    assert credentials.tokens.keys() == IDENTITIES.keys()
    assert len(set(credentials.tokens.values())) == len(IDENTITIES)


def test_a_kubeconfig_has_one_cluster_and_the_token_of_its_user(credentials):
    config = yaml.safe_load(write_kubeconfig(credentials, "tenant", url=URL).read_text())
    (cluster,) = config["clusters"]
    assert cluster["cluster"]["server"] == URL
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]).decode() == credentials.ca
    assert [user["user"]["token"] for user in config["users"]] == [credentials.tokens["tenant"]]
    assert config["current-context"] == "tenant"


def test_kubeconfig_file_has_mode_0600(credentials):
    path = write_kubeconfig(credentials, "tenant", url=URL)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_key_or_token_is_readable_by_others(credentials):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in credentials.folder.iterdir()}
    assert set(modes.values()) == {0o600}


def test_unknown_identity_is_rejected_with_known_ones(credentials):
    with pytest.raises(KeyError, match="unknown identity 'root'; known: admin"):
        write_kubeconfig(credentials, "root", url=URL)
