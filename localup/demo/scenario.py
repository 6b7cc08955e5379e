"""Jobs and HyperJobs of the demo: their requests, their start times and the expected pending reasons."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any, Final

from controller.engine.reasons import Reason
from controller.engine.state.resources import Resources, scale, total
from localup.apply import Manifest, read_manifests
from localup.karmada.members.workloads import RUN_TIME, parse_workload

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
NAMESPACES: Final = ("ml", "team-a", "team-b", "ops")


@dataclass(frozen=True, slots=True)
class DemoJob:
    """A job of the demo.

    Attributes:
        manifest: The submitted Volcano Job.
        expected_reason: Permanent pending reason; ``None`` for a job that is expected to run.
        hyperjob: The owning HyperJob as `namespace/name`; empty for other jobs.
        reclaims: Whether other jobs must be evicted before it runs.
        is_user_submitted: Whether a user submitted it during the demo; the demo expects nothing of it.
    """

    manifest: Manifest
    expected_reason: Reason | None = None
    hyperjob: str = ""
    reclaims: bool = False
    is_user_submitted: bool = False

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.manifest['metadata']['name']}"

    @property
    def queue(self) -> str:
        """Return the name of its queue."""
        return str(self.manifest["spec"]["queue"])

    @property
    def requests(self) -> Resources:
        """Return the total requests of all pods."""
        return total(scale(task.pod, task.count) for task in parse_workload(self.manifest, run_time=0).tasks)

    @property
    def gang(self) -> int:
        """Return the gang minimum: the number of pods that must start together."""
        return sum(task.gang_minimum for task in parse_workload(self.manifest, run_time=0).tasks)


@dataclass(frozen=True, slots=True)
class DemoHyperJob:
    """A HyperJob of the demo.

    Attributes:
        manifest: The submitted HyperJob, of either API group.
        expected_reason: Pending reason expected before admission; ``None`` if it may start immediately.
    """

    manifest: Manifest
    expected_reason: Reason | None = None

    @property
    def namespace(self) -> str:
        """Return the namespace."""
        return str(self.manifest["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Return `namespace/name`."""
        return f"{self.namespace}/{self.manifest['metadata']['name']}"


class StartCondition(Enum):
    """Condition for starting a step, in addition to its start time."""

    TIME = auto()
    RUNNING = auto()
    """All jobs of the previous step run."""
    ALL_SETTLED = auto()
    """All jobs have reached their expected final state, and HyperJobs have been pending as expected."""


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """Jobs, HyperJobs and member clusters that are created together.

    Attributes:
        starts_at: Earliest start, in seconds after the first step.
        title: Description that the console prints.
        enable_reclaim: Whether reclaim is enabled before this step.
    """

    starts_at: float
    title: str
    jobs: Sequence[DemoJob] = ()
    hyperjobs: Sequence[DemoHyperJob] = ()
    clusters: Sequence[str] = ()
    start_when: StartCondition = StartCondition.TIME
    enable_reclaim: bool = False


def scenario_steps() -> list[ScenarioStep]:
    """Return all steps in order of their start times."""
    return [*_queueing_steps(), *_reclaim_steps(), *_scale_out_steps()]


def _queueing_steps() -> list[ScenarioStep]:
    """Return the steps that show queue order, priorities, fair shares and inadmissible jobs."""
    return [
        ScenarioStep(
            0,
            "queue default: nightly jobs use all CPUs; the two example jobs and a job with 6 GPUs need only GPUs",
            [*_nightly_jobs(), *_example_jobs(), _gpu_job("ml/finetune-6gpu", gpus=6)],
        ),
        ScenarioStep(
            1.5,
            "queues team-a and team-b (weights 1 and 3) request more CPUs than exist; three jobs are inadmissible",
            [*_tenant_jobs(), *_inadmissible_jobs(), _gpu_job("ml/finetune-3gpu", gpus=3)],
        ),
        ScenarioStep(
            7.5,
            "queue urgent (priority 100, limit 8 CPUs): three late jobs are admitted before all others",
            _urgent_jobs(),
        ),
        ScenarioStep(
            9,
            "two HyperJobs: one with 256 GPUs that is split automatically, one from the documentation; too large now",
            hyperjobs=[
                _hyperjob("hyperjob-auto.yaml", Reason.EXCEEDS_EVERY_CLUSTER),
                _hyperjob("hyperjob-conceptual.yaml", Reason.EXCEEDS_TOTAL_CAPACITY),
            ],
        ),
    ]


def _reclaim_steps() -> list[ScenarioStep]:
    """Return the steps in which one tenant reclaims the quota that the other borrows."""
    return [
        ScenarioStep(
            9,
            "reclaim is enabled and the controller restarts; then team-a borrows all CPUs",
            _borrowing_jobs(),
            start_when=StartCondition.ALL_SETTLED,
            enable_reclaim=True,
        ),
        ScenarioStep(
            9,
            "team-b requests its fair share: jobs of team-a are evicted for it and are admitted again later",
            _reclaiming_jobs(),
            start_when=StartCondition.RUNNING,
        ),
    ]


def _scale_out_steps() -> list[ScenarioStep]:
    """Return the steps in which clusters join and all parts of the HyperJobs start together."""
    return [
        ScenarioStep(
            10,
            "another HyperJob requests all GPUs of member1 and member2, but one is in use; two large clusters join",
            [_gpu_job("ml/evaluate-1gpu", gpus=1)],
            [_hyperjob("hyperjob-by-cluster.yaml")],
            ["onprem-1", "onprem-2"],
            start_when=StartCondition.ALL_SETTLED,
        ),
        ScenarioStep(
            10, "two more clusters join: all parts of each HyperJob fit now", clusters=["cluster-a", "cluster-b"]
        ),
    ]


def hyperjobs_by_name(scenario: Iterable[ScenarioStep]) -> dict[str, DemoHyperJob]:
    """Return all HyperJobs of *play* by name."""
    return {demo_job.name: demo_job for step in scenario for demo_job in step.hyperjobs}


def jobs_by_name(scenario: Iterable[ScenarioStep]) -> dict[str, DemoJob]:
    """Return all jobs of *play* by name."""
    return {demo_job.name: demo_job for step in scenario for demo_job in step.jobs}


def volcano_job(name: str, queue: str, *, pods: int, runtime: str, **more: Any) -> Manifest:
    """Return a Volcano Job whose gang minimum is all of its pods.

    Args:
        name: Its namespace and name.
        queue: The name of its queue.
        pods: The number of pods.
        runtime: The run time in the simulated member cluster.
        more: `cpu` and `memory` requests of each pod, its `gpu` limit, and the job's `priority` class.
    """
    namespace, _, short = name.partition("/")
    container = {"name": "main", "image": "busybox", "command": ["train"], "resources": _resources(more)}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    classed = {"priorityClassName": more["priority"]} if "priority" in more else {}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": short, "namespace": namespace, "annotations": {RUN_TIME: runtime}},
        "spec": {
            "queue": queue,
            "minAvailable": pods,
            "schedulerName": "volcano",
            **classed,
            "tasks": [{"name": "worker", "replicas": pods, "template": template}],
        },
    }


def _resources(more: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    requests = {name: str(more[name]) for name in ("cpu", "memory") if name in more}
    limits = {"nvidia.com/gpu": str(more["gpu"])} if "gpu" in more else {}
    return {part: amounts for part, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _nightly_jobs() -> list[DemoJob]:
    """Return one job per cluster that uses all of its CPUs, so that the tenants' jobs find no free CPU."""
    return [
        DemoJob(volcano_job(f"ml/nightly-{cpus}", "default", pods=cpus // 4, cpu=4, memory="8Gi", runtime="5s"))
        for cpus in (24, 16, 8)
    ]


def _example_jobs() -> list[DemoJob]:
    files = [EXAMPLES / "torchrun-gang.yaml", EXAMPLES / "mpi-gang.yaml"]
    return [DemoJob(manifest) for manifest in read_manifests(*files)]


def _hyperjob(file: str, first: Reason | None = None) -> DemoHyperJob:
    """Return the HyperJob of a file, in namespace ml by default."""
    (manifest,) = read_manifests(EXAMPLES / file)
    return DemoHyperJob({**manifest, "metadata": {"namespace": "ml", **manifest["metadata"]}}, first)


def _gpu_job(name: str, *, gpus: int) -> DemoJob:
    """Return a job that requests GPUs only; next to the examples and a 6-GPU job no cluster has 3 free GPUs."""
    return DemoJob(volcano_job(name, "default", pods=gpus, gpu=1, runtime="4s"))


def _tenant_jobs() -> list[DemoJob]:
    """Return 6 jobs of team-a and 14 of team-b; the last one of team-b has a higher priority class."""
    return [_tenant_job("team-a", number) for number in range(1, 7)] + [
        _tenant_job("team-b", number) for number in range(1, 15)
    ]


def _tenant_job(team: str, number: int) -> DemoJob:
    classed = {"priority": "high"} if (team, number) == ("team-b", 14) else {}
    runtime = f"{4 + number % 3 * 0.5}s"
    name = f"{team}/train-{number:02}"
    return DemoJob(volcano_job(name, team, pods=2, cpu=2, memory="4Gi", runtime=runtime, **classed))


def _urgent_jobs() -> list[DemoJob]:
    return [
        DemoJob(volcano_job(f"ops/hotfix-{number}", "urgent", pods=2, cpu=2, memory="4Gi", runtime="3s"))
        for number in range(1, 4)
    ]


def _borrowing_jobs() -> list[DemoJob]:
    """Return jobs that use all CPUs, four times the fair share of their queue while team-b has pending jobs."""
    jobs = (volcano_job(f"team-a/borrow-{n}", "team-a", pods=4, cpu=2, runtime="6s") for n in range(1, 7))
    return [DemoJob(job) for job in jobs]


def _reclaiming_jobs() -> list[DemoJob]:
    """Return jobs that stay within the fair share of their queue."""
    jobs = (volcano_job(f"team-b/claim-{n}", "team-b", pods=4, cpu=2, runtime="3s") for n in range(1, 5))
    return [DemoJob(job, reclaims=True) for job in jobs]


def _inadmissible_jobs() -> list[DemoJob]:
    return [
        DemoJob(volcano_job("ops/old-report", "archive", pods=1, cpu=1, runtime="3s"), Reason.QUEUE_CLOSED),
        DemoJob(volcano_job("ops/rebuild-all", "urgent", pods=6, cpu=2, runtime="3s"), Reason.EXCEEDS_QUEUE_LIMIT),
        DemoJob(volcano_job("team-a/moonshot", "team-a", pods=10, gpu=1, runtime="3s"), Reason.EXCEEDS_EVERY_CLUSTER),
    ]
