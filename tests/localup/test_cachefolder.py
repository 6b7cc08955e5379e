from pathlib import Path

import pytest

from localup.cachefolder import cache_folder, exclusive


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        pytest.param({"VOLCANO_GLOBAL_CACHE": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a", id="named"),
        pytest.param({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/volcano-global", id="caches"),
        pytest.param({"HOME": "/c"}, "/c/.cache/volcano-global", id="home"),
        pytest.param({"VOLCANO_GLOBAL_CACHE": "", "HOME": "/c"}, "/c/.cache/volcano-global", id="empty-is-unset"),
    ],
)
def test_the_cache_folder_is_the_first_that_is_named(environment, folder):
    assert cache_folder(environment) == Path(folder)


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}])
def test_without_a_home_there_is_still_a_cache_folder(environment):
    assert cache_folder(environment).is_absolute()


def test_a_held_lock_is_waited_for_and_said_so(tmp_path):
    said = []
    lock = tmp_path / "folder" / "lock"
    with (
        exclusive(lock, waiting=lambda: said.append("first")),
        # The second holder would block for ever, so what is said before the wait ends this test.
        pytest.raises(InterruptedError),
        exclusive(lock, waiting=_interrupt),
    ):
        pass
    assert said == []


def _interrupt():
    raise InterruptedError
