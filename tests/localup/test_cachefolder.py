from pathlib import Path

import pytest

from localup.folders import cache_folder, exclusive


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        pytest.param({"VOLCANO_GLOBAL_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a", id="named"),
        pytest.param({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/volcano-global", id="caches"),
        pytest.param({"HOME": "/c"}, "/c/.cache/volcano-global", id="home"),
        pytest.param({"VOLCANO_GLOBAL_CACHE": "", "HOME": "/c"}, "/c/.cache/volcano-global", id="empty-is-unset"),
    ],
)
def test_cache_folder_is_the_first_configured_one(environment, folder):
    assert cache_folder(environment) == Path(folder)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}])
def test_cache_folder_exists_without_a_home(environment):
    assert cache_folder(environment).is_absolute()


def test_waiting_for_a_held_lock_is_reported(tmp_path):
    said = []
    lock = tmp_path / "folder" / "lock"
    with (
        exclusive(lock, waiting=lambda: said.append("first")),
        # The second holder would block forever, so the callback before the wait ends this test.
        pytest.raises(InterruptedError),
        exclusive(lock, waiting=_interrupt),
    ):
        pass
    assert said == []


def _interrupt():
    raise InterruptedError
