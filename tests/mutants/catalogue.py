"""Catalogue of mutations of the controller, each with the test that must fail because of it.

A mutation replaces a text that occurs exactly once in a file.
"""

from dataclasses import dataclass

_KILLS = "tests/faults/test_kill_points.py::test_scenario_without_faults_has_its_number_of_writes"
_OBJECTS = "tests/faults/test_objects.py::"
_ORDER = f"{_OBJECTS}test_freed_capacity_goes_to_the_first_in_order"
_ANSWERS = "tests/faults/test_api_responses.py::"
_LEADERS = "tests/faults/test_leaders.py::"
_WATCHES = "tests/faults/test_watches.py::test_every_watch_fault_is_recovered"
_SERVERS = "tests/faults/test_servers.py::"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation of one source file."""

    name: str
    file: str
    before: str
    after: str
    caught_by: str
    """The test that must fail."""


MUTANTS = (
    # -- patches --------------------------------------------------
    Mutant(
        "omit-admission-record",
        "controller/patches.py",
        "if clusters else ()),\n        *_set_record(binding, record),\n",
        "if clusters else ()),\n",
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "replace-whole-suspension",
        "controller/patches.py",
        '        _Operation("replace", _SCHEDULING_SUSPENDED, False),\n        *([_Operation("add"',
        '        _Operation("replace", _SUSPENSION, {"scheduling": False}),\n        *([_Operation("add"',
        f"{_OBJECTS}test_mutating_policy_of_others_causes_no_extra_writes",
    ),
    Mutant(
        "ignore-existing-annotations",
        "controller/patches.py",
        "    if binding.has_annotations:\n        return (_Operation",
        "    if False:\n        return (_Operation",
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "replace-all-annotations",
        "controller/patches.py",
        '        return (_Operation("add", _ANNOTATION, record),)\n',
        '        return (_Operation("add", _ANNOTATIONS, {ADMISSION: record}),)\n',
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "skip-uid-test",
        "controller/patches.py",
        '    return _test_uid(binding), _Operation("test", _SCHEDULING_SUSPENDED, True)\n',
        '    return (_Operation("test", _SCHEDULING_SUSPENDED, True),)\n',
        "tests/test_patches.py",
    ),
    Mutant(
        "skip-suspension-test",
        "controller/patches.py",
        '    return _test_uid(binding), _Operation("test", _SCHEDULING_SUSPENDED, True)\n',
        "    return (_test_uid(binding),)\n",
        "tests/test_patches.py",
    ),
    Mutant(
        "omit-clusters",
        "controller/patches.py",
        '        *([_Operation("add", _CLUSTERS, clusters)] if clusters else ()),\n',
        "",
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "ignore-placement-without-admission",
        "controller/writes.py",
        "    if BindingCondition.PLACED_WITHOUT_ADMISSION in conditions:\n",
        "    if False:\n",
        f"{_KILLS}[mended]",
    ),
    Mutant(
        "ignore-resuspended-binding",
        "controller/writes.py",
        "        BindingCondition.RESUSPENDED_AFTER_ADMISSION in conditions\n        or ",
        "        ",
        f"{_KILLS}[mended]",
    ),
    # -- results of writes ------------------------------------------
    Mutant(
        "do-not-assume-decisions",
        "controller/loop.py",
        "        self._store.assume(step.uid, outcome)\n",
        "        if step.effect != 'admit':\n            self._store.assume(step.uid, outcome)\n",
        f"{_ANSWERS}test_event_during_admission_write_frees_no_capacity",
    ),
    Mutant(
        "treat-unknown-write-as-failed",
        "controller/actuator.py",
        "time.monotonic() + self._api.timeouts.write + self._api.timeouts.grace\n",
        "0\n                return self._withdraw(errand.write, str(error))\n",
        f"{_ANSWERS}test_admission_with_lost_reply_keeps_its_capacity",
    ),
    Mutant(
        "retry-rejected-write-at-once",
        "controller/actuator.py",
        "        retry_state.until = self._clock() + round(retry_state.backoff.next_delay() * 1000)\n",
        "        retry_state.until = self._clock()\n",
        f"{_ANSWERS}test_permanent_rejection_backs_off_and_is_reported",
    ),
    Mutant(
        "treat-429-as-rejection",
        "controller/actuator.py",
        "            case TooManyRequests() | Unreachable(sent=False):\n",
        "            case Unreachable(sent=False):\n",
        f"{_ANSWERS}test_retry_after_is_honoured_and_keeps_the_order",
    ),
    Mutant(
        "stop-on-any-api-error",
        "controller/actuator.py",
        "        except ApiError as error:\n            self._count(pending.write, error.metric_label, began)\n",
        "        except NotFound as error:\n            self._count(pending.write, error.metric_label, began)\n",
        f"{_ANSWERS}test_each_error_response_to_one_job_is_recovered",
    ),
    # -- watches and caches -----------------------------------------------------
    Mutant(
        "plan-before-caches-are-synced",
        "controller/loop.py",
        "        while missing := [cache for cache in self._caches.values() if not cache.synced.is_set()]:\n",
        "        while missing := []:\n",
        "tests/faults/test_watches.py::test_no_decision_before_all_lists_are_applied",
    ),
    Mutant(
        "retry-expired-watch",
        "controller/cache/informer.py",
        "                if isinstance(error, Gone) or error.status == HTTPStatus.BAD_REQUEST:\n",
        "                if error.status == HTTPStatus.BAD_REQUEST:\n",
        "tests/cache/test_informer.py",
    ),
    Mutant(
        "ignore-silent-watch",
        "controller/cache/informer.py",
        "idle_timeout=self._options.silence) as lines:",
        "idle_timeout=3600) as lines:",
        f"{_WATCHES}[silence]",
    ),
    Mutant(
        "skip-cache-audit",
        "controller/cache/informer.py",
        "                    await self._compare()\n",
        "",
        "tests/faults/test_watches.py::test_binding_with_a_lost_create_event_is_found",
    ),
    Mutant(
        "skip-version-comparison",
        "controller/cache/cache_audit.py",
        "held < int(meta.resource_version):\n",
        "False:\n",
        "tests/faults/test_watches.py::test_audit_finds_lost_changes_of_every_kind",
    ),
    Mutant(
        "ignore-restored-backup",
        "controller/cache/informer.py",
        "        if is_older(version, self.version):\n            # The server",
        "        if False:\n            # The server",
        f"{_SERVERS}test_restored_backup_is_accepted",
    ),
    Mutant(
        "keep-objects-missing-from-list",
        "controller/cache/collection.py",
        "        for key in [key for key in self._objects if key not in listed]:\n",
        "        for key in ():\n",
        "tests/cache/test_store.py",
    ),
    Mutant(
        "accept-outdated-event",
        "controller/cache/collection.py",
        "(before is not None and before.resource_version > obj.resource_version)",
        "False",
        "tests/cache/test_store.py",
    ),
    Mutant(
        "accept-response-after-deletion",
        "controller/cache/collection.py",
        "        if obj.uid in self._deleted_uids or ",
        "        if ",
        "tests/cache/test_store.py",
    ),
    # -- building workloads -----------------------------------------------
    Mutant(
        "charge-finished-jobs",
        "controller/cache/workload_builder.py",
        "    if _is_finished(binding):\n",
        "    if False:\n",
        f"{_KILLS}[chain]",
    ),
    Mutant(
        "admit-deleting-objects",
        "controller/cache/workload_builder.py",
        "    leaving = binding.deleting or (template is not None and template.deleting)\n",
        "    leaving = False\n",
        f"{_OBJECTS}test_terminating_binding_is_not_admitted_but_charged",
    ),
    Mutant(
        "accept-record-of-another-binding",
        "controller/api/record.py",
        "    if record.uid != uid:\n",
        "    if False:\n",
        f"{_OBJECTS}test_forged_record_admits_nothing",
    ),
    Mutant(
        "ignore-job-priority",
        "controller/cache/workload_builder.py",
        "        priority=context.priorities.value(priority_class),\n",
        "        priority=0,\n",
        _ORDER,
    ),
    Mutant(
        "ignore-queue-priority",
        "controller/cache/translate/queues.py",
        "        priority=spec.priority,\n",
        "",
        _ORDER,
    ),
    Mutant(
        "admit-youngest-first",
        "controller/cache/workload_builder.py",
        "    return template.created_at if template else binding.created_at\n",
        "    return -template.created_at if template else binding.created_at\n",
        _ORDER,
    ),
    Mutant(
        "ignore-queue-capability",
        "controller/cache/translate/queues.py",
        '        capability=parse_resources(spec.capability, "spec.capability"),\n',
        "",
        f"{_KILLS}[gangs]",
    ),
    Mutant(
        "treat-closed-queue-as-open",
        "controller/cache/translate/queues.py",
        "    return _STATES.get(queue.status.state, QueueState.UNKNOWN)\n",
        "    return QueueState.OPEN\n",
        f"{_KILLS}[ebb]",
    ),
    Mutant(
        "treat-unready-cluster-as-ready",
        "controller/cache/translate/clusters.py",
        '        ready=any(condition.type == "Ready" and condition.status == "True" for ',
        "        ready=True or any(condition.status for ",
        f"{_OBJECTS}test_reduced_capacity_evicts_and_admits_nothing",
    ),
    Mutant(
        "count-one-pod-per-task",
        "controller/cache/translate/jobs.py",
        "        task.replicas,\n",
        "        min(task.replicas, 1),\n",
        f"{_KILLS}[gangs]",
    ),
    # -- leader election -------------------------------------------------------
    Mutant(
        "always-lead",
        "controller/leader_election.py",
        "        return self._writes_from <= self._clock() < self._leads_until\n",
        "        return True\n",
        f"{_LEADERS}test_standby_takes_over_at_once_after_a_release",
    ),
    Mutant(
        "never-lose-leadership",
        "controller/leader_election.py",
        "        self._leads_until = begun + self._timings.renew\n",
        '        self._leads_until = float("inf")\n',
        f"{_LEADERS}test_leader_that_cannot_renew_steps_down_in_time",
    ),
    Mutant(
        "never-release-lease",
        "controller/__main__.py",
        "                await self.election.release()\n",
        "                pass\n",
        f"{_LEADERS}test_standby_takes_over_at_once_after_a_release",
    ),
    Mutant(
        "release-lease-without-retry",
        "controller/leader_election.py",
        "                while why := await self._try_release():",
        "                if why := await self._try_release():",
        f"{_LEADERS}test_release_is_retried_after_a_late_renewal",
    ),
    Mutant(
        "ignore-unconfirmed-lease",
        "controller/leader_election.py",
        "        if math.isinf(self._writes_from):\n",
        "        if not (before.lease and self._candidate.holds(before.lease)):\n",
        f"{_LEADERS}test_lease_acquired_without_a_reply_is_used",
    ),
    Mutant(
        "do-not-report-lost-leadership",
        "controller/leader_election.py",
        "        if not self.leads:\n",
        "        if False:\n",
        "tests/test_leader_election.py::test_lapse_is_notified_before_late_renewal",
    ),
    Mutant(
        "roll-back-for-observed-affinity",
        "controller/loop.py",
        "        self._store.back_off(facts.uid, Refusal(Reason.STARTUP_BACKOFF, subject=why))\n",
        "        self._store.roll_back(facts.uid, Refusal(Reason.STARTUP_BACKOFF, subject=why))\n",
        "tests/test_loop.py::test_c1_affinity_term_is_written_after_pending_write",
    ),
    Mutant(
        "never-acquire-expired-lease",
        "controller/lease.py",
        "    return now >= observed.since + max(lease.seconds, timings.lease)\n",
        "    return False\n",
        f"{_LEADERS}test_dead_leader_is_followed_after_lease_expiry",
    ),
    Mutant(
        "write-without-takeover-delay",
        "controller/lease.py",
        "    return timings.write\n",
        "    return 0\n",
        "tests/test_lease.py",
    ),
    Mutant(
        "acquire-lease-without-test",
        "controller/leader_election.py",
        "    return msgspec.json.encode([test, *sets])\n",
        "    return msgspec.json.encode(sets)\n",
        "tests/test_leader_election.py",
    ),
    # -- gangs -----------------------------------------
    Mutant(
        "reserve-capacity-twice",
        "controller/engine/reservation_placement.py",
        "        placer.assign(charges)\n",
        "        pass\n",
        "tests/engine/test_reservations.py",
    ),
    Mutant(
        "admit-nominated-part-alone",
        "controller/engine/nominations.py",
        "gang is None or state.gangs.missing(gang) <= 1:",
        "True:",
        "tests/engine/test_gang_preemption.py",
    ),
    Mutant(
        "nominate-one-part-only",
        "controller/engine/preemption_pass.py",
        "for uid, cluster in plan.clusters.items():",
        "for uid, cluster in [*plan.clusters.items()][:1]:",
        "tests/engine/test_gang_preemption.py",
    ),
    # -- observability ----------------------------------------------------
    Mutant(
        "omit-pending-reasons",
        "controller/state_collector.py",
        '"reason", reasons.items())',
        '"reason", ())',
        f"{_KILLS}[gangs]",
    ),
    Mutant(
        "stop-on-full-disk",
        "controller/observability.py",
        "        with contextlib.suppress(OSError, ValueError):\n",
        "        with contextlib.suppress(ValueError):\n",
        "tests/faults/test_process_environment.py::test_controller_works_with_scarce_resources[no-disk-for-logs]",
    ),
)
