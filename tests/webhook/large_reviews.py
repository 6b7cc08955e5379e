"""Reviews that cost much work for their size, of any size."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.controllers.hyperjob.objects import document, replicated
from tests.webhook.reviews import container, review, review_of, task, volcano_job, volcano_queue, wire

KIB = 1 << 10
BINDINGS, JOBS, HYPERJOBS, QUEUES = (
    "/resourcebindings/mutate",
    "/jobs/validate",
    "/hyperjobs/validate",
    "/queues/validate",
)


def bare(n: int, **members: Any) -> dict[str, Any]:
    """Return the shortest valid task."""
    return {"name": f"t{n}", "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}} | members


def job_of(count: int, one: Callable[[int], dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """Return the review of a job of *count* tasks."""
    return review_of(volcano_job(*map(one, range(count)), **spec))


def depending(n: int, *, on: range) -> dict[str, Any]:
    return bare(n, dependsOn={"name": [f"t{other}" for other in on]})


def amounts(count: int, value: str = "1") -> dict[str, Any]:
    """Return the review of a job that requests *count* resources."""
    asked = {f"example.com/r{n}": value for n in range(count)}
    return review_of(volcano_job(task(template={"spec": {"containers": [container(resources={"requests": asked})]}})))


def changed(count: int) -> dict[str, Any]:
    """Return the review of an update that changes *count* tasks and adds *count* members."""
    old, new = ([bare(n, maxRetry=retries) for n in range(count)] for retries in (1, 2))
    members = {f"m{n}": 1 for n in range(count)}
    return review_of(volcano_job(*new, **members), old=volcano_job(*old), operation="UPDATE")


def hyperjob_of(
    count: int, name: Callable[[int], str], queue: Callable[[int], str] = lambda _: "ml", *, hyperjob: str = "llm"
) -> dict[str, Any]:
    return review_of(document(*(replicated(name(n), spec={"queue": queue(n)}) for n in range(count)), name=hyperjob))


def template_of(count: int, plugins: dict[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """Return the review of a HyperJob of one template with *count* tasks."""
    job = replicated("t", *(bare(n, replicas=1 + n % 2) for n in range(count)), **members)
    job["templateSpec"]["plugins"] = plugins
    for one in job["templateSpec"]["tasks"]:
        one["template"]["spec"]["containers"][0]["resources"] = {"requests": {"nvidia.com/gpu": 1}}
    return review_of(document(job))


def scaled(count: int) -> dict[str, Any]:
    asked = {"accelerators": count + count // 2, "acceleratorType": "nvidia.com/gpu"}
    return template_of(count, splitPolicy={"strategy": "ByReplicas", "parts": 2, **asked})


def spliced(count: int, one: Callable[[int], bytes], around: bytes = b'{"spec": [%s]}') -> bytes:
    """Return the review of a binding that contains *count* pieces of JSON text."""
    text = b",".join(map(one, range(count)))
    return wire(review("PLACE")).replace(b'"PLACE"', around.replace(b"%s", text))


ATTACKS: list[Any] = [
    pytest.param(JOBS, lambda n: job_of(n, lambda t: depending(t, on=range(t + 1, min(t + 2, n)))), id="chain"),
    pytest.param(JOBS, lambda n: job_of(n, lambda t: depending(t, on=range(max(t - 1, 0), t))), id="reversed-chain"),
    pytest.param(JOBS, lambda n: job_of(n, lambda t: depending(t, on=range(max(t - 10, 0), t))), id="on-ten-others"),
    pytest.param(JOBS, lambda n: job_of(1, lambda t: depending(t, on=range(n))), id="one-task-depends-on-many"),
    pytest.param("/jobs/mutate", lambda n: job_of(n, lambda _: {}), id="empty-tasks"),
    pytest.param(JOBS, lambda n: job_of(n, lambda _: {}), id="empty-tasks-validated"),
    pytest.param(JOBS, lambda n: job_of(n, lambda t: bare(t, replicas=-1), name="x" * n * 40), id="long-job-name"),
    pytest.param(
        JOBS,
        lambda n: job_of(1, lambda _: task(template={"spec": {"containers": [container(f"c{c}") for c in range(n)]}})),
        id="containers",
    ),
    pytest.param(JOBS, amounts, id="resources"),
    pytest.param(JOBS, lambda n: amounts(n, "9" * 110 + "e99"), id="long-quantities"),
    pytest.param(
        JOBS,
        lambda n: review_of(volcano_job(volumes=[{"mountPath": f"/{v}", "volumeClaimName": "a.b"} for v in range(n)])),
        id="volumes",
    ),
    pytest.param(JOBS, lambda n: job_of(n, bare, plugins={"mpi": ["--master=t0"] * n}), id="mpi-arguments"),
    pytest.param(
        JOBS,
        lambda n: review_of(volcano_job(policies=[{"exitCode": p + 1, "action": "AbortJob"} for p in range(n)])),
        id="policies",
    ),
    pytest.param(JOBS, changed, id="changed-tasks-and-members"),
    pytest.param(BINDINGS, lambda n: spliced(n, lambda k: b'"k%d":1' % (k or 1), b'{"spec":{%s}}'), id="repeated-key"),
    pytest.param(BINDINGS, lambda n: spliced(n, lambda _: b'"":0', b"{%s}"), id="one-key-again-and-again"),
    pytest.param(BINDINGS, lambda n: spliced(n, lambda _: b"{}"), id="empty-objects-with-blanks"),
    pytest.param(BINDINGS, lambda n: spliced(n, lambda _: b'{"a": ' * 400 + b"0" + b"}" * 400), id="deep-with-blanks"),
    pytest.param(HYPERJOBS, lambda n: hyperjob_of(n, "j{}".format), id="replicated-jobs"),
    pytest.param(HYPERJOBS, lambda n: hyperjob_of(n, lambda j: f"j{j // 2}"), id="replicated-jobs-of-one-name"),
    pytest.param(HYPERJOBS, lambda n: hyperjob_of(n, "j{}".format, "q{}".format), id="replicated-jobs-in-many-queues"),
    pytest.param(HYPERJOBS, lambda n: hyperjob_of(n, "j{}".format, hyperjob="x" * n * 100), id="long-hyperjob-name"),
    pytest.param(HYPERJOBS, template_of, id="template"),
    pytest.param(HYPERJOBS, scaled, id="template-scaled"),
    pytest.param(HYPERJOBS, lambda n: template_of(n, {"mpi": ["--master=none"] * n}), id="template-with-mpi-arguments"),
    pytest.param(HYPERJOBS, lambda n: review_of(document(*[{"name": 1}] * n)), id="wrong-fields-of-a-hyperjob"),
    pytest.param(
        QUEUES,
        lambda n: review_of(volcano_queue("a", capability={f"example.com/r{r}": "1" for r in range(n)}, parent="p")),
        id="capabilities",
    ),
    pytest.param(
        QUEUES,
        lambda n: review_of(
            volcano_queue(
                annotations={
                    "volcano.sh/hierarchy": "root" + "/a" * n,
                    "volcano.sh/hierarchy-weights": "1" + "/1" * n,
                }
            )
        ),
        id="long-hierarchy",
    ),
]


def body_of(make: Callable[[int], Any], size: int) -> bytes:
    """Return the body that *make* generates for the count that gives about *size* bytes."""

    def body(count: int) -> bytes:
        made = make(count)
        return made if isinstance(made, bytes) else wire(made)

    sample = len(body(64)) - len(body(32))
    return body(max(size * 32 // sample, 1))
