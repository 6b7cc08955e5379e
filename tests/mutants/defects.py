"""Mutations with the defects of the Go implementation, and with defects that the simulation has found."""

from tests.mutants.mutant import Mutant
from tests.mutants.transformations import Drop, DropKeyword, Replace

_BUILDER = "tests/cache/test_workload_builder.py"
_TRANSLATION = "tests/cache/translate/test_queues.py"

DEFECTS = (
    # -- capacity and quota: nothing is shared between queues ------------------------
    Mutant(
        "charge-no-cluster",
        "controller.engine.state.cluster_usage",
        "ClusterState.headroom",
        Replace(
            "subtract(subtract(self.allocatable, self.external_usage), self.charged)",
            by="subtract(self.allocatable, self.external_usage)",
        ),
        "tests/engine/test_scenarios.py",
    ),
    Mutant(
        "ignore-external-usage",
        "controller.engine.state.cluster_usage",
        "ClusterState.headroom",
        Replace(
            "subtract(subtract(self.allocatable, self.external_usage), self.charged)",
            by="subtract(self.allocatable, self.charged)",
        ),
        "tests/engine/test_scenarios.py",
    ),
    Mutant(
        "ignore-limits-of-ancestors",
        "controller.engine.state.quota",
        "Quota.limiting",
        Replace("(node, *self.limiting(node.parent))", by="(node,)"),
        "tests/engine/test_scenarios.py",
    ),
    Mutant(
        "ignore-parent-queue",
        "controller.cache.translate.queues",
        "_queue",
        DropKeyword("parent"),
        _TRANSLATION,
    ),
    Mutant(
        "ignore-guarantee",
        "controller.cache.translate.queues",
        "_queue",
        DropKeyword("guarantee"),
        _TRANSLATION,
    ),
    Mutant(
        "ignore-deserved",
        "controller.cache.translate.queues",
        "_queue",
        DropKeyword("deserved"),
        _TRANSLATION,
    ),
    Mutant(
        "ignore-weight",
        "controller.cache.translate.queues",
        "_queue",
        DropKeyword("weight"),
        _TRANSLATION,
    ),
    Mutant(
        "admit-to-deleted-queue",
        "controller.cache.translate.queues",
        "_state",
        Replace("queue.metadata.deletion_timestamp is not None", by="False"),
        _TRANSLATION,
    ),
    Mutant(
        "never-judge-growth",
        "controller.engine.lifecycle.resize",
        "ResizeTracker.evict_rejected",
        Replace("policy.evict and self._eviction_due_at(workload, policy) <= now", by="False"),
        "tests/engine/test_resize.py",
    ),
    Mutant(
        "charge-last-task-only",
        "controller.cache.translate.templates",
        "_job_template",
        Replace("enumerate(spec.tasks or ())", by="[*enumerate(spec.tasks or ())][-1:]"),
        _TRANSLATION,
    ),
    Mutant(
        "free-quota-while-pods-terminate",
        "controller.cache.workload_builder",
        "_suspended_status",
        Replace(
            "_Status(WorkloadState.PENDING, left, hold, (condition,) if condition else ())",
            by="_Status(WorkloadState.PENDING, None, None, (condition,) if condition else ())",
        ),
        _BUILDER,
    ),
    # -- queues and priority classes --------------------------------------------------
    Mutant(
        "never-admit-without-queue",
        "controller.cache.workload_builder",
        "_queue_name",
        Replace("named or record or context.default_queue", by="named or record or QueueName('-')"),
        _BUILDER,
    ),
    Mutant(
        "lose-workload-of-unknown-class",
        "controller.cache.workload_builder",
        "_make_workload",
        Replace(
            "status.state is None",
            by="status.state is None or (template and context.priorities.effective(template.priority_class)"
            " not in {'', *context.priorities})",
        ),
        _BUILDER,
    ),
    # -- restart and races ------------------------------------------------------------
    Mutant(
        "forget-admissions-at-restart",
        "controller.cache.workload_builder",
        "_unsuspended_status",
        Replace("record and record.admits and (binding.targets or binding.details.has_policy)", by="False"),
        _BUILDER,
    ),
    Mutant(
        "correct-status-of-admitted-workload",
        "controller.controllers.status_cleanup.controller",
        "StaleStatusController._patch_statuses",
        Replace("not has_left_clusters(manifest)", by="False"),
        "tests/controllers/status_cleanup/test_controller.py",
    ),
    Mutant(
        "retry-rejected-status-at-once",
        "controller.controllers.job_status.controller",
        "JobStatusController._push",
        Replace("max(at, self._retry_at.get(key, at))", by="at"),
        "tests/controllers/job_status/test_controller.py",
    ),
    Mutant(
        "write-status-of-reporting-cluster",
        "controller.controllers.job_status.pending_status",
        "can_publish",
        Replace("job is None or job.deleting or job.published_reason is None", by="job is None"),
        "tests/controllers/job_status/test_pending_status.py",
    ),
    Mutant(
        "repeat-queue-status",
        "controller.controllers.queue_status.counts",
        "status_patch",
        Replace("queue.counts == counts and queue.has_state", by="False"),
        "tests/controllers/queue_status/test_counts.py",
    ),
    # -- webhook --------------------------------------------------------------------------
    Mutant(
        "suspend-nothing",
        "webhook.bindings",
        "review_binding",
        Replace("spec.resource.group_kind() not in gated_kinds.kinds", by="True"),
        "tests/webhook/test_resourcebindings.py",
    ),
    Mutant(
        "overwrite-suspension",
        "webhook.bindings",
        "suspend",
        Replace(
            'Operation("add", "/spec/suspension/scheduling", True)',
            by='Operation("add", "/spec/suspension", {"scheduling": True})',
        ),
        "tests/webhook/test_resourcebindings.py",
    ),
    Mutant(
        "keep-preset-clusters",
        "webhook.bindings",
        "suspend",
        Drop('if spec.clusters:\n    operations.append(Operation("remove", "/spec/clusters"))'),
        "tests/webhook/test_resourcebindings.py",
    ),
    # -- HyperJobs -------------------------------------------------------------------------
    Mutant(
        "admit-hyperjob-part-alone",
        "controller.engine.state.workload_index",
        "HyperJobGangs.missing",
        Replace("max(gang.minimum - started, 0)", by="0"),
        "tests/engine/test_gangs.py",
    ),
    Mutant(
        "recreate-parts-of-finished-hyperjob",
        "controller.controllers.hyperjob.reconciler",
        "_desired",
        Replace("part.phase in TERMINAL", by="False"),
        "tests/controllers/hyperjob/test_reconciler.py",
    ),
    Mutant(
        "create-job-before-policy",
        "controller.controllers.hyperjob.reconciler",
        "_manifests_to_apply",
        Replace("((child.policy, policy), (child.job, job))", by="((child.job, job), (child.policy, policy))"),
        "tests/controllers/hyperjob/test_reconciler.py",
    ),
    Mutant(
        "adopt-foreign-objects",
        "controller.controllers.hyperjob.observed",
        "ObservedChild.is_owned_by",
        Replace("self.owner == uid", by="True"),
        "tests/controllers/hyperjob/test_reconciler.py",
    ),
)
