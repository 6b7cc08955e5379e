"""Catalogue of mutations of the controller, each with the test that must fail because of it."""

from tests.mutants.defects import DEFECTS
from tests.mutants.mutant import Mutant
from tests.mutants.transformations import Drop, DropKeyword, IterateOnce, Replace, ReplaceArgument

_KILLS = "tests/faults/test_kill_points.py::test_scenario_without_faults_has_its_number_of_writes"
_OBJECTS = "tests/faults/test_objects.py::"
_ORDER = f"{_OBJECTS}test_freed_capacity_goes_to_the_first_in_order"
_ANSWERS = "tests/faults/test_api_responses.py::"
_LEADERS = "tests/faults/test_leaders.py::"
_WATCHES = "tests/faults/test_watches.py::test_every_watch_fault_is_recovered"
_SERVERS = "tests/faults/test_servers.py::"


MUTANTS = (
    # -- patches --------------------------------------------------
    Mutant(
        "omit-admission-record",
        "controller.scheduling.patches",
        "admit",
        Drop("*_set_record(binding, record)"),
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "replace-whole-suspension",
        "controller.scheduling.patches",
        "admit",
        Replace(
            '_Operation("replace", _SCHEDULING_SUSPENDED, False)',
            by='_Operation("replace", _SUSPENSION, {"scheduling": False})',
        ),
        f"{_OBJECTS}test_mutating_policy_of_others_causes_no_extra_writes",
    ),
    Mutant(
        "ignore-existing-annotations",
        "controller.scheduling.patches",
        "_set_record",
        Replace("binding.has_annotations", by="False"),
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "replace-all-annotations",
        "controller.scheduling.patches",
        "_set_record",
        Replace(
            '_Operation("add", _ANNOTATION, record)',
            by='_Operation("add", _ANNOTATIONS, {ADMISSION_ANNOTATION: record})',
        ),
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "skip-uid-test",
        "controller.scheduling.patches",
        "_test_suspended",
        Drop("_test_uid(binding)"),
        "tests/scheduling/test_patches.py",
    ),
    Mutant(
        "skip-suspension-test",
        "controller.scheduling.patches",
        "_test_suspended",
        Drop('_Operation("test", _SCHEDULING_SUSPENDED, True)'),
        "tests/scheduling/test_patches.py",
    ),
    Mutant(
        "omit-clusters",
        "controller.scheduling.patches",
        "admit",
        Drop('*([_Operation("add", _CLUSTERS, clusters)] if clusters else ())'),
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "ignore-placement-without-admission",
        "controller.scheduling.writes",
        "repair_write",
        Replace("BindingCondition.PLACED_WITHOUT_ADMISSION in conditions", by="False"),
        f"{_KILLS}[mended]",
    ),
    Mutant(
        "ignore-resuspended-binding",
        "controller.scheduling.writes",
        "repair_write",
        Drop("BindingCondition.RESUSPENDED_AFTER_ADMISSION in conditions"),
        f"{_KILLS}[mended]",
    ),
    # -- results of writes ------------------------------------------
    Mutant(
        "do-not-assume-decisions",
        "controller.scheduling.loop",
        "AdmissionLoop._submit_write",
        Replace(
            "self._store.assume(step.uid, outcome)",
            by="step.effect == 'admit' or self._store.assume(step.uid, outcome)",
        ),
        f"{_ANSWERS}test_event_during_admission_write_frees_no_capacity",
    ),
    Mutant(
        "treat-unknown-write-as-failed",
        "controller.scheduling.actuator",
        "Actuator._on_error",
        Replace(
            "pending.unknown_until = time.monotonic() + self._api.timeouts.write + self._api.timeouts.grace",
            by="return self._withdraw(pending.write, str(error))",
        ),
        f"{_ANSWERS}test_admission_with_lost_reply_keeps_its_capacity",
    ),
    Mutant(
        "retry-rejected-write-at-once",
        "controller.scheduling.actuator",
        "Actuator._withdraw",
        Replace("self._clock() + round(retry_state.backoff.next_delay() * 1000)", by="self._clock()"),
        f"{_ANSWERS}test_permanent_rejection_backs_off_and_is_reported",
    ),
    Mutant(
        "treat-429-as-rejection",
        "controller.scheduling.actuator",
        "Actuator._on_error",
        Drop("TooManyRequests()"),
        f"{_ANSWERS}test_retry_after_is_honoured_and_keeps_the_order",
    ),
    Mutant(
        "stop-on-any-api-error",
        "controller.scheduling.actuator",
        "Actuator._send",
        Replace("ApiError", by="NotFound"),
        f"{_ANSWERS}test_each_error_response_to_one_job_is_recovered",
    ),
    # -- watches and caches -----------------------------------------------------
    Mutant(
        "plan-before-caches-are-synced",
        "controller.scheduling.loop",
        "AdmissionLoop._until_synced",
        Replace("[cache for cache in self._caches.values() if not cache.synced.is_set()]", by="[]"),
        "tests/faults/test_watches.py::test_no_decision_before_all_lists_are_applied",
    ),
    Mutant(
        "retry-expired-watch",
        "controller.kube.informer",
        "Informer._watch_until_relist",
        Drop("isinstance(error, Gone)"),
        "tests/kube/test_informer.py",
    ),
    Mutant(
        "ignore-silent-watch",
        "controller.kube.informer",
        "Informer._watch",
        Replace("self._options.silence", by="3600"),
        f"{_WATCHES}[silence]",
    ),
    Mutant(
        "skip-cache-audit",
        "controller.kube.informer",
        "Informer._watch_until_relist",
        Drop("await self._compare()"),
        "tests/faults/test_watches.py::test_binding_with_a_lost_create_event_is_found",
    ),
    Mutant(
        "skip-version-comparison",
        "controller.kube.cache_audit",
        "CacheAudit._check",
        Replace("held < int(meta.resource_version)", by="False"),
        "tests/faults/test_watches.py::test_audit_finds_lost_changes_of_every_kind",
    ),
    Mutant(
        "ignore-restored-backup",
        "controller.kube.informer",
        "Informer._apply",
        Replace("is_older(version, self.version)", by="False"),
        f"{_SERVERS}test_restored_backup_is_accepted",
    ),
    Mutant(
        "keep-objects-missing-from-list",
        "controller.kube.collection",
        "Collection.replace_in_steps",
        Replace("dict.fromkeys(self._objects)", by="dict[Hashable, None]()"),
        "tests/cache/test_store.py",
    ),
    Mutant(
        "accept-outdated-event",
        "controller.kube.collection",
        "Collection.upsert",
        Drop("before is not None and before.resource_version > obj.resource_version"),
        "tests/cache/test_store.py",
    ),
    Mutant(
        "accept-response-after-deletion",
        "controller.kube.collection",
        "Collection.upsert",
        Drop("obj.uid in self._deleted_uids"),
        "tests/cache/test_store.py",
    ),
    # -- building workloads -----------------------------------------------
    Mutant(
        "charge-finished-jobs",
        "controller.cache.workload_builder",
        "_observed_status",
        Replace("is_finished(binding)", by="False"),
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "admit-deleting-objects",
        "controller.cache.workload_builder",
        "_observed_status",
        Replace("binding.details.deleting or (template is not None and template.deleting)", by="False"),
        f"{_OBJECTS}test_terminating_binding_is_not_admitted_but_charged",
    ),
    Mutant(
        "accept-record-of-another-binding",
        "controller.cache.record",
        "read_record",
        Replace("owner != uid", by="False"),
        f"{_OBJECTS}test_forged_record_admits_nothing",
    ),
    Mutant(
        "ignore-job-priority",
        "controller.cache.workload_builder",
        "_make_workload",
        Replace("context.priorities.value(priority_class)", by="0"),
        _ORDER,
    ),
    Mutant(
        "ignore-queue-priority",
        "controller.cache.translate.queues",
        "_queue",
        DropKeyword("priority"),
        _ORDER,
    ),
    Mutant(
        "admit-youngest-first",
        "controller.cache.workload_builder",
        "_queued_since",
        Replace("template.created_at", by="-template.created_at"),
        _ORDER,
    ),
    Mutant(
        "ignore-queue-capability",
        "controller.cache.translate.queues",
        "_queue",
        DropKeyword("capability"),
        f"{_KILLS}[gangs]",
    ),
    Mutant(
        "treat-closed-queue-as-open",
        "controller.cache.translate.queues",
        "_state",
        Replace("_STATES.get(queue.state, QueueState.UNKNOWN)", by="QueueState.OPEN"),
        f"{_KILLS}[ebb]",
    ),
    Mutant(
        "treat-unready-cluster-as-ready",
        "controller.cache.translate.clusters",
        "translate_cluster",
        Replace(
            "any(condition.type == 'Ready' and condition.status == 'True' for condition in cluster.status.conditions)",
            by="True",
        ),
        f"{_OBJECTS}test_reduced_capacity_evicts_and_admits_nothing",
    ),
    Mutant(
        "count-one-pod-per-task",
        "controller.cache.translate.templates",
        "_task",
        ReplaceArgument("Task", "task.replicas", by="min(task.replicas, 1)"),
        f"{_KILLS}[gangs]",
    ),
    # -- leader election -------------------------------------------------------
    Mutant(
        "always-lead",
        "controller.kube.leader_election",
        "LeaderElection.may_write",
        Replace("self._writes_from <= self._clock() < self._leads_until", by="True"),
        f"{_LEADERS}test_standby_takes_over_at_once_after_a_release",
    ),
    Mutant(
        "never-lose-leadership",
        "controller.kube.leader_election",
        "LeaderElection._acquire",
        Replace("begun + self._timings.renew", by="float('inf')"),
        f"{_LEADERS}test_leader_that_cannot_renew_steps_down_in_time",
    ),
    Mutant(
        "never-release-lease",
        "controller.__main__",
        "Controller.run",
        Drop("await self.election.release()"),
        f"{_LEADERS}test_standby_takes_over_at_once_after_a_release",
    ),
    Mutant(
        "release-lease-without-retry",
        "controller.kube.leader_election",
        "LeaderElection.release",
        IterateOnce("(why := await self._try_release())"),
        f"{_LEADERS}test_release_is_retried_after_a_late_renewal",
    ),
    Mutant(
        "ignore-unconfirmed-lease",
        "controller.kube.leader_election",
        "LeaderElection._acquire",
        Replace("math.isinf(self._writes_from)", by="not (before.lease and self._candidate.holds(before.lease))"),
        f"{_LEADERS}test_lease_acquired_without_a_reply_is_used",
    ),
    Mutant(
        "do-not-report-lost-leadership",
        "controller.kube.leader_election",
        "LeaderElection._acquire",
        Replace("not self.leads", by="False"),
        "tests/kube/test_leader_election.py::test_lapse_is_notified_before_late_renewal",
    ),
    Mutant(
        "roll-back-for-observed-affinity",
        "controller.scheduling.loop",
        "AdmissionLoop._observe_affinity",
        Replace("self._store.back_off", by="self._store.roll_back"),
        "tests/scheduling/test_loop.py::test_c1_affinity_term_is_written_after_pending_write",
    ),
    Mutant(
        "never-acquire-expired-lease",
        "controller.kube.leader_election",
        "can_acquire",
        Replace("now >= observed.since + max(lease.seconds, timings.lease)", by="False"),
        f"{_LEADERS}test_dead_leader_is_followed_after_lease_expiry",
    ),
    Mutant(
        "write-without-takeover-delay",
        "controller.kube.leader_election",
        "write_delay",
        Replace("timings.write", by="0"),
        "tests/kube/test_lease.py",
    ),
    Mutant(
        "acquire-lease-without-test",
        "controller.kube.leader_election",
        "_compare_and_set",
        Drop("test"),
        "tests/kube/test_leader_election.py",
    ),
    # -- gangs -----------------------------------------
    Mutant(
        "reserve-capacity-twice",
        "controller.engine.reservations.placement",
        "ReservationPlanner._place_gang",
        Drop("placer.assign(charges)"),
        "tests/engine/test_reservations.py",
    ),
    Mutant(
        "admit-nominated-part-alone",
        "controller.engine.reservations.nominations",
        "Nominations.parts_with",
        Replace("gang is None or self._workloads.gangs.missing(gang) <= 1", by="True"),
        "tests/engine/test_gang_preemption.py",
    ),
    Mutant(
        "nominate-one-part-only",
        "controller.engine.preemption_pass",
        "PreemptionPass._apply",
        IterateOnce("plan.clusters.items()"),
        "tests/engine/test_gang_preemption.py",
    ),
    # -- observability ----------------------------------------------------
    Mutant(
        "omit-pending-reasons",
        "controller.reporting.state_collector",
        "StateCollector._workloads",
        Replace("_by_label(reasons)", by="()"),
        f"{_KILLS}[gangs]",
    ),
    Mutant(
        "stop-on-full-disk",
        "controller.kube.logs",
        "_SafeOutput.write",
        Drop("OSError"),
        "tests/faults/test_process_environment.py::test_controller_works_with_scarce_resources[no-disk-for-logs]",
    ),
    *DEFECTS,
)
