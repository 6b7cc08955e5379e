"""A control plane: it starts, restarts, ends, and keeps to itself."""


def test_it_starts(control_plane):
    assert control_plane.admin.get("/version")["gitVersion"].startswith("v1.")
