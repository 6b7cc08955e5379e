"""Catalogue of mutations of the controller, each with the test that must fail because of it."""

from dataclasses import dataclass

from tests.mutants.defects import DEFECTS
from tests.mutants.transformations import Drop, DropKeyword, IterateOnce, Replace, ReplaceArgument, Transformation

_KILLS = "tests/faults/test_kill_points.py::test_scenario_without_faults_has_its_number_of_writes"
_OBJECTS = "tests/faults/test_objects.py::"
_ORDER = f"{_OBJECTS}test_freed_capacity_goes_to_the_first_in_order"
_ANSWERS = "tests/faults/test_api_responses.py::"
_LEADERS = "tests/faults/test_leaders.py::"
_WATCHES = "tests/faults/test_watches.py::test_every_watch_fault_is_recovered"
_SERVERS = "tests/faults/test_servers.py::"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation of one function or class."""

    name: str
    module: str
    definition: str
    """The function or class within the module, such as ``Actuator._send``."""
    transformation: Transformation
    caught_by: str
    """The test that must fail."""

    @property
    def file(self) -> str:
        """Path of the module in the repository."""
        return f"{self.module.replace('.', '/')}.py"


#: By module and name: the function or class, its change, and the test that must fail.
_MUTANTS = {
    "controller.scheduling.patches": {
        "omit-admission-record": ("admit", Drop("*_set_record(binding, record)"), f"{_KILLS}[chain]"),
        "replace-whole-suspension": (
            "admit",
            Replace(
                '_Operation("replace", _SCHEDULING_SUSPENDED, False)',
                by='_Operation("replace", _SUSPENSION, {"scheduling": False})',
            ),
            f"{_OBJECTS}test_mutating_policy_of_others_causes_no_extra_writes",
        ),
        "ignore-existing-annotations": (
            "_set_record",
            Replace("binding.has_annotations", by="False"),
            f"{_KILLS}[chain]",
        ),
        "replace-all-annotations": (
            "_set_record",
            Replace(
                '_Operation("add", _ANNOTATION, record)',
                by='_Operation("add", _ANNOTATIONS, {ADMISSION_ANNOTATION: record})',
            ),
            f"{_KILLS}[chain]",
        ),
        "skip-uid-test": ("_test_suspended", Drop("_test_uid(binding)"), "tests/scheduling/test_patches.py"),
        "skip-suspension-test": (
            "_test_suspended",
            Drop('_Operation("test", _SCHEDULING_SUSPENDED, True)'),
            "tests/scheduling/test_patches.py",
        ),
        "omit-clusters": (
            "admit",
            Drop('*([_Operation("add", _CLUSTERS, clusters)] if clusters else ())'),
            f"{_KILLS}[chain]",
        ),
    },
    "controller.scheduling.writes": {
        "ignore-placement-without-admission": (
            "repair_write",
            Replace("BindingCondition.PLACED_WITHOUT_ADMISSION in conditions", by="False"),
            f"{_KILLS}[mended]",
        ),
        "ignore-resuspended-binding": (
            "repair_write",
            Drop("BindingCondition.RESUSPENDED_AFTER_ADMISSION in conditions"),
            f"{_KILLS}[mended]",
        ),
    },
    "controller.scheduling.loop": {
        "do-not-assume-decisions": (
            "AdmissionLoop._submit_write",
            Replace(
                "self._store.assume(step.uid, outcome)",
                by="step.effect == 'admit' or self._store.assume(step.uid, outcome)",
            ),
            f"{_ANSWERS}test_event_during_admission_write_frees_no_capacity",
        ),
        "plan-before-caches-are-synced": (
            "AdmissionLoop._until_synced",
            Replace("[cache for cache in self._caches.values() if not cache.synced.is_set()]", by="[]"),
            "tests/faults/test_watches.py::test_no_decision_before_all_lists_are_applied",
        ),
        "roll-back-for-observed-affinity": (
            "AdmissionLoop._observe_affinity",
            Replace("self._store.back_off", by="self._store.roll_back"),
            "tests/scheduling/test_loop.py::test_c1_affinity_term_is_written_after_pending_write",
        ),
    },
    "controller.scheduling.actuator": {
        "treat-unknown-write-as-failed": (
            "Actuator._on_error",
            Replace(
                "pending.unknown_until = time.monotonic() + self._api.timeouts.write + self._api.timeouts.grace",
                by="return self._withdraw(pending.write, str(error))",
            ),
            f"{_ANSWERS}test_admission_with_lost_reply_keeps_its_capacity",
        ),
        "retry-rejected-write-at-once": (
            "Actuator._withdraw",
            Replace("self._clock() + round(retry_state.backoff.next_delay() * 1000)", by="self._clock()"),
            f"{_ANSWERS}test_permanent_rejection_backs_off_and_is_reported",
        ),
        "treat-429-as-rejection": (
            "Actuator._on_error",
            Drop("TooManyRequests()"),
            f"{_ANSWERS}test_retry_after_is_honoured_and_keeps_the_order",
        ),
        "stop-on-any-api-error": (
            "Actuator._send",
            Replace("ApiError", by="NotFound"),
            f"{_ANSWERS}test_each_error_response_to_one_job_is_recovered",
        ),
    },
    "controller.kube.informer": {
        "retry-expired-watch": (
            "Informer._watch_until_relist",
            Drop("isinstance(error, Gone)"),
            "tests/kube/test_informer.py",
        ),
        "ignore-silent-watch": ("Informer._watch", Replace("self._options.silence", by="3600"), f"{_WATCHES}[silence]"),
        "skip-cache-audit": (
            "Informer._watch_until_relist",
            Drop("await self._compare()"),
            "tests/faults/test_watches.py::test_binding_with_a_lost_create_event_is_found",
        ),
        "ignore-restored-backup": (
            "Informer._apply",
            Replace("is_older(version, self.version)", by="False"),
            f"{_SERVERS}test_restored_backup_is_accepted",
        ),
    },
    "controller.kube.cache_audit": {
        "skip-version-comparison": (
            "CacheAudit._check",
            Replace("held < int(meta.resource_version)", by="False"),
            "tests/faults/test_watches.py::test_audit_finds_lost_changes_of_every_kind",
        ),
    },
    "controller.kube.collection": {
        "keep-objects-missing-from-list": (
            "Collection.replace_in_steps",
            Replace("dict.fromkeys(self._objects)", by="dict[Hashable, None]()"),
            "tests/cache/test_store.py",
        ),
        "accept-outdated-event": (
            "Collection.upsert",
            Drop("before is not None and before.resource_version > obj.resource_version"),
            "tests/cache/test_store.py",
        ),
        "accept-response-after-deletion": (
            "Collection.upsert",
            Drop("obj.uid in self._deleted_uids"),
            "tests/cache/test_store.py",
        ),
    },
    "controller.cache.workload_builder": {
        "charge-finished-jobs": ("_observed_status", Replace("is_finished(binding)", by="False"), f"{_KILLS}[chain]"),
        "admit-deleting-objects": (
            "_observed_status",
            Replace("binding.details.deleting or (template is not None and template.deleting)", by="False"),
            f"{_OBJECTS}test_terminating_binding_is_not_admitted_but_charged",
        ),
        "ignore-job-priority": ("_make_workload", Replace("context.priorities.value(priority_class)", by="0"), _ORDER),
        "admit-youngest-first": ("_queued_since", Replace("template.created_at", by="-template.created_at"), _ORDER),
    },
    "controller.cache.record": {
        "accept-record-of-another-binding": (
            "read_record",
            Replace("owner != uid", by="False"),
            f"{_OBJECTS}test_forged_record_admits_nothing",
        ),
    },
    "controller.cache.translate.queues": {
        "ignore-queue-priority": ("_queue", DropKeyword("priority"), _ORDER),
        "ignore-queue-capability": ("_queue", DropKeyword("capability"), f"{_KILLS}[gangs]"),
        "treat-closed-queue-as-open": (
            "_state",
            Replace("_STATES.get(queue.state, QueueState.UNKNOWN)", by="QueueState.OPEN"),
            f"{_KILLS}[ebb]",
        ),
    },
    "controller.cache.translate.clusters": {
        "treat-unready-cluster-as-ready": (
            "translate_cluster",
            Replace(
                "any(condition.type == 'Ready' and condition.status == 'True'"
                " for condition in cluster.status.conditions)",
                by="True",
            ),
            f"{_OBJECTS}test_reduced_capacity_evicts_and_admits_nothing",
        ),
    },
    "controller.cache.translate.templates": {
        "count-one-pod-per-task": (
            "_task",
            ReplaceArgument("Task", "task.replicas", by="min(task.replicas, 1)"),
            f"{_KILLS}[gangs]",
        ),
    },
    "controller.kube.leader_election": {
        "always-lead": (
            "LeaderElection.may_write",
            Replace("self._writes_from <= self._clock() < self._leads_until", by="True"),
            f"{_LEADERS}test_standby_takes_over_at_once_after_a_release",
        ),
        "never-lose-leadership": (
            "LeaderElection._acquire",
            Replace("begun + self._timings.renew", by="float('inf')"),
            f"{_LEADERS}test_leader_that_cannot_renew_steps_down_in_time",
        ),
        "release-lease-without-retry": (
            "LeaderElection.release",
            IterateOnce("(why := await self._try_release())"),
            f"{_LEADERS}test_release_is_retried_after_a_late_renewal",
        ),
        "ignore-unconfirmed-lease": (
            "LeaderElection._acquire",
            Replace("math.isinf(self._writes_from)", by="not (before.lease and self._candidate.holds(before.lease))"),
            f"{_LEADERS}test_lease_acquired_without_a_reply_is_used",
        ),
        "do-not-report-lost-leadership": (
            "LeaderElection._acquire",
            Replace("not self.leads", by="False"),
            "tests/kube/test_leader_election.py::test_lapse_is_notified_before_late_renewal",
        ),
        "never-acquire-expired-lease": (
            "can_acquire",
            Replace("now >= observed.since + max(lease.seconds, timings.lease)", by="False"),
            f"{_LEADERS}test_dead_leader_is_followed_after_lease_expiry",
        ),
        "write-without-takeover-delay": ("write_delay", Replace("timings.write", by="0"), "tests/kube/test_lease.py"),
        "acquire-lease-without-test": ("_compare_and_set", Drop("test"), "tests/kube/test_leader_election.py"),
    },
    "controller.__main__": {
        "never-release-lease": (
            "Controller.run",
            Drop("await self.election.release()"),
            f"{_LEADERS}test_standby_takes_over_at_once_after_a_release",
        ),
    },
    "controller.engine.reservations.placement": {
        "reserve-capacity-twice": (
            "ReservationPlanner._place_gang",
            Drop("placer.assign(charges)"),
            "tests/engine/test_reservations.py",
        ),
    },
    "controller.engine.reservations.nominations": {
        "admit-nominated-part-alone": (
            "Nominations.parts_with",
            Replace("gang is None or self._workloads.gangs.missing(gang) <= 1", by="True"),
            "tests/engine/test_gang_preemption.py",
        ),
    },
    "controller.engine.preemption_pass": {
        "nominate-one-part-only": (
            "PreemptionPass._apply",
            IterateOnce("plan.clusters.items()"),
            "tests/engine/test_gang_preemption.py",
        ),
    },
    "controller.reporting.state_collector": {
        "omit-pending-reasons": (
            "StateCollector._workloads",
            Replace("_by_label(reasons)", by="()"),
            f"{_KILLS}[gangs]",
        ),
    },
    "controller.kube.logs": {
        "stop-on-full-disk": (
            "_SafeOutput.write",
            Drop("OSError"),
            "tests/faults/test_process_environment.py::test_controller_works_with_scarce_resources[no-disk-for-logs]",
        ),
    },
}

MUTANTS = tuple(
    Mutant(name, module, *row)
    for table in (_MUTANTS, DEFECTS)
    for module, rows in table.items()
    for name, row in rows.items()
)
