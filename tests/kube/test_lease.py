"""When a lease may be acquired, and when its new holder may write."""

import pytest
from structlog.testing import capture_logs

from controller.api.keys import LEASES
from controller.kube.client import Api
from controller.kube.leader_election import (
    Candidate,
    LeaderElection,
    Lease,
    LeaseTimings,
    ObservedLease,
    can_acquire,
    observe_lease,
    write_delay,
)
from tests.scripted_server import answering, refusing, scripted_server, thing

TERMS = LeaseTimings(lease=30, renew=12, retry=2, connect=5, write=10)
US = Candidate("pod-1", "run1")
OURS = Lease("7", US.holder, 30)
FORMER = Lease("7", "pod-1_run0", 30)
THEIRS = Lease("7", "pod-2_run0", 30)
RELEASED = Lease("7", "", 30)


def observed(lease: Lease | None, *, age: float = 0, is_first: bool = False) -> ObservedLease:
    return ObservedLease(lease, 100 - age, is_first)


@pytest.mark.parametrize(
    ("lease", "takes"),
    [
        pytest.param(observed(None), True, id="there-is-none"),
        pytest.param(observed(RELEASED), True, id="released"),
        pytest.param(observed(OURS), True, id="our-own"),
        pytest.param(observed(THEIRS, age=29.9), False, id="theirs-still-good"),
        pytest.param(observed(THEIRS, age=30), True, id="theirs-run-out"),
        pytest.param(observed(FORMER, is_first=True), True, id="our-former-process-s"),
        pytest.param(observed(FORMER), False, id="same-name-seen-later"),
        pytest.param(observed(Lease("7", "pod-2_run0", 60), age=30), False, id="theirs-is-longer"),
        pytest.param(observed(Lease("7", "pod-2_run0", 0), age=29), False, id="theirs-says-nothing"),
        pytest.param(observed(Lease("7", "pod-2_run0", 2**31 - 1), age=299), False, id="theirs-is-absurd"),
        pytest.param(observed(Lease("7", "pod-2_run0", 2**31 - 1), age=300), True, id="theirs-was-absurd-for-long"),
        pytest.param(observed(Lease("7", "pod-1-2_run0", 30), is_first=True), False, id="a-similar-name"),
    ],
)
def test_lease_is_acquired_only_after_holder_stopped_writing(lease, takes):
    assert can_acquire(US, lease, TERMS, 100) is takes


@pytest.mark.parametrize(
    ("lease", "seconds"),
    [
        pytest.param(None, 0, id="there-was-none"),
        pytest.param(RELEASED, 0, id="released"),
        pytest.param(FORMER, 10, id="killed-and-started-again"),
        pytest.param(THEIRS, 10, id="taken-from-another"),
    ],
)
def test_new_leader_waits_for_writes_of_previous_leader(lease, seconds):
    assert write_delay(US, observed(lease), TERMS) == seconds


def test_lease_ages_by_candidates_clock_since_last_change():
    first = observe_lease(THEIRS, None, 10)
    assert (first.since, first.is_first) == (10, True)
    assert observe_lease(THEIRS, first, 20) == first
    changed = observe_lease(Lease("8", THEIRS.holder, 30), first, 21)
    assert (changed.since, changed.is_first) == (21, False)


def test_deleted_lease_counts_as_last_observed():
    assert observe_lease(None, observed(THEIRS, age=5), 100) == observed(THEIRS, age=5)


@pytest.mark.parametrize(
    ("timings", "says"),
    [
        pytest.param(LeaseTimings(), None, id="defaults"),
        pytest.param(LeaseTimings(lease=27), "two leaders may write at once", id="lease-too-short"),
        pytest.param(LeaseTimings(renew=4, retry=2), "one failed renewal", id="renewal-too-rare"),
    ],
)
def test_timings_that_allow_two_leaders_are_rejected(timings, says):
    assert (says in timings.violation) if says else timings.violation is None


@pytest.mark.parametrize(
    ("status", "logged"),
    [
        pytest.param(409, "lease changed by another candidate", id="conflict"),
        pytest.param(422, "lease changed by another candidate", id="failed-test"),
        pytest.param(403, "lease not renewed", id="forbidden"),
    ],
)
async def test_refused_renewal_is_logged_with_its_cause(tmp_path, status, logged):
    folder, spec = LEASES.item_path("ns", "").rstrip("/"), {"holderIdentity": "a_1", "leaseDurationSeconds": 30}
    path, lease = f"{folder}/volcano-global-controller", thing("volcano-global-controller", 1, spec=spec)
    async with scripted_server() as server, Api.connect(server.kubeconfig(tmp_path / "kubeconfig")) as api:
        server.says("GET", path, refusing(404), answering(200, lease))
        server.says("POST", folder, answering(201, lease))
        server.says("PATCH", path, refusing(status), answering(200, lease))
        election = LeaderElection(api, "ns", candidate=Candidate("a", "1"), timings=LeaseTimings())
        await election._tick()
        with capture_logs() as logs:
            await election._tick()
        assert election.leads
    assert [entry["event"] for entry in logs] == [logged]
