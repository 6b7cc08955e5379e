"""Joins the cached objects into queues, clusters and workloads, and sends changes to the engine's state.

Level-triggered: events may arrive in any order; the current values of changed objects are computed when the engine's
state is updated. The store decides nothing and writes nothing.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import islice
from typing import Literal

from controller.api.configuration import VolcanoGlobalConfiguration, configuration_revision
from controller.cache.assumed_writes import AssumedEviction, AssumedOutcome, AssumedWrites
from controller.cache.data_requirements import NO_DATA, DataRequirement, DataRequirements
from controller.cache.event_handler import EventHandler
from controller.cache.hyperjobs import HyperJobs
from controller.cache.index import Index
from controller.cache.integrations import Integrations
from controller.cache.object_collections import ObjectCollections
from controller.cache.objects import (
    REPAIRABLE,
    VOLCANO_JOB,
    BindingCondition,
    CachedBinding,
    CachedCluster,
    CachedHyperJob,
    CachedPriorityClass,
    CachedQueue,
    CachedTemplate,
    StatusReason,
    TemplateKey,
    is_aborted,
    left_clusters,
    may_be_aborted,
    was_evicted_unplaced,
)
from controller.cache.requests import (
    DispatchedRequests,
    Priorities,
    RequestsResolver,
    RequirementsBuilder,
    claim_requests,
)
from controller.cache.start_failures import ExcludedClusters, StartFailures, startup_backoff
from controller.cache.translate.policy import translate_policy
from controller.cache.unbound_jobs import NameCollisions, UnboundJobs, binding_key, colliding_job_key
from controller.cache.workload_builder import (
    BuildContext,
    BuildResult,
    LocalState,
    as_quarantined,
    build_from_record,
    build_workload,
    needs_admission,
)
from controller.engine.lifecycle.startup import max_backoff_ms
from controller.engine.reasons import Refusal
from controller.engine.state.clusters import ClusterName
from controller.engine.state.estimates import Estimate
from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import Workload, WorkloadUid

_NO_CONDITIONS: frozenset[BindingCondition] = frozenset()

#: A workload of which the evaluation failed is evaluated again after this time, in milliseconds.
QUARANTINE_MS = 60_000
#: How long the webhook may still gate by the previous configuration, in milliseconds: each pod reads its own copy of
#: the file.
_WEBHOOK_DELAY_MS = 300_000


class Store(ObjectCollections):
    """Caches the newest version of every watched object, and tracks what the engine's state has not received yet.

    The engine's state must be updated only while ``is_complete``.
    """

    def __init__(self, configuration: VolcanoGlobalConfiguration | None = None) -> None:
        self.configuration = configuration or VolcanoGlobalConfiguration()
        super().__init__(Integrations(self.configuration))
        self.on_change: list[Callable[[], None]] = []
        """Called after a change that the engine has not received yet."""
        self.on_binding: list[Callable[[CachedBinding | None, CachedBinding | None], None]] = []
        """Called with a binding as it was and as it is now."""
        self.on_clusters: list[Callable[[], None]] = []
        """Called after a cluster joined or left."""
        self.on_conditions: list[Callable[[CachedBinding, frozenset[BindingCondition]], None]] = []
        """Called with the new conditions of a binding."""
        self.on_name_collision: list[Callable[[CachedTemplate, CachedBinding], None]] = []
        """Called with a Volcano Job that cannot get a binding, and the binding that has its name."""
        self.on_status_removed: list[Callable[[TemplateKey], None]] = []
        """Called with a Volcano Job that has lost the status that the controller, or its clusters, had written."""
        self.on_error: list[Callable[[WorkloadUid, Exception], None]] = []
        """Called with a workload that cannot be built: it keeps its charge and is not admitted for a while."""
        self.with_run_time: Callable[[Workload], Workload] | None = None
        """Returns a workload with its expected run time, for backfill (O9)."""
        self._name_collisions = NameCollisions()
        self.revision = configuration_revision(self.configuration)
        self._hyperjobs = HyperJobs()
        self._data = DataRequirements()
        self._by_uid: dict[WorkloadUid, CachedBinding] = {}
        self._uids_by_template: Index[TemplateKey, WorkloadUid] = Index()
        self.unbound_jobs = UnboundJobs()
        self._assumed = AssumedWrites()
        self._quarantined: dict[WorkloadUid, tuple[str, int]] = {}
        """Quarantined workloads: the error, and until when they are not evaluated again."""
        self._sent_again_at = dict[WorkloadUid, int]()
        self._replaced_integrations: list[tuple[Integrations, int | None]] = []
        """Integrations of earlier configurations, and until when the webhook may gate by them; ``None`` until that is
        determined."""
        self._requirements = RequirementsBuilder()
        self._requests = RequestsResolver(claim_requests(self.configuration))
        self._dispatched = DispatchedRequests()
        self.start_failures = StartFailures()
        self.priorities = Priorities()
        """Values of the PriorityClasses, as of the last synchronization."""
        self._evicted_by_others: set[WorkloadUid] = set()
        """Workloads with a record that admits them, observed suspended and without clusters."""
        self._commanded: dict[WorkloadUid, Literal["abort", "resume"]] = {}
        """Workloads that a Command aborts or resumes, until the record says so."""
        self.conditions: dict[WorkloadUid, frozenset[BindingCondition]] = {}
        """Conditions of bindings at the last update of the engine's state."""
        self._repairable: dict[WorkloadUid, None] = {}
        self._can_estimate, self._policy_changed = False, True
        self._estimates: list[Estimate] = []
        self._changed_workloads: dict[WorkloadUid, None] = {}
        self._changed_queues: dict[QueueName, None] = {}
        self._changed_clusters = dict[ClusterName, None]()
        self._changed_classes: dict[str, None] = {}

    # -- queries ---------------------------------------------------------

    @property
    def name_collisions(self) -> Iterable[tuple[CachedTemplate, CachedBinding]]:
        """Volcano Jobs that cannot get a binding, each with the binding that has its name."""
        return [(job, binding) for job, binding in self._name_collisions if binding.uid in self._by_uid]

    @property
    def repairable(self) -> Iterable[WorkloadUid]:
        """Bindings with a repairable condition."""
        return tuple(self._repairable)

    def binding(self, uid: WorkloadUid) -> CachedBinding | None:
        """Return the newest version of a binding."""
        return self._by_uid.get(uid)

    def template_of(self, uid: WorkloadUid) -> CachedTemplate | None:
        """Return the newest version of the object that the binding of a workload names as its template."""
        binding = self._by_uid.get(uid)
        return self.template(binding) if binding is not None else None

    def binding_of(self, template: TemplateKey) -> CachedBinding | None:
        """Return the binding of a template, ``None`` if it has none."""
        return next((self._by_uid[uid] for uid in self._uids_by_template.of(template)), None)

    # -- updates ---------------------------------------------------------

    def configure(self, configuration: VolcanoGlobalConfiguration) -> bool:
        """Apply *configuration*; return whether bindings and configured templates must be listed again.

        They must when the managed kinds change, because fields that no integration needs are not cached.
        """
        before, integrations, claims = self.configuration, Integrations(configuration), claim_requests(configuration)
        must_list = integrations != self._integrations
        has_new_claims = claims != claim_requests(before)
        if has_new_claims:
            self._requests = RequestsResolver(claims)
        if must_list or has_new_claims or _workload_settings(configuration) != _workload_settings(before):
            self.mark_changed(self._by_uid)
        if must_list:
            self._add_replaced(self._integrations)
        self.configuration, self.revision = configuration, configuration_revision(configuration)
        self._requirements.with_node_claims = self._is_estimating
        self._integrations = self._bindings.integrations = integrations
        self._policy_changed = True
        self._notify_change()
        return must_list

    def note_former_configuration(self, configuration: VolcanoGlobalConfiguration) -> None:
        """Remember the configuration of a former process, by which the webhook may have suspended bindings."""
        integrations = Integrations(configuration)
        known = [self._integrations, *(earlier for earlier, _ in self._replaced_integrations)]
        if integrations not in known:
            self._add_replaced(integrations)
            self.mark_changed(self._by_uid)
            self._notify_change()

    def _add_replaced(self, integrations: Integrations) -> None:
        others = [entry for entry in self._replaced_integrations if entry[0] != integrations]
        self._replaced_integrations = [*others, (integrations, None)]

    def _notify_change(self) -> None:
        for handler in self.on_change:
            handler()

    def enable_node_estimates(self) -> None:
        """Allow node estimates, where the configuration enables them: the engine's queries are answered."""
        self._can_estimate = True
        self._requirements.with_node_claims = self._is_estimating
        self._policy_changed = True

    @property
    def _is_estimating(self) -> bool:
        return self._can_estimate and self.configuration.node_estimates == "Estimator"

    def on_estimate(self, estimate: Estimate) -> None:
        """Apply the answer of a cluster's estimator."""
        self._estimates.append(estimate)
        self._notify_change()

    def expect_hyperjobs(self) -> None:
        """Expect HyperJobs: a Job that refers to a HyperJob stays pending until the HyperJob lists it."""
        self._hyperjobs.expect()

    def hyperjob_changed(self, uid: str, cached: CachedHyperJob | None) -> None:
        """Update the parts of a HyperJob, ``None`` if it was deleted or cannot be read."""
        if self._hyperjobs.update(uid, cached):
            self._mark_templates_changed(self._hyperjobs.templates_of(uid))
            self._notify_change()

    def data_changed(self, key: TemplateKey, required: DataRequirement | None) -> None:
        """Update what the DataSourceClaims of a workload or HyperJob require; ``None`` if it has none."""
        if self._data.update(key, required):
            self._mark_data_changed([key])
            self._notify_change()

    def data_requirement(self, binding: CachedBinding) -> DataRequirement:
        """Return what the DataSourceClaims of a workload, and of its HyperJob, require."""
        if not self._data:
            return NO_DATA
        names = (cluster.key for cluster in self.clusters)
        return self._data.of(binding.template, self.template(binding), self._hyperjobs.by_uid, names)

    def hyperjob_data(self, hyperjob: TemplateKey) -> DataRequirement:
        """Return what the DataSourceClaims of a HyperJob require of all its parts."""
        return self._data.of_hyperjob(hyperjob)

    def _mark_data_changed(self, keys: Iterable[TemplateKey]) -> None:
        for key in keys:
            self._mark_templates_changed([key])
            self._mark_templates_changed(self._hyperjobs.templates_of_key(key))

    def _mark_templates_changed(self, keys: Iterable[TemplateKey]) -> None:
        for key in keys:
            self.mark_changed(self._uids_by_template.of(key))

    def assume(self, uid: WorkloadUid, outcome: AssumedOutcome) -> None:
        """Assume *outcome*: it was decided and is being written. The engine's state includes it already."""
        self._assumed.assume(uid, outcome)
        if isinstance(outcome, AssumedEviction):
            self.start_failures.retry(uid, outcome.failed_clusters)
            if (binding := self._by_uid.get(uid)) is not None:
                # Shares the failed start now: a workload may end in one of the clusters before the write is observed.
                self._exclusions(binding)

    def _resend(self, uid: WorkloadUid) -> None:
        self._changed_workloads[uid] = None
        self._notify_change()

    def has_changed(self, uid: WorkloadUid) -> bool:
        """Whether a workload has changed since the engine's state was last updated."""
        return uid in self._changed_workloads

    def mark_changed(self, uids: Iterable[WorkloadUid]) -> None:
        """Send *uids* to the engine's state again at the next update, even if they have not changed."""
        self._changed_workloads.update(dict.fromkeys(uids))

    def mark_all_changed(self) -> None:
        """Send all objects again at the next update, for example because the engine's state is a new one."""
        self._changed_queues.update(dict.fromkeys(cached.key for cached in self.queues))
        self._changed_clusters.update(dict.fromkeys(cached.key for cached in self.clusters))
        self.mark_changed(self._by_uid)
        self._notify_change()

    def confirm(self, uid: WorkloadUid, resource_version: int) -> None:
        """Keep the assumed outcome for *uid* until the version that its write returned, or a later one, is observed."""
        binding = self._by_uid.get(uid)
        if binding is None:
            self._assumed.forget(uid)
        else:
            self._assumed.confirm(uid, resource_version, observed=binding.resource_version)
        self._resend(uid)

    def roll_back(self, uid: WorkloadUid, refusal: Refusal | None) -> None:
        """Drop the assumed outcome for *uid*: its write has failed; with a refusal, the workload backs off."""
        self._assumed.roll_back(uid, refusal if uid in self._by_uid else None)
        self._resend(uid)

    def back_off(self, uid: WorkloadUid, refusal: Refusal) -> None:
        """Let *uid* back off for *refusal*: its decision is not written, and writes in progress stay assumed."""
        if uid in self._by_uid:
            self._assumed.back_off(uid, refusal)
        self._resend(uid)

    def quarantine(self, uid: WorkloadUid, why: str, until: int) -> None:
        """Quarantine *uid* *until* then, because its evaluation failed: it is not admitted and keeps its charge."""
        if uid in self._by_uid:
            self._quarantined[uid] = why, until
        self._resend(uid)

    def send_again_at(self, uid: WorkloadUid, at: int) -> None:
        """Send *uid* to the engine's state again *at* that time, because a decision about it cannot be written now."""
        self._sent_again_at[uid] = at

    @property
    def next_retry_at(self) -> int | None:
        """Time at which the next workload is sent to the engine's state again without a change."""
        ends = (until for _, until in self._quarantined.values())
        return min((*ends, *self._sent_again_at.values()), default=None)

    def drop_unsent(self, is_in_progress: Callable[[WorkloadUid], bool]) -> None:
        """Drop all assumed writes that were never sent, or are lost."""
        for uid in self._assumed:
            if not is_in_progress(uid) and self._assumed.drop_unsent(uid):
                self._changed_workloads[uid] = None
        self._notify_change()

    def resume(self, template: TemplateKey, template_uid: str = "") -> bool:
        """Let aborted workloads of a template be retried; return whether there are any.

        A *template_uid* excludes those of another template of this name.
        """
        result = []
        for binding in self._bindings_of(template, template_uid):
            commanded, is_written = self._commanded.get(binding.uid), bool(self._assumed.outcomes(binding.uid))
            if is_aborted(binding) or (commanded == "abort" and is_written):
                # Its abort is recorded, or perhaps being written.
                self._commanded[binding.uid] = "resume"
            elif commanded is not None and not is_written:
                del self._commanded[binding.uid]
            else:
                continue
            result.append(binding.uid)
        self.mark_changed(result)
        self._notify_change()
        return bool(result)

    def forget_commands(self) -> None:
        """Forget which workloads Commands abort or resume, after losing leadership."""
        self.mark_changed(self._commanded)
        self._commanded.clear()

    def abort(self, template: TemplateKey, template_uid: str = "") -> bool:
        """Abort the workloads of a template that are pending or were admitted here; return whether there are any.

        A *template_uid* excludes those of another template of this name.
        """
        result = [
            binding.uid
            for binding in self._bindings_of(template, template_uid)
            if needs_admission(binding, self._integrations)
            and (may_be_aborted(binding) or self._commanded.get(binding.uid) == "resume")
        ]
        self._commanded |= dict.fromkeys(result, "abort")
        self.mark_changed(result)
        self._notify_change()
        return bool(result)

    def _bindings_of(self, template: TemplateKey, template_uid: str) -> list[CachedBinding]:
        """Return the bindings of a template; a *template_uid* excludes those of another template of this name."""
        bindings = (self._by_uid[uid] for uid in self._uids_by_template.of(template))
        return [binding for binding in bindings if template_uid in {"", binding.template_uid}]

    def sync_to(self, state: EventHandler, now: int, *, most: int | None = None) -> bool:
        """Send changes to the engine's state, of *most* workloads at once; return whether all changes are sent."""
        for uid in [uid for uid, (_, until) in self._quarantined.items() if until <= now]:
            del self._quarantined[uid]
            self._changed_workloads[uid] = None
        for uid in [uid for uid, at in self._sent_again_at.items() if at <= now]:
            del self._sent_again_at[uid]
            self._changed_workloads[uid] = None
        self._sync_priority_classes()
        if self._policy_changed:
            state.policy_changed(translate_policy(self.configuration, can_estimate=self._can_estimate))
            self._policy_changed = False
        for name in sorted(self._changed_queues):
            queue = self.queues.get(name)
            if queue is None:
                state.queue_removed(name)
            else:
                state.queue_changed(queue.queue)
        self._changed_queues.clear()
        # Workloads before clusters: external usage is a cluster's summary less the workloads that run there.
        if not self._sync_workloads(state, now, most):
            return False
        for cluster_name in sorted(self._changed_clusters):
            cluster = self.clusters.get(cluster_name)
            if cluster is None:
                state.cluster_removed(cluster_name)
            else:
                state.cluster_changed(cluster.cluster, now)
        self._changed_clusters.clear()
        for estimate in self._estimates:
            state.cluster_estimated(estimate, now)
        self._estimates.clear()
        return True

    def _sync_workloads(self, state: EventHandler, now: int, most: int | None) -> bool:
        context = BuildContext(
            integrations=self._integrations,
            priorities=self.priorities,
            default_queue=QueueName(self.configuration.default_queue),
            requirements=self._requirements,
            requests=self._requests,
            dispatched_requests=self._dispatched,
            hyperjobs=self._hyperjobs.by_uid,
            finished_after=now - self.configuration.cluster_status_settle_period // timedelta(milliseconds=1),
            replaced_integrations=self._recently_replaced(now),
        )
        shared = self.start_failures.shared
        while self._changed_workloads or shared.changed_namespaces:
            if namespaces := shared.pop_changed_namespaces():
                alike = (binding for binding in self._by_uid.values() if binding.template.namespace in namespaces)
                self._changed_workloads.update({binding.uid: None for binding in alike if not binding.targets})
            # Only a slice is sorted: sorting all that remain in each slice would take minutes for a million.
            changed = sorted(islice(self._changed_workloads, most))
            for uid in changed:
                del self._changed_workloads[uid]
            is_last = not self._changed_workloads
            if is_last:
                self._changed_workloads = {}  # an emptied dict would keep its memory
            for uid in changed:
                self._sync_workload(state, uid, context=context, now=now)
            if not is_last:
                return False
        return True

    def _recently_replaced(self, now: int) -> list[Integrations]:
        """Return the integrations of earlier configurations by which the webhook may still gate."""
        dated = [
            (earlier, now + _WEBHOOK_DELAY_MS if until is None else until)
            for earlier, until in self._replaced_integrations
        ]
        self._replaced_integrations = [(earlier, until) for earlier, until in dated if now < until]
        return [earlier for earlier, _ in self._replaced_integrations]

    def _sync_workload(self, state: EventHandler, uid: WorkloadUid, *, context: BuildContext, now: int) -> None:
        known = self.conditions.pop(uid, _NO_CONDITIONS)
        self._repairable.pop(uid, None)
        binding = self._by_uid.get(uid)
        if binding is None:
            self.start_failures.forget(uid)
            self._dispatched.forget(uid)
            self._evicted_by_others.discard(uid)
            state.workload_removed(uid, now)
            return
        if not binding.is_suspended or binding.record is None or not binding.record.admits:
            self._evicted_by_others.discard(uid)
        result = self._build(binding, context, now, known)
        if BindingCondition.EVICTED_BY_OTHERS in result.conditions:
            self._evicted_by_others.add(uid)
        if result.conditions:
            self.conditions[uid] = result.conditions
            if result.conditions & REPAIRABLE:
                self._repairable[uid] = None
            if new := result.conditions - known:
                for on_conditions in self.on_conditions:
                    on_conditions(binding, new)
        self.start_failures.update(binding, result.workload)
        if result.workload is None:
            # Without templates of its kind, whether it was deleted is unknown: its pods may run on.
            is_released = not result.is_managed or binding.template.kind not in self._templates
            state.workload_removed(uid, now, is_released=is_released)
        else:
            is_known = self.configuration.backfill.enabled or bool(self.configuration.advance_reservations)
            workload, with_run_time = result.workload, self.with_run_time if is_known else None
            state.workload_changed(workload if with_run_time is None else with_run_time(workload), now)

    def _build(
        self, binding: CachedBinding, context: BuildContext, now: int, known: frozenset[BindingCondition]
    ) -> BuildResult:
        """Build the workload of *binding*; if that fails, it is quarantined, so that others are not blocked.

        It is built again after a while, or when it changes.
        """
        uid, (why, _) = binding.uid, self._quarantined.get(binding.uid, ("", 0))
        try:
            local_state = self._local_state(binding, now, known)
            built = build_workload(binding, self.template(binding), context=context, local_state=local_state)
        except Exception as error:  # noqa: BLE001 -- tenants write the objects; one must not block all
            if not why:
                self.send_again_at(uid, now + QUARANTINE_MS)
                for on_error in self.on_error:
                    on_error(uid, error)
            return build_from_record(binding, context, self._assumed.outcomes(uid), type(error).__name__)
        return as_quarantined(built, why) if why else built

    def _local_state(self, binding: CachedBinding, now: int, known: frozenset[BindingCondition]) -> LocalState:
        uid = binding.uid
        evicted_at = binding.record.evicted_at if binding.record is not None else None
        placeable_until = self._assumed.placeable_until(
            uid, now, evicted=was_evicted_unplaced(binding), evicted_at=evicted_at
        )
        excluded = self._exclusions(binding)
        return LocalState(
            self._assumed.outcomes(uid),
            backoff=self._backoff(binding, now),
            placeable_until=placeable_until,
            retry_requested=self._commanded.get(uid) == "resume",
            abort_requested=self._commanded.get(uid) == "abort",
            has_run=self.start_failures.has_run(binding),
            has_run_before=self.start_failures.has_run_before(binding),
            excluded_clusters=excluded.names,
            retryable_clusters=excluded.retryable,
            data=self.data_requirement(binding),
            has_leftover_work=self._has_leftover_work(binding, now),
            evicted_by_others=uid in self._evicted_by_others,
            was_adopted=BindingCondition.ADOPTED in known,
            must_resume=BindingCondition.SUSPENDED_BUT_NOT_MANAGED in known,
        )

    def _exclusions(self, binding: CachedBinding) -> ExcludedClusters:
        """Return where a workload is not tried, because it or an equal one did not start there (R1)."""
        outcomes = self._assumed.outcomes(binding.uid)
        return self.start_failures.exclusions(
            binding, outcomes, lambda: self._requests.resolve(binding, self.template(binding))
        )

    def _has_leftover_work(self, binding: CachedBinding, now: int) -> bool:
        """Whether a ready cluster reports a workload that Karmada should have removed there by *now*."""
        left = left_clusters(binding)
        removal = self._assumed.removal(binding.uid, binding.generation, now, leaving=bool(left))
        if removal is None:
            return False
        if removal.until <= now:
            reporting = [self.clusters.get(name) for name in left]
            if any(cached is not None and cached.cluster.is_usable for cached in reporting):
                return True
            # An unreachable cluster removes nothing.
            removal.restart(binding.generation, now)
        self.send_again_at(binding.uid, removal.until)
        return False

    def _backoff(self, binding: CachedBinding, now: int) -> Refusal | None:
        """Return why a workload backs off at *now*, after a failed write or a failed start."""
        assumed = self._assumed.backoff(binding.uid, now)
        if binding.record is None or binding.record.back_off_until is None:
            return assumed
        timeout = self.configuration.startup_timeout // timedelta(milliseconds=1)
        paused = startup_backoff(binding.record, now, max_backoff_ms(timeout))
        holds = [refusal for refusal in (assumed, paused) if refusal is not None]
        return max(holds, key=lambda refusal: refusal.until or 0, default=None)

    # -- changes of the collections --------------------------------------

    def _binding_changed(self, before: CachedBinding | None, after: CachedBinding | None) -> None:
        for on_binding in self.on_binding:
            on_binding(before, after)
        if before is not None:
            self.start_failures.binding_changed(before, after)
        if before is not None and (after is None or before.template != after.template or before.uid != after.uid):
            self._uids_by_template.discard(before.template, before.uid)
            self._track_unbound(before.template)
        if before is not None and (after is None or before.uid != after.uid):
            self._by_uid.pop(before.uid, None)
            self._commanded.pop(before.uid, None)
            self._assumed.forget(before.uid)
            self._quarantined.pop(before.uid, None)
            self._changed_workloads[before.uid] = None
        if after is not None:
            commanded = self._commanded.get(after.uid)
            if commanded and not (is_aborted if commanded == "resume" else may_be_aborted)(after):
                del self._commanded[after.uid]
            self._by_uid[after.uid] = after
            if before is None or (before.uid, before.template) != (after.uid, after.template):
                self._uids_by_template.add(after.template, after.uid)
                self._track_unbound(after.template)
            self.unbound_jobs.on_bound(after, self.template(after))
            self._assumed.observe(after.uid, after.resource_version)
            self._changed_workloads[after.uid] = None
            if after.template.kind != VOLCANO_JOB:
                self._check_name_collision(self.jobs.get(colliding_job_key(after)), after)
        self._notify_change()

    def _track_unbound(self, template: TemplateKey) -> None:
        is_job = template.kind == VOLCANO_JOB and self.jobs.get(template) is not None
        self.unbound_jobs.update(template, is_unbound=is_job and not self._uids_by_template.of(template))

    def _template_changed(self, before: CachedTemplate | None, after: CachedTemplate | None) -> None:
        if before is not None and after is not None and _has_lost_reason(before, after):
            for on_removed in self.on_status_removed:
                on_removed(after.key)
        if before is not None and after is not None and before.differs_in_status_only(after):
            return
        if before is not None and (after is None or after.uid != before.uid):
            self._name_collisions.discard(before.uid)
        self._hyperjobs.template_changed(before, after)
        if after is not None and after.key.kind == VOLCANO_JOB and not self._uids_by_template.of(after.key):
            self._check_name_collision(after, self.bindings.get(binding_key(after)))
        present = after or before
        if present is not None:
            self._track_unbound(present.key)
            self.mark_changed(self._uids_by_template.of(present.key))
        self._notify_change()

    def _check_name_collision(self, job: CachedTemplate | None, binding: CachedBinding | None) -> None:
        if job is not None and binding is not None and self._name_collisions.add(job, binding):
            for on_name_collision in self.on_name_collision:
                on_name_collision(job, binding)

    def _queue_changed(self, before: CachedQueue | None, after: CachedQueue | None) -> None:
        if before is None or after is None or before.queue != after.queue:
            self._changed_queues.update({cached.key: None for cached in (before, after) if cached is not None})
            self._notify_change()

    def _cluster_changed(self, before: CachedCluster | None, after: CachedCluster | None) -> None:
        if before is None or after is None:
            self._mark_data_changed(self._data)
            for handler in self.on_clusters:
                handler()
        for cached in (before, after):
            if cached is not None:
                self._changed_clusters[cached.key] = None
                freed = self.start_failures.cluster_changed(after.cluster if after is not None else None, cached.key)
                self.mark_changed(freed)
        self._notify_change()

    def _class_changed(self, before: CachedPriorityClass | None, after: CachedPriorityClass | None) -> None:
        self._changed_classes.update({cached.key: None for cached in (before, after) if cached is not None})
        self._notify_change()

    def _sync_priority_classes(self) -> None:
        """Mark workloads as changed if their PriorityClass, or the default that they use, has changed."""
        if not self._changed_classes:
            return
        before, self.priorities = self.priorities, Priorities(self.priority_classes)
        if not self._changed_workloads.keys() >= self._by_uid.keys():
            is_default_changed, changed = before.otherwise != self.priorities.otherwise, self._changed_classes.keys()
            # Changes are rare, so the templates of a class are searched for, not indexed.
            for template in self.all_templates():
                names = template.classes
                uses_default = is_default_changed and any(name not in self.priorities for name in names)
                if uses_default or not changed.isdisjoint(names):
                    self._mark_templates_changed([template.key])
        self._changed_classes.clear()


def _has_lost_reason(before: CachedTemplate, after: CachedTemplate) -> bool:
    """Return whether the status of a Volcano Job may show its pending reason now, and did not or does no longer."""
    was_removed = bool(before.published_reason) and after.published_reason == ""
    return was_removed or (before.published_reason is None and after.published_reason == StatusReason.EVICTED)


def _workload_settings(configuration: VolcanoGlobalConfiguration) -> tuple[object, ...]:
    """Return the settings that each workload is built with, besides the integrations and the resource claims."""
    return (
        configuration.default_queue,
        configuration.node_estimates,
        configuration.backfill,
        bool(configuration.advance_reservations),
        configuration.startup_timeout,
    )
