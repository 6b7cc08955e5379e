"""State of the demo as observed through its watches."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from controller.api.keys import BATCH_HYPERJOBS, CLUSTERS, HYPERJOB_KIND, HYPERJOBS, JOBS, RESOURCE_BINDINGS
from localup.demo.checks import InvariantChecker, Limits
from localup.demo.progress import (
    BindingStatus,
    HyperJobTracker,
    Timeline,
    TimelineEntry,
    binding_of_work,
    parse_binding,
)
from localup.demo.scenario import DemoHyperJob, DemoJob
from localup.demo.setup import has_summary
from localup.demo.usage import WATCHED, Objects, QueueUsage, UsageHistory, compute_fair_shares
from localup.watch import ObservedChange

WORKS: Final = "/apis/work.karmada.io/v1alpha1/works"
_HYPERJOBS: Final = frozenset({HYPERJOBS.path, BATCH_HYPERJOBS.path})
PATHS: Final = (*WATCHED, *sorted(_HYPERJOBS), WORKS)


class View:
    """Processes watch events and tracks the progress of jobs, HyperJobs and queues.

    Jobs outside the scenario are parts of HyperJobs or submitted by a user.

    Args:
        scenario: The jobs and the HyperJobs of the scenario by name.
        limits: The limits of queues and clusters.
        queues: The queues to show, in this order.
    """

    def __init__(
        self, scenario: tuple[Mapping[str, DemoJob], Mapping[str, DemoHyperJob]], limits: Limits, queues: Sequence[str]
    ) -> None:
        self._scenario, self._jobs = scenario[0], dict(scenario[0])
        self.timeline = Timeline()
        self.hyperjobs = HyperJobTracker(scenario[1])
        self.usage = UsageHistory()
        self.invariants = InvariantChecker(self._jobs, limits)
        self._queues = queues
        self._objects: dict[str, dict[tuple[str, str], Any]] = {path: {} for path in PATHS}
        self._early_bindings: dict[str, list[BindingStatus]] = {}
        """Binding versions observed before their jobs, which arrive through another watch."""

    def on_event(self, event: ObservedChange, at: float) -> list[TimelineEntry]:
        """Process a watch event and return new timeline entries."""
        is_gone = event.change == "DELETED"
        if is_gone:
            self._objects[event.path].pop(event.key, None)
        else:
            self._objects[event.path][event.key] = event.object
        if event.path == RESOURCE_BINDINGS.path:
            return self._on_binding(parse_binding(event.object), at, is_gone=is_gone)
        if event.path == JOBS.path:
            return self._on_job(event.object, at, is_gone=is_gone)
        if event.path in _HYPERJOBS and not is_gone:
            return self.hyperjobs.on_hyperjob(event.object, at)
        if event.path in _HYPERJOBS:
            self.hyperjobs.forget("/".join(event.key))
        elif event.path == WORKS and event.change == "ADDED" and (binding := binding_of_work(event.object)):
            self.invariants.observe_work(binding, int(event.object["metadata"]["resourceVersion"]))
        return []

    @property
    def is_over(self) -> bool:
        """Return whether all jobs and HyperJobs have reached their expected final state."""
        return self.timeline.is_over and all(hyperjob.is_settled for hyperjob in self.hyperjobs.all.values())

    @property
    def are_jobs_settled(self) -> bool:
        """Return whether only HyperJobs are unfinished."""
        return self.timeline.are_jobs_settled and self.hyperjobs.have_been_pending

    def have_summaries(self, clusters: Iterable[str]) -> bool:
        """Return whether these member clusters exist and report a resource summary."""
        here = self._objects[CLUSTERS.path]
        return all(("", name) in here and has_summary(here["", name]) for name in clusters)

    @property
    def violations(self) -> list[str]:
        """Return all violations; call it after the last event."""
        return [*self.invariants.violations, *self.invariants.unadmitted_works(), *self.hyperjobs.violations]

    def _on_binding(self, status: BindingStatus, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        if is_gone:
            self.invariants.forget(status.job)
            self._early_bindings.pop(status.job, None)
            return []
        demo_job = self._jobs.get(status.job)
        if demo_job is None:
            self._early_bindings.setdefault(status.job, []).append(status)
            return []
        self.invariants.observe(status)
        self.hyperjobs.on_binding(demo_job, status)
        return self.timeline.on_binding(status, at)

    def _on_job(self, job: Any, at: float, *, is_gone: bool) -> list[TimelineEntry]:
        """Process a job outside the scenario."""
        name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        if name in self._scenario:
            return []
        if is_gone:
            self._jobs.pop(name, None)
            self.timeline.remove(name)
            return []
        is_new = name not in self._jobs
        self._jobs[name] = demo_job = self._role(job)
        if not is_new:
            return []
        self.timeline.on_submitted(demo_job, at)
        before = self._early_bindings.pop(name, [])
        return [line for status in before for line in self._on_binding(status, at, is_gone=False)]

    def _role(self, job: Any) -> DemoJob:
        owners = job["metadata"].get("ownerReferences", ())
        owner = next((item["name"] for item in owners if item["kind"] == HYPERJOB_KIND), "")
        hyperjob = f"{job['metadata']['namespace']}/{owner}" if owner else ""
        known = self.hyperjobs.all.get(hyperjob)
        is_guest = not owner or (known is not None and known.spec is None)
        return DemoJob(job, hyperjob=hyperjob, is_user_submitted=is_guest)

    def update_usage(self, at: float) -> Sequence[QueueUsage]:
        """Return and record the usage of the queues at time *at*."""
        objects: Objects = {path: list(found.values()) for path, found in self._objects.items()}
        due = compute_fair_shares(objects)
        standings = []
        for queue in self._queues:
            admitted, waiting = self.invariants.count(queue)
            amounts = self.invariants.used(queue), due.fair_share.get(queue, {}), due.limits.get(queue, {})
            standings.append(QueueUsage(queue, *amounts, admitted=admitted, pending=waiting))
        self.usage.record(at, standings)
        return standings
