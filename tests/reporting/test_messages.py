import pytest

from controller.engine.placement.fit import NODES_FULL
from controller.engine.reasons import ADVANCE_RESERVATION, Reason, Refusal
from controller.reporting.messages import PENDING_MESSAGES, REMEDIES, pending_message, remedy_message


def test_every_reason_has_a_message_and_a_remedy():
    assert set(PENDING_MESSAGES) == set(Reason) == set(REMEDIES)


@pytest.mark.parametrize("reason", list(Reason))
def test_no_message_shows_a_missing_fact(reason):
    full = Refusal(reason, "cpu", 4000, 1500, queue="ml", cluster="member1", subject="Job ml/first")
    assert "None" not in pending_message(full)
    assert remedy_message(full)


def test_amounts_are_formatted_as_quantities():
    refusal = Refusal(Reason.INSUFFICIENT_CAPACITY, "memory", 8 * 2**30, 2**29, cluster="member1")
    assert pending_message(refusal) == (
        "no candidate cluster has enough free capacity; 'member1' comes closest with 512Mi memory of 8Gi"
    )


def test_node_shortage_differs_from_resource_shortage():
    refusal = Refusal(Reason.INSUFFICIENT_CAPACITY, cluster="member1", subject="no node takes one of its pods")
    assert pending_message(refusal) == "no candidate cluster has a node for each of its pods"


def test_refusal_of_an_estimator_names_its_cluster():
    refusal = Refusal(Reason.INSUFFICIENT_CAPACITY, cluster="member1", subject=NODES_FULL)
    assert pending_message(refusal) == (
        "the nodes of 'member1' have no free capacity for its gang, according to its scheduler estimator"
    )


@pytest.mark.parametrize("subject", [None, "it runs on 2 clusters, but only 1 that match accept new workloads"])
def test_no_finished_workload_helps_while_clusters_accept_none(subject):
    refusal = Refusal(Reason.INSUFFICIENT_CAPACITY, subject=subject)
    assert pending_message(refusal) == (
        subject or "none of its candidate clusters that can hold it accepts new workloads"
    )
    assert remedy_message(refusal).startswith("it starts when more of its candidate clusters accept new workloads;")


def test_shorter_run_helps_before_a_reservation_only():
    # The reason is the same before the reservation and while it is in force.
    refusal = Refusal(Reason.BLOCKED_BY_RESERVATION, cluster="m", subject=f"{ADVANCE_RESERVATION}upgrade")
    assert pending_message(refusal).endswith("'upgrade', and it is not expected to end before that begins")
    assert remedy_message(refusal).startswith(
        "it starts when the reservation ends; earlier in other clusters, or with a runningEstimate that ends "
        "before the reservation begins;"
    )


def test_negative_free_capacity_is_shown_as_zero():
    refusal = Refusal(Reason.QUEUE_LIMIT_REACHED, "cpu", 1000, -3000, queue="ml")
    assert pending_message(refusal) == "it requests 1 cpu, queue 'ml' has 0 left below its limit"


def test_workload_suspended_by_its_own_field_names_the_field():
    refusal = Refusal(Reason.SUSPENDED, subject="spec.suspend")
    assert (pending_message(refusal), remedy_message(refusal)) == (
        "its spec.suspend is true",
        "set spec.suspend to false",
    )
    assert pending_message(Refusal(Reason.SUSPENDED)) == "its policy suspends dispatching"


def test_root_queue_is_described_as_all_clusters():
    refusal = Refusal(Reason.INSUFFICIENT_CAPACITY, "cpu", 4000, 0, queue="root")
    assert pending_message(refusal) == "it requests 4 cpu, all usable clusters together have 0 left"
    assert remedy_message(refusal) == (
        "it starts when workloads finish; `volcano-global explain job` lists all shortages"
    )
