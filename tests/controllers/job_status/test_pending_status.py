import msgspec
import pytest

from controller.api.jobs import decode_job
from controller.cache.objects import CachedBinding, CachedTemplate
from controller.cache.store import Store
from controller.cache.translate.templates import JobTranslator
from controller.cache.unbound_jobs import UnboundJobs
from controller.controllers.job_status.pending_status import (
    PendingStatus,
    can_publish,
    is_evicted,
    is_settled,
    is_unselected,
    refused_status,
    status_patch,
    unselected_status,
)
from controller.engine.plan import Wait
from controller.engine.reasons import Reason, Refusal
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadUid
from controller.scheduling.workload_events import pending_note
from tests.cache import objects
from tests.cache.fake_event_handler import upsert


def cached_job(status: object = None, **more) -> CachedTemplate:
    manifest = msgspec.json.decode(objects.job(**more)) | ({} if status is None else {"status": status})
    return JobTranslator().translate(decode_job(msgspec.json.encode(manifest)))


def cached_binding(**more) -> CachedBinding:
    store = Store()
    store.bindings.upsert(store.bindings.decode(objects.binding(**more)))
    (binding,) = store.bindings
    return binding


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        pytest.param(None, "", id="absent"),
        pytest.param({}, "", id="empty"),
        pytest.param({"state": None}, "", id="null-state"),
        pytest.param({"state": {"phase": "Pending", "reason": "QueueLimitReached"}}, "QueueLimitReached", id="reason"),
        pytest.param({"state": {"phase": "Pending", "reason": "Evicted"}}, "Evicted", id="evicted"),
        pytest.param({"state": {"phase": "Pending", "reason": "Admitted"}}, "Admitted", id="admitted"),
        pytest.param({"state": {"phase": "Pending"}}, None, id="pending-in-a-cluster"),
        pytest.param({"state": {"phase": "Pending", "reason": "PodPending"}}, None, id="reason-of-a-cluster"),
        pytest.param({"state": {"phase": "Running"}}, None, id="running"),
        pytest.param({"state": {"phase": "Running", "reason": "Evicted"}}, None, id="running-with-our-reason"),
        pytest.param({"state": {"phase": ["Pending"]}}, None, id="wrong-type"),
        pytest.param([], None, id="no-object"),
    ],
)
def test_published_reason_is_read_from_status(status, reason):
    job = cached_job(status)
    assert job.published_reason == reason
    assert (job.requests is not None, job.decode_error) == (True, "")


def test_status_of_reporting_cluster_is_not_overwritten():
    assert can_publish(cached_job(), cached_binding())
    assert not can_publish(cached_job(), cached_binding(clusters=["m1"], paused=False, phases={"m1": "Pending"}))
    assert not can_publish(cached_job({"state": {"phase": "Running"}}), cached_binding())
    assert not can_publish(cached_job(meta={"deletionTimestamp": objects.CREATED}), cached_binding())


def test_refusal_is_published_unless_the_job_has_run():
    placed = {"clusters": ["m1"], "paused": False}
    admitted = objects.binding(**placed)
    refused = objects.binding(**placed, refused={"m1": "no queue 'a'"})
    running = objects.binding(**placed, phases={"m1": "Running"})
    later = []
    for before in (admitted, running):
        store = Store()
        upsert(store, ("bindings", before), ("bindings", refused))
        later += store.bindings
    unstarted, started = later
    status = refused_status(unstarted, 0)
    assert status.message() == "admitted, and does not start, because a cluster does not accept it: m1: no queue 'a'"
    assert is_settled(status, unstarted)
    assert can_publish(cached_job(), unstarted, status.reason)
    assert not can_publish(cached_job(), unstarted, "Admitted")
    assert not can_publish(cached_job(), started, status.reason)


def test_pending_reason_waits_until_suspension_is_observed():
    status = PendingStatus("QueueLimitReached", str, 0)
    assert is_settled(status, cached_binding())
    assert not is_settled(status, cached_binding(paused=False, clusters=["m1"]))
    assert is_settled(PendingStatus("Admitted", str, 0), cached_binding(paused=False, clusters=["m1"]))


def test_only_evicted_workload_waits_for_corrected_status():
    assert not is_evicted(cached_binding())
    assert is_evicted(cached_binding(record=objects.admission_record(uid="rb-j1", queue="a", evictions=1)))
    by_others = objects.admission_record(uid="rb-j1", queue="a", charge={"cpu": "1"})
    assert is_evicted(cached_binding(record=by_others)), "the record is not updated yet"


@pytest.mark.parametrize(
    ("age", "newest_bound", "newest_binding", "expected"),
    [
        pytest.param(29_000, 0, 0, False, id="young"),
        pytest.param(30_000, 0, 0, True, id="idle-control-plane"),
        pytest.param(40_000, -1, 20_000, False, id="bindings-of-older-jobs-are-created"),
        pytest.param(40_000, 1, 40_000, True, id="younger-job-is-bound"),
        pytest.param(60_000, -1, 20_000, True, id="idle-again"),
    ],
)
def test_unselected_job_is_reported_after_karmada_had_its_chance(age, newest_bound, newest_binding, expected):
    job, unbound = cached_job(), UnboundJobs()
    unbound.newest_bound_at = job.created_at + newest_bound
    unbound.newest_binding_at = job.created_at + newest_binding if newest_binding else 0
    assert is_unselected(job, unbound, job.created_at + age) is expected


def test_patch_sets_only_the_state_of_the_observed_version():
    workload = Workload(WorkloadUid("u1"), "ml", "j1", "Job", QueueName("a"), SchedulingRequirements())
    wait = Wait(workload, Refusal(Reason.QUEUE_NOT_FOUND, queue=QueueName("a")), 1)
    patch = status_patch(cached_job(version=7), PendingStatus(wait.refusal.reason, wait, 5_000))
    state = {"phase": "Pending", "reason": "QueueNotFound", "message": pending_note(wait)}
    assert patch == {
        "metadata": {"uid": "job-j1", "resourceVersion": "7"},
        "status": {"state": {**state, "lastTransitionTime": "1970-01-01T00:00:05Z"}},
    }
    long = status_patch(cached_job(), PendingStatus("QueueLimitReached", lambda: "x" * 3000, 0))
    assert len(long["status"]["state"]["message"]) == 1024


def test_unselected_status_does_not_blame_the_policy_alone():
    """A binding is also missing after its deletion, and while a webhook or Karmada's controller is down."""
    assert unselected_status(0).message() == (
        "no PropagationPolicy selects it, or Karmada has not applied the policy, so it is not queued; create a"
        " policy that selects it, or change the job"
    )


def test_unselected_status_is_read_as_our_own():
    assert cached_job(status_patch(cached_job(), unselected_status(0))["status"]).published_reason == "NoMatchingPolicy"


def test_store_lists_jobs_without_a_binding():
    store = Store()
    store.jobs.upsert(store.jobs.decode(objects.job("a", version=1)))
    store.jobs.upsert(store.jobs.decode(objects.job("b", version=1)))
    assert [key.name for key in store.unbound_jobs] == ["a", "b"]
    store.bindings.upsert(store.bindings.decode(objects.binding("a")))
    assert [key.name for key in store.unbound_jobs] == ["b"]
    assert store.unbound_jobs.newest_bound_at == objects.CREATED_MS
    store.bindings.forget("ml", "a-job")
    store.jobs.forget("ml", "b")
    assert [key.name for key in store.unbound_jobs] == ["a"]


def test_change_of_status_alone_does_not_reach_the_engine():
    store, calls = Store(), []
    store.jobs.upsert(store.jobs.decode(objects.job(version=1)))
    store.on_change.append(lambda: calls.append(1))
    job = msgspec.json.decode(objects.job(version=2)) | {"status": {"state": {"phase": "Running"}}}
    store.jobs.upsert(store.jobs.decode(msgspec.json.encode(job)))
    assert calls == []
    store.jobs.upsert(store.jobs.decode(objects.job(version=3, queue="b")))
    assert calls == [1]
