import pytest

from localup.apply import WaitTimeoutError, apply, read_manifests, wait_until


@pytest.mark.parametrize(
    ("changes", "reason"), [(False, r"no progress for 0\.1 s"), (True, "not within 1 s")], ids=["idle", "endless"]
)
def test_wait_ends_without_progress_or_after_ten_limits(changes, reason):
    waits = iter(range(10**6))
    with pytest.raises(WaitTimeoutError, match=f"a start: {reason}"):
        wait_until(lambda: False, "a start", seconds=0.1, progress=lambda: changes and next(waits))


def test_manifests_come_from_files_folders_and_lists(tmp_path):
    (tmp_path / "b.yaml").write_text("kind: B\n---\n---\nkind: C\n")
    (tmp_path / "a.yaml").write_text("kind: List\nitems:\n- kind: A\n")
    assert [manifest["kind"] for manifest in read_manifests(tmp_path, tmp_path / "b.yaml")] == [*"ABCBC"]


def test_unknown_kind_is_named(control_plane):
    unknown = {"apiVersion": "v1", "kind": "Unknown", "metadata": {"name": "x"}}
    with pytest.raises(LookupError, match="does not serve kind Unknown in v1; apply its CRD first"):
        apply(control_plane.admin, [unknown])
