"""Explores all orders of events in a small system and checks invariants in each state (I1, I3, liveness)."""

from collections import deque
from dataclasses import dataclass

import pytest

from controller.engine.policy import EvictionPolicy, HeadReservation, Policy
from controller.engine.state.cluster_usage import ClusterUsage
from tests.engine.model import BrokenError, Model

PLAIN = Policy(head_reservation=HeadReservation(after_ms=10**12))
IMPATIENT = Policy(head_reservation=HeadReservation(after_ms=1, max_ms=10**12))
RECLAIM = Policy(
    head_reservation=HeadReservation(after_ms=10**12, max_ms=10**12),
    reclaim=EvictionPolicy(enabled=True, min_runtime_ms=0, max_evictions=1),
)
FEW = ("a1", "a2", "c1")
BORROWERS = ("c2", "c3", "b2")
ALL = ("a1", "a2", "b1", "c1")


@dataclass
class Search:
    """All reachable states, with their successors."""

    states: int
    ends: int
    """Number of states without anything left to do."""
    evictions: int
    """Number of states after an eviction."""


def search(policy: Policy, jobs: tuple[str, ...], *, crashes: int = 1, refusals: int = 1) -> Search:
    """Explore all event orders; raise if a state violates an invariant."""
    first = Model(policy, jobs, crashes, refusals)
    waiting = deque([first])
    known = {first.key(): 0}
    before: list[list[int]] = [[]]
    over: list[int] = []
    evictions = 0
    while waiting:
        state = waiting.popleft()
        number = known[state.key()]
        evictions += any(each.evictions for each in state.bindings.values())
        if state.is_finished:
            over.append(number)
        for event in list(state.events()):
            after = state.copy()
            after.apply(*event)
            key = after.key()
            if key not in known:
                known[key] = len(before)
                before.append([])
                waiting.append(after)
            before[known[key]].append(number)
    _check_that_all_end(before, over)
    return Search(len(known), len(over), evictions)


def _check_that_all_end(before: list[list[int]], over: list[int]) -> None:
    """Check that every state has a path to the end (liveness)."""
    reached, left = set(over), list(over)
    while left:
        for number in before[left.pop()]:
            if number not in reached:
                reached.add(number)
                left.append(number)
    stuck = len(before) - len(reached)
    if stuck:
        raise BrokenError(f"{stuck} of {len(before)} states never come to an end")


@pytest.mark.parametrize(
    "policy",
    [pytest.param(PLAIN, id="plain"), pytest.param(IMPATIENT, id="reservations"), pytest.param(RECLAIM, id="reclaim")],
)
def test_no_event_order_violates_an_invariant_for_three_jobs(policy):
    result = search(policy, FEW[:2], refusals=0)
    assert result.states > 40
    assert result.ends > 0


def test_no_event_order_with_evictions_violates_an_invariant():
    result = search(RECLAIM, BORROWERS, refusals=0)
    assert result.evictions > 100


@pytest.mark.long
@pytest.mark.parametrize(
    "policy",
    [pytest.param(PLAIN, id="plain"), pytest.param(IMPATIENT, id="reservations"), pytest.param(RECLAIM, id="reclaim")],
)
def test_no_event_order_violates_an_invariant_for_four_jobs(policy):
    result = search(policy, ALL)
    assert result.states > 1000


def test_model_detects_usage_without_assumed_charges(monkeypatch):
    monkeypatch.setattr(ClusterUsage, "add_usage", lambda *_: None)
    with pytest.raises(BrokenError, match="more than"):
        search(PLAIN, ("a1", "c1"), crashes=0, refusals=0)


def test_model_detects_restart_without_unstarted_workloads(monkeypatch):
    book = ClusterUsage.add_usage
    monkeypatch.setattr(
        ClusterUsage,
        "add_usage",
        lambda self, admission, now: (
            (admission.admitted_at == 0 and not admission.reported) or book(self, admission, now)
        ),
    )
    with pytest.raises(BrokenError, match="more than"):
        search(PLAIN, ("a1", "c1"), refusals=0)


def test_model_detects_missed_free_capacity(monkeypatch):
    monkeypatch.setattr(ClusterUsage, "_has_freed", lambda *_: None)
    with pytest.raises(BrokenError, match="never come to an end"):
        search(PLAIN, ("a1", "b1", "c1"), crashes=0, refusals=0)


@pytest.mark.long
def test_no_event_order_with_evictions_fails_for_four_jobs():
    result = search(RECLAIM, (*BORROWERS, "a1"), refusals=0)
    assert result.evictions > 1000
