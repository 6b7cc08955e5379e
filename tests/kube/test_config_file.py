"""The configuration file: defaults, rejected contents and reported changes."""

import asyncio

import pytest

from controller.api.configuration import ConfigurationError, VolcanoGlobalConfiguration
from controller.kube.config_file import ConfigurationFile
from tests.waiting import LIMIT_SECONDS, poll

HEAD = "apiVersion: config.volcano-global.io/v1alpha1\nkind: VolcanoGlobalConfiguration\n"


def test_missing_file_path_means_defaults():
    file = ConfigurationFile(None)
    assert not file.read()
    assert file.current == VolcanoGlobalConfiguration()


@pytest.mark.parametrize("text", [None, "kind: Other\n", HEAD + "nonsense: 1\n", b"\xff\xfe"])
def test_invalid_file_is_rejected_at_start(tmp_path, text):
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ConfigurationError):
        ConfigurationFile(path).read()


def test_unchanged_content_is_not_reported(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "defaultQueue: a\n")
    file = ConfigurationFile(path)
    assert file.read()
    assert not file.read()
    path.write_text(HEAD + "defaultQueue: a # as before\n")
    assert not file.read()


async def test_invalid_file_leaves_configuration_until_a_valid_one(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + "defaultQueue: a\n")
    file = ConfigurationFile(path)
    file.read()
    told: asyncio.Queue[str] = asyncio.Queue()
    async with asyncio.timeout(LIMIT_SECONDS), asyncio.TaskGroup() as group:
        following = group.create_task(file.follow(lambda new: told.put_nowait(new.default_queue), poll_seconds=0.005))
        path.write_text(HEAD + "defaultQueu: b\n")
        assert "defaultQueu" in await poll(lambda: file.error, "an error")
        assert file.current.default_queue == "a"
        path.write_text(HEAD + "defaultQueue: b\n")
        assert await told.get() == "b"
        assert file.error is None
        following.cancel()


def test_invalid_text_is_parsed_once(tmp_path):
    path, parsed = tmp_path / "config.yaml", list[str]()

    class CountedFile(ConfigurationFile):
        def parse(self, text):
            parsed.append(text)
            return super().parse(text)

    path.write_text("queueOrder: Random")
    file = CountedFile(path)
    assert not any(file.refresh() for _ in range(3))
    path.unlink()
    assert not file.refresh()
    path.write_text("queueOrder: Random")
    assert not file.refresh()
    assert (file.error or "").partition(": queueOrder: ")[2].startswith("input should be")
    assert len(parsed) == 1
    path.write_text("queueOrder: FairShareFirst")
    assert file.refresh()
    assert (file.error, file.current.queue_order) == (None, "FairShareFirst")
