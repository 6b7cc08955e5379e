import time

import pytest

from localup.apply import WaitTimeoutError, apply, read_manifests, wait_until


def test_progress_extends_the_limit():
    began = time.monotonic()
    waits = iter(range(10**6))
    assert wait_until(lambda: time.monotonic() - began > 0.5, "a slow start", seconds=0.2, progress=lambda: next(waits))


def test_wait_without_progress_ends_at_its_limit():
    with pytest.raises(WaitTimeoutError, match=r"a start: no progress for 0\.1 s"):
        wait_until(lambda: False, "a start", seconds=0.1, progress=lambda: 7)


def test_wait_with_endless_progress_ends_eventually():
    waits = iter(range(10**6))
    with pytest.raises(WaitTimeoutError, match=r"a start: not within 1 s"):
        wait_until(lambda: False, "a start", seconds=0.1, progress=lambda: next(waits))


def test_manifests_come_from_files_folders_and_lists(tmp_path):
    (tmp_path / "b.yaml").write_text("kind: B\n---\n---\nkind: C\n")
    (tmp_path / "a.yaml").write_text("kind: List\nitems:\n- kind: A\n")
    assert [manifest["kind"] for manifest in read_manifests(tmp_path, tmp_path / "b.yaml")] == [*"ABCBC"]


def test_unknown_kind_is_named(control_plane):
    unknown = {"apiVersion": "v1", "kind": "Unknown", "metadata": {"name": "x"}}
    with pytest.raises(LookupError, match="does not serve kind Unknown in v1; apply its CRD first"):
        apply(control_plane.admin, [unknown])
