"""Catalogue of mutations, each with the test that must fail because of it.

Among them are the defects of the Go implementation and those that the simulation has found.
"""

from dataclasses import dataclass

_KILLS = "tests/faults/test_kill_points.py::test_scenario_without_faults_has_its_number_of_writes"
_WATCHES = "tests/faults/test_watches.py::test_every_watch_fault_is_recovered"
_OBJECTS = "tests/faults/test_objects.py::"
_ANSWERS = "tests/faults/test_api_responses.py::"
_LEADERS = "tests/faults/test_leaders.py::"
_SERVERS = "tests/faults/test_servers.py::"
_BUILDER = "tests/cache/test_workload_builder.py"
_QUEUES = "tests/cache/translate/test_queues.py"
_ORDER = f"{_OBJECTS}test_freed_capacity_goes_to_the_first_in_order"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation of one function or class, as `ast.unparse` formats it."""

    name: str
    module: str
    definition: str
    """The function or class within the module, such as ``Actuator._send``."""
    text: str
    """Occurs once in the definition."""
    replacement: str
    caught_by: str
    """The test that must fail."""

    @property
    def file(self) -> str:
        """Path of the module in the repository."""
        return f"{self.module.replace('.', '/')}.py"


#: By module and name: the function or class, its text, the replacement, and the test that must fail.
_MUTANTS = {
    "controller.scheduling.patches": {
        "omit-admission-record": ("admit", ", *_set_record(binding, record)", "", f"{_KILLS}[chain]"),
        "replace-whole-suspension": (
            "admit",
            "_Operation('replace', _SCHEDULING_SUSPENDED, False)",
            "_Operation('replace', _SUSPENSION, {'scheduling': False})",
            f"{_OBJECTS}test_mutating_policy_of_others_causes_no_extra_writes",
        ),
        "ignore-existing-annotations": ("_set_record", "binding.has_annotations", "False", f"{_KILLS}[chain]"),
        "replace-all-annotations": (
            "_set_record",
            "_Operation('add', _ANNOTATION, record)",
            "_Operation('add', _ANNOTATIONS, {ADMISSION_ANNOTATION: record})",
            f"{_KILLS}[chain]",
        ),
        "skip-uid-test": (
            "_test_suspended",
            "_test_uid(binding), _Operation('test', _SCHEDULING_SUSPENDED, True)",
            "_Operation('test', _SCHEDULING_SUSPENDED, True),",
            "tests/scheduling/test_patches.py",
        ),
        "skip-suspension-test": (
            "_test_suspended",
            " _Operation('test', _SCHEDULING_SUSPENDED, True)",
            "",
            "tests/scheduling/test_patches.py",
        ),
        "omit-clusters": (
            "admit",
            "*([_Operation('add', _CLUSTERS, clusters)] if clusters else ()), ",
            "",
            f"{_KILLS}[chain]",
        ),
    },
    "controller.scheduling.writes": {
        "ignore-placement-without-admission": (
            "repair_write",
            "BindingCondition.PLACED_WITHOUT_ADMISSION in conditions",
            "False",
            f"{_KILLS}[repairs]",
        ),
        "ignore-resuspended-binding": (
            "repair_write",
            "BindingCondition.RESUSPENDED_AFTER_ADMISSION in conditions or ",
            "",
            f"{_KILLS}[repairs]",
        ),
    },
    "controller.scheduling.loop": {
        "do-not-assume-decisions": (
            "AdmissionLoop._submit_write",
            "self._store.assume(step.uid, outcome)",
            "step.effect == 'admit' or self._store.assume(step.uid, outcome)",
            f"{_ANSWERS}test_event_during_admission_write_frees_no_capacity",
        ),
        "evict-for-part-of-a-preemption": (
            "AdmissionLoop._stale",
            "{eviction.preemptor for eviction in evictions if eviction.workload.uid in stale} | stale",
            "set(stale)",
            "tests/scheduling/test_loop_preemption.py::test_victim_that_changes_during_the_plan_keeps_the_others",
        ),
        "plan-before-caches-are-synced": (
            "AdmissionLoop._until_synced",
            "[cache for cache in self._caches.values() if not cache.synced.is_set()]",
            "[]",
            "tests/faults/test_watches.py::test_no_decision_before_all_lists_are_applied",
        ),
        "roll-back-for-observed-affinity": (
            "AdmissionLoop._observe_affinity",
            "self._store.back_off",
            "self._store.roll_back",
            "tests/scheduling/test_loop.py::test_c1_affinity_term_is_written_after_pending_write",
        ),
    },
    "controller.scheduling.actuator": {
        "treat-unknown-write-as-failed": (
            "Actuator._on_error",
            "pending.unknown_until = time.monotonic() + self._api.timeouts.write + self._api.timeouts.grace",
            "return self._withdraw(pending.write, str(error))",
            f"{_ANSWERS}test_admission_with_lost_reply_keeps_its_capacity",
        ),
        "retry-rejected-write-at-once": (
            "Actuator._withdraw",
            "self._clock() + round(retry_state.backoff.next_delay() * 1000)",
            "self._clock()",
            f"{_ANSWERS}test_permanent_rejection_backs_off_and_is_reported",
        ),
        "treat-429-as-rejection": (
            "Actuator._on_error",
            "TooManyRequests() | ",
            "",
            f"{_ANSWERS}test_retry_after_is_honoured_and_keeps_the_order",
        ),
        "stop-on-any-api-error": (
            "Actuator._send",
            "except ApiError",
            "except NotFound",
            f"{_ANSWERS}test_each_error_response_to_one_job_is_recovered",
        ),
    },
    "controller.kube.informer": {
        "retry-expired-watch": (
            "Informer._watch_repeatedly",
            "isinstance(error, Gone) or ",
            "",
            "tests/kube/test_informer.py",
        ),
        "ignore-silent-watch": ("Informer._watch", "self._options.silence", "3600", f"{_WATCHES}[silence]"),
        "skip-cache-audit": (
            "Informer._watch_repeatedly",
            "await self._compare()",
            "pass",
            "tests/faults/test_watches.py::test_binding_with_a_lost_create_event_is_found",
        ),
        "ignore-restored-backup": (
            "Informer._apply",
            "is_older(version, self.version)",
            "False",
            f"{_SERVERS}test_restored_backup_is_accepted",
        ),
    },
    "controller.kube.cache_audit": {
        "skip-version-comparison": (
            "CacheAudit._check",
            "held < int(stored)",
            "False",
            "tests/faults/test_watches.py::test_audit_finds_lost_changes_of_every_kind",
        ),
    },
    "controller.kube.collection": {
        "keep-objects-missing-from-list": (
            "Collection.replace_in_steps",
            "dict.fromkeys(self._objects)",
            "dict[Hashable, None]()",
            "tests/cache/test_store.py",
        ),
        "accept-outdated-event": (
            "Collection.upsert",
            " or (before is not None and before.resource_version > obj.resource_version)",
            "",
            "tests/cache/test_store.py",
        ),
        "accept-response-after-deletion": (
            "Collection.upsert",
            "self._deleted_uids.get(obj.uid, -1) >= obj.resource_version or ",
            "",
            "tests/cache/test_store.py",
        ),
    },
    "controller.cache.workload_builder": {
        "charge-finished-jobs": ("_observed_status", "is_finished(binding)", "False", f"{_KILLS}[chain]"),
        "admit-deleting-objects": (
            "_observed_status",
            "binding.details.deleting or (template is not None and template.deleting)",
            "False",
            f"{_OBJECTS}test_terminating_binding_is_not_admitted_but_charged",
        ),
        "ignore-job-priority": ("_make_workload", "context.priorities.value(priority_class)", "0", _ORDER),
        "admit-youngest-first": ("_queued_since", "return template.created_at", "return -template.created_at", _ORDER),
        "free-quota-while-pods-terminate": (
            "_suspended_status",
            "_Status(WorkloadState.PENDING, left, hold, (condition,) if condition else ())",
            "_Status(WorkloadState.PENDING, None, None, (condition,) if condition else ())",
            _BUILDER,
        ),
        "never-admit-without-queue": (
            "_queue_name",
            "named or record or context.default_queue",
            "named or record or QueueName('-')",
            _BUILDER,
        ),
        "lose-workload-of-unknown-class": (
            "_make_workload",
            "status.state is None",
            (
                "status.state is None or (template and context.priorities.effective(template.priority_class)"
                " not in {'', *context.priorities})"
            ),
            _BUILDER,
        ),
        "forget-admissions-at-restart": (
            "_unsuspended_status",
            "record and record.admits and (binding.targets or binding.details.has_policy)",
            "False",
            _BUILDER,
        ),
    },
    "controller.cache.record": {
        "accept-record-of-another-binding": (
            "read_record",
            "owner != uid",
            "False",
            f"{_OBJECTS}test_forged_record_admits_nothing",
        ),
    },
    "controller.cache.translate.queues": {
        "ignore-queue-priority": ("_queue", "priority=spec.priority, ", "", _ORDER),
        "ignore-queue-capability": (
            "_queue",
            "capability=parse_resources(spec.capability or {}, 'spec.capability'), ",
            "",
            f"{_KILLS}[gangs]",
        ),
        "treat-closed-queue-as-open": (
            "_state",
            "_STATES.get(queue.state, QueueState.UNKNOWN)",
            "QueueState.OPEN",
            f"{_KILLS}[capacity-changes]",
        ),
        "ignore-parent-queue": ("_queue", "parent=QueueName(queue.parent) if queue.parent else ROOT, ", "", _QUEUES),
        "ignore-guarantee": (
            "_queue",
            "guarantee=parse_resources(spec.quantities['guarantee'], 'spec.guarantee.resource'), ",
            "",
            _QUEUES,
        ),
        "ignore-deserved": ("_queue", "deserved=parse_resources(spec.deserved or {}, 'spec.deserved'), ", "", _QUEUES),
        "ignore-weight": ("_queue", "weight=max(spec.weight, 1), ", "", _QUEUES),
        "admit-to-deleted-queue": ("_state", "queue.metadata.deletion_timestamp is not None", "False", _QUEUES),
    },
    "controller.cache.translate.clusters": {
        "treat-unready-cluster-as-ready": (
            "translate_cluster",
            "ready=ready is not None and ready.status == 'True'",
            "ready=True",
            f"{_OBJECTS}test_reduced_capacity_evicts_and_admits_nothing",
        ),
    },
    "controller.cache.translate.templates": {
        "count-one-pod-per-task": (
            "_task",
            "Task(task.name, task.replicas",
            "Task(task.name, min(task.replicas, 1)",
            f"{_KILLS}[gangs]",
        ),
        "charge-last-task-only": (
            "_job_template",
            "enumerate(spec.tasks or ())",
            "[*enumerate(spec.tasks or ())][-1:]",
            _QUEUES,
        ),
    },
    "controller.kube.leader_election": {
        "always-lead": (
            "LeaderElection.may_write",
            "self._writes_from <= self._clock() < self._leads_until",
            "True",
            f"{_LEADERS}test_standby_takes_over_at_once_after_a_release",
        ),
        "never-lose-leadership": (
            "LeaderElection._acquire",
            "begun + self._timings.renew",
            "float('inf')",
            f"{_LEADERS}test_leader_that_cannot_renew_steps_down_in_time",
        ),
        "release-lease-without-retry": (
            "LeaderElection.release",
            "while (why",
            "if (why",
            f"{_LEADERS}test_release_is_retried_after_a_late_renewal",
        ),
        "ignore-unconfirmed-lease": (
            "LeaderElection._acquire",
            "math.isinf(self._writes_from)",
            "not (before.lease and self._candidate.holds(before.lease))",
            f"{_LEADERS}test_lease_acquired_without_a_reply_is_used",
        ),
        "do-not-report-lost-leadership": (
            "LeaderElection._acquire",
            "not self.leads",
            "False",
            "tests/kube/test_leader_election.py::test_lapse_is_notified_before_late_renewal",
        ),
        "never-acquire-expired-lease": (
            "can_acquire",
            "now >= observed.since + max(min(lease.seconds, _MAX_FACTOR * timings.lease), timings.lease)",
            "False",
            f"{_LEADERS}test_dead_leader_is_followed_after_lease_expiry",
        ),
        "write-without-takeover-delay": ("write_delay", "return timings.write", "return 0", "tests/kube/test_lease.py"),
        "acquire-lease-without-test": ("_compare_and_set", "[test, ", "[", "tests/kube/test_leader_election.py"),
    },
    "controller.__main__": {
        "never-release-lease": (
            "Controller.run",
            "await self.election.release()",
            "pass",
            f"{_LEADERS}test_standby_takes_over_at_once_after_a_release",
        ),
    },
    "controller.engine.reservations.placement": {
        "reserve-capacity-twice": (
            "ReservationPlanner._place_gang",
            "placer.assign(charges)",
            "pass",
            "tests/engine/test_reservations.py",
        ),
    },
    "controller.engine.lifecycle.gangs": {
        "compete-with-impossible-part": (
            "never_fits_refusal",
            "len(parts) < missing",
            "False",
            "tests/engine/test_scenarios.py",
        ),
        "compete-with-too-many-parts": (
            "_too_many_refusal",
            "room >= needed",
            "True",
            "tests/engine/test_scenarios.py",
        ),
    },
    "controller.engine.reservations.nominations": {
        "respect-younger-nominations": (
            "_free_capacity_for_nominated",
            "nonzero(subtract(cluster_state.nominated, younger))",
            "cluster_state.nominated",
            "tests/engine/test_scenarios.py",
        ),
        "admit-nominated-part-alone": (
            "Nominations.units",
            "gangs.is_all_or_nothing(gang)",
            "False",
            "tests/engine/test_gang_preemption.py",
        ),
    },
    "controller.engine.preemption_pass": {
        "nominate-one-part-only": (
            "PreemptionPass._apply",
            "in plan.clusters.items():",
            "in [*plan.clusters.items()][:1]:",
            "tests/engine/test_gang_preemption.py",
        ),
    },
    "controller.reporting.state_collector": {
        "omit-pending-reasons": ("StateCollector._workloads", "_by_label(reasons)", "()", f"{_KILLS}[gangs]"),
    },
    "controller.kube.logs": {
        "stop-on-full-disk": (
            "_SafeOutput.write",
            "OSError, ",
            "",
            "tests/faults/test_process_environment.py::test_controller_works_with_scarce_resources[no-disk-for-logs]",
        ),
    },
    "controller.engine.state.cluster_state": {
        "charge-no-cluster": (
            "ClusterState.headroom",
            "subtract(subtract(self.allocatable, self.external_usage), self.charged)",
            "subtract(self.allocatable, self.external_usage)",
            "tests/engine/test_scenarios.py",
        ),
        "ignore-external-usage": (
            "ClusterState.headroom",
            "subtract(subtract(self.allocatable, self.external_usage), self.charged)",
            "subtract(self.allocatable, self.charged)",
            "tests/engine/test_scenarios.py",
        ),
    },
    "controller.engine.state.quota": {
        "ignore-limits-of-ancestors": (
            "Quota.limiting",
            "(node, *self.limiting(node.parent))",
            "(node,)",
            "tests/engine/test_scenarios.py",
        ),
    },
    "controller.engine.lifecycle.resize": {
        "never-judge-resize": (
            "ResizeTracker.evict_rejected",
            "policy.evict and self._eviction_due_at(workload, policy) <= now",
            "False",
            "tests/engine/test_resize.py",
        ),
    },
    "controller.controllers.stale_status.controller": {
        "correct-status-of-admitted-workload": (
            "StaleStatusController._patch_statuses",
            "not has_left_clusters(manifest)",
            "False",
            "tests/controllers/stale_status/test_controller.py",
        ),
    },
    "controller.controllers.job_status.controller": {
        "retry-rejected-status-at-once": (
            "JobStatusController._push",
            "max(at, self._retry_at.get(key, at))",
            "at",
            "tests/controllers/job_status/test_controller.py",
        ),
    },
    "controller.controllers.job_status.pending_status": {
        "write-status-of-reporting-cluster": (
            "can_publish",
            "job is None or job.deleting or job.published_reason is None",
            "job is None",
            "tests/controllers/job_status/test_pending_status.py",
        ),
    },
    "controller.controllers.queue_status.counts": {
        "repeat-queue-status": (
            "status_patch",
            "queue.counts == counts and queue.has_state",
            "False",
            "tests/controllers/queue_status/test_counts.py",
        ),
    },
    "webhook.bindings": {
        "suspend-nothing": (
            "review_binding",
            "spec.resource.template_kind() not in gated_kinds.kinds",
            "True",
            "tests/webhook/test_resourcebindings.py",
        ),
        "overwrite-suspension": (
            "suspend",
            "Operation('add', '/spec/suspension/scheduling', True)",
            "Operation('add', '/spec/suspension', {'scheduling': True})",
            "tests/webhook/test_resourcebindings.py",
        ),
        "keep-preset-clusters": ("suspend", "if spec.clusters:", "if False:", "tests/webhook/test_resourcebindings.py"),
    },
    "controller.engine.state.workload_index": {
        "admit-hyperjob-part-alone": (
            "HyperJobGangs.missing",
            "max(gang.minimum - self._started.get(gang, 0), 0)",
            "0",
            "tests/engine/test_gangs.py",
        ),
    },
    "controller.controllers.hyperjob.reconciler": {
        "keep-finished-part-that-moved": (
            "_retained",
            "not has_moved(part, placement.get(part.name))",
            "True",
            "tests/controllers/hyperjob/test_lifecycle.py",
        ),
        "recreate-parts-of-finished-hyperjob": (
            "diff_objects",
            "part.phase in TERMINAL",
            "False",
            "tests/controllers/hyperjob/test_reconciler.py",
        ),
        "create-job-before-policy": (
            "_manifests_to_apply",
            "((child.policy, policy), (child.job, job))",
            "((child.job, job), (child.policy, policy))",
            "tests/controllers/hyperjob/test_reconciler.py",
        ),
    },
    "controller.controllers.hyperjob.observed": {
        "adopt-foreign-objects": (
            "ObservedChild.is_owned_by",
            "self.owner == uid",
            "True",
            "tests/controllers/hyperjob/test_reconciler.py",
        ),
    },
}

MUTANTS = tuple(Mutant(name, module, *row) for module, rows in _MUTANTS.items() for name, row in rows.items())
