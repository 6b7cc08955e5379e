"""Mutations with the defects of the Go implementation, and with defects that the simulation has found."""

from tests.mutants.transformations import Drop, DropKeyword, Replace

_BUILDER = "tests/cache/test_workload_builder.py"
_TRANSLATION = "tests/cache/translate/test_queues.py"

DEFECTS = {
    "controller.engine.state.cluster_usage": {
        "charge-no-cluster": (
            "ClusterState.headroom",
            Replace(
                "subtract(subtract(self.allocatable, self.external_usage), self.charged)",
                by="subtract(self.allocatable, self.external_usage)",
            ),
            "tests/engine/test_scenarios.py",
        ),
        "ignore-external-usage": (
            "ClusterState.headroom",
            Replace(
                "subtract(subtract(self.allocatable, self.external_usage), self.charged)",
                by="subtract(self.allocatable, self.charged)",
            ),
            "tests/engine/test_scenarios.py",
        ),
    },
    "controller.engine.state.quota": {
        "ignore-limits-of-ancestors": (
            "Quota.limiting",
            Replace("(node, *self.limiting(node.parent))", by="(node,)"),
            "tests/engine/test_scenarios.py",
        ),
    },
    "controller.cache.translate.queues": {
        "ignore-parent-queue": ("_queue", DropKeyword("parent"), _TRANSLATION),
        "ignore-guarantee": ("_queue", DropKeyword("guarantee"), _TRANSLATION),
        "ignore-deserved": ("_queue", DropKeyword("deserved"), _TRANSLATION),
        "ignore-weight": ("_queue", DropKeyword("weight"), _TRANSLATION),
        "admit-to-deleted-queue": (
            "_state",
            Replace("queue.metadata.deletion_timestamp is not None", by="False"),
            _TRANSLATION,
        ),
    },
    "controller.engine.lifecycle.resize": {
        "never-judge-growth": (
            "ResizeTracker.evict_rejected",
            Replace("policy.evict and self._eviction_due_at(workload, policy) <= now", by="False"),
            "tests/engine/test_resize.py",
        ),
    },
    "controller.cache.translate.templates": {
        "charge-last-task-only": (
            "_job_template",
            Replace("enumerate(spec.tasks or ())", by="[*enumerate(spec.tasks or ())][-1:]"),
            _TRANSLATION,
        ),
    },
    "controller.cache.workload_builder": {
        "free-quota-while-pods-terminate": (
            "_suspended_status",
            Replace(
                "_Status(WorkloadState.PENDING, left, hold, (condition,) if condition else ())",
                by="_Status(WorkloadState.PENDING, None, None, (condition,) if condition else ())",
            ),
            _BUILDER,
        ),
        "never-admit-without-queue": (
            "_queue_name",
            Replace("named or record or context.default_queue", by="named or record or QueueName('-')"),
            _BUILDER,
        ),
        "lose-workload-of-unknown-class": (
            "_make_workload",
            Replace(
                "status.state is None",
                by="status.state is None or (template and context.priorities.effective(template.priority_class)"
                " not in {'', *context.priorities})",
            ),
            _BUILDER,
        ),
        "forget-admissions-at-restart": (
            "_unsuspended_status",
            Replace("record and record.admits and (binding.targets or binding.details.has_policy)", by="False"),
            _BUILDER,
        ),
    },
    "controller.controllers.status_cleanup.controller": {
        "correct-status-of-admitted-workload": (
            "StaleStatusController._patch_statuses",
            Replace("not has_left_clusters(manifest)", by="False"),
            "tests/controllers/status_cleanup/test_controller.py",
        ),
    },
    "controller.controllers.job_status.controller": {
        "retry-rejected-status-at-once": (
            "JobStatusController._push",
            Replace("max(at, self._retry_at.get(key, at))", by="at"),
            "tests/controllers/job_status/test_controller.py",
        ),
    },
    "controller.controllers.job_status.pending_status": {
        "write-status-of-reporting-cluster": (
            "can_publish",
            Replace("job is None or job.deleting or job.published_reason is None", by="job is None"),
            "tests/controllers/job_status/test_pending_status.py",
        ),
    },
    "controller.controllers.queue_status.counts": {
        "repeat-queue-status": (
            "status_patch",
            Replace("queue.counts == counts and queue.has_state", by="False"),
            "tests/controllers/queue_status/test_counts.py",
        ),
    },
    "webhook.bindings": {
        "suspend-nothing": (
            "review_binding",
            Replace("spec.resource.group_kind() not in gated_kinds.kinds", by="True"),
            "tests/webhook/test_resourcebindings.py",
        ),
        "overwrite-suspension": (
            "suspend",
            Replace(
                'Operation("add", "/spec/suspension/scheduling", True)',
                by='Operation("add", "/spec/suspension", {"scheduling": True})',
            ),
            "tests/webhook/test_resourcebindings.py",
        ),
        "keep-preset-clusters": (
            "suspend",
            Drop('if spec.clusters:\n    operations.append(Operation("remove", "/spec/clusters"))'),
            "tests/webhook/test_resourcebindings.py",
        ),
    },
    "controller.engine.state.workload_index": {
        "admit-hyperjob-part-alone": (
            "HyperJobGangs.missing",
            Replace("max(gang.minimum - started, 0)", by="0"),
            "tests/engine/test_gangs.py",
        ),
    },
    "controller.controllers.hyperjob.reconciler": {
        "recreate-parts-of-finished-hyperjob": (
            "_desired",
            Replace("part.phase in TERMINAL", by="False"),
            "tests/controllers/hyperjob/test_reconciler.py",
        ),
        "create-job-before-policy": (
            "_manifests_to_apply",
            Replace("((child.policy, policy), (child.job, job))", by="((child.job, job), (child.policy, policy))"),
            "tests/controllers/hyperjob/test_reconciler.py",
        ),
    },
    "controller.controllers.hyperjob.observed": {
        "adopt-foreign-objects": (
            "ObservedChild.is_owned_by",
            Replace("self.owner == uid", by="True"),
            "tests/controllers/hyperjob/test_reconciler.py",
        ),
    },
}
