import pytest

from controller.engine.fit import NODES_FULL
from controller.engine.reasons import Reason, Refusal
from controller.messages import PENDING_MESSAGES, REMEDIES, pending_message, remedy_message


def test_every_reason_has_a_sentence_and_a_remedy():
    assert set(PENDING_MESSAGES) == set(Reason) == set(REMEDIES)


@pytest.mark.parametrize("reason", list(Reason))
def test_no_sentence_shows_a_fact_that_is_missing(reason):
    full = Refusal(reason, "cpu", 4000, 1500, queue="ml", cluster="member1", subject="Job ml/first")
    assert "None" not in pending_message(full)
    assert remedy_message(full)


def test_amounts_are_shown_as_quantities():
    refusal = Refusal(Reason.INSUFFICIENT_CAPACITY, "memory", 8 * 2**30, 2**29, cluster="member1")
    assert pending_message(refusal) == (
        "no candidate cluster has room now; 'member1' comes closest with 512Mi memory of 8Gi"
    )


def test_a_lack_of_nodes_is_told_from_a_lack_of_resources():
    refusal = Refusal(Reason.INSUFFICIENT_CAPACITY, cluster="member1", subject="no node takes one of its pods")
    assert pending_message(refusal) == "no candidate cluster has a node for each of its pods now"


def test_refusal_of_an_estimator_names_its_cluster():
    refusal = Refusal(Reason.INSUFFICIENT_CAPACITY, cluster="member1", subject=NODES_FULL)
    assert pending_message(refusal) == (
        "the nodes of 'member1' have no room for its gang now, as its scheduler estimator counts"
    )


def test_more_charged_than_there_is_shows_as_nothing_left():
    refusal = Refusal(Reason.QUEUE_LIMIT_REACHED, "cpu", 1000, -3000, queue="ml")
    assert pending_message(refusal) == "it asks for 1 cpu, queue 'ml' has 0 left below its limit"


def test_the_root_is_told_as_what_it_is():
    refusal = Refusal(Reason.QUEUE_LIMIT_REACHED, "cpu", 4000, 0, queue="root")
    assert pending_message(refusal) == "it asks for 4 cpu, all usable clusters together have 0 left"
    assert remedy_message(refusal) == "it starts when workloads finish; explain lists all that it lacks"
