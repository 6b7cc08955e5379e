"""Bad input: exit code 2, no output, and an error that names file, document and field."""

import io
import json

import pytest
import yaml

from tests.cli.manifests import (
    VOLCANO_JOB,
    binding,
    cluster,
    cluster_policy,
    configuration,
    job,
    pod,
    policy,
    queue,
    write,
)
from tests.controllers.hyperjob.objects import document, replicated, task

REQUESTS = "(Job ml/j): spec.tasks[0].template.spec.containers[0].resources.requests"
SELECTOR = {"clusterAffinity": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}
HYPERJOB = document(replicated("t", task(replicas=8), splitPolicy={"mode": "dynamic"}))


def with_tasks(tasks):
    return {**job("j", {}), "spec": {"tasks": tasks}}


def with_estimate(text):
    return {**job("j", {"cpu": 1}), "spec": {"runningEstimate": text, "tasks": [{"replicas": 1, "template": pod({})}]}}


def recorded(**record):
    return binding("j", clusters=["m"], record=record)


@pytest.mark.parametrize(
    ("invalid", "expected"),
    [
        pytest.param(
            job("j", {"cpu": "4x"}), f'{REQUESTS}.cpu: "4x" is not a quantity; write for example 500m or 4', id="cpu"
        ),
        pytest.param(
            job("j", {"memory": "4GB"}),
            f'{REQUESTS}.memory: "4GB" is not a quantity; write for example 512Mi or 64Gi',
            id="memory",
        ),
        pytest.param(
            job("j", {"nvidia.com/gpu": "one"}),
            f'{REQUESTS}[nvidia.com/gpu]: "one" is not a quantity; write for example 1 or 16',
            id="gpu",
        ),
        pytest.param(job("j", {"cpu": [1]}), f"{REQUESTS}.cpu: a list is not a quantity", id="list-as-quantity"),
        pytest.param(job("j", {"cpu": True}), f"{REQUESTS}.cpu: true is not a quantity", id="boolean-as-quantity"),
        pytest.param(job("j", {"cpu": -1}), f"{REQUESTS}.cpu: -1 is below zero; write zero or more", id="negative"),
        pytest.param(with_tasks([]), "(Job ml/j): spec.tasks is empty; give the job a task", id="no-tasks"),
        pytest.param(with_tasks({"a": 1}), "(Job ml/j): spec.tasks: a mapping is not a list", id="mapping-as-list"),
        pytest.param(
            with_tasks([{"replicas": 1.5}]), "spec.tasks[0].replicas: 1.5 is not a whole number", id="fraction"
        ),
        pytest.param(
            with_tasks([{"replicas": -1}]),
            "spec.tasks[0].replicas: -1 is not between 0 and 2147483647",
            id="negative-number",
        ),
        pytest.param(with_estimate("0s"), "(Job ml/j): spec.runningEstimate: '0s' is ", id="no-time"),
        pytest.param(with_estimate("87600h"), "spec.runningEstimate: '87600h' is ", id="too-long-time"),
        pytest.param(with_estimate("soon"), "spec.runningEstimate: 'soon' is ", id="text-as-duration"),
        pytest.param(queue("a", weight="heavy"), '(Queue a): spec.weight: "heavy" is not a whole number', id="text"),
        pytest.param(queue("a", weight=70000), "(Queue a): spec.weight: 70000 is not between 0 and 65535", id="bounds"),
        pytest.param(
            queue("a", dequeueStrategy="lifo"),
            '(Queue a): spec.dequeueStrategy: "lifo" is not fifo or traverse',
            id="enumeration",
        ),
        pytest.param(
            queue("a", guarantee={"resource": [1]}),
            "(Queue a): spec.guarantee.resource: a list is not a mapping",
            id="list-as-mapping",
        ),
        pytest.param(
            queue("a", reclaimable="maybe"),
            '(Queue a): spec.reclaimable: "maybe" is not true or false',
            id="text-as-boolean",
        ),
        pytest.param({**queue("a"), "spec": "none"}, '(Queue a): spec: "none" is not a mapping', id="text-as-mapping"),
        pytest.param(
            {**queue("a"), "metadata": {"name": "a", "labels": {"x": 1}}},
            "(Queue a): metadata.labels.x: 1 is not text; write it in quotes",
            id="number-as-text",
        ),
        pytest.param(
            {**queue("a"), "metadata": {"name": "a", "creationTimestamp": "yesterday"}},
            '(Queue a): metadata.creationTimestamp: "yesterday" is not a time; write it like 2006-01-02T15:04:05Z',
            id="time",
        ),
        pytest.param({**queue("a"), "metadata": {}}, "(Queue): metadata.name: it is missing", id="no-name"),
        pytest.param(
            cluster("m", {"cpu": "8 cores"}),
            '(Cluster m): status.resourceSummary.allocatable.cpu: "8 cores" is not a quantity',
            id="capacity",
        ),
        pytest.param(
            cluster_policy("p", {}, {"apiVersion": "v1"}),
            "(ClusterPropagationPolicy p): spec.resourceSelectors[0].kind: it is missing",
            id="missing-field",
        ),
        pytest.param(
            policy("p", SELECTOR),
            'matchExpressions[0].operator: "Is" is not In or NotIn or Exists or DoesNotExist or Gt or Lt',
            id="operator",
        ),
        pytest.param(
            {**binding("b"), "apiVersion": "work.karmada.io/v1alpha1"},
            '"work.karmada.io/v1alpha1" is not read; write work.karmada.io/v1alpha2',
            id="other-version",
        ),
        pytest.param(
            recorded(charge={"cpu": "lots"}),
            "(ResourceBinding ml/j-job): the admission record's charge: cpu: 'lots' is not a quantity",
            id="record-with-invalid-charge",
        ),
        pytest.param(
            recorded(admittedAt="once"), "annotation volcano-global.io/admission is unreadable", id="invalid-record"
        ),
        pytest.param(
            configuration(queueOrdr="PriorityFirst"),
            "(VolcanoGlobalConfiguration): queueOrdr: unknown key; did you mean 'queueOrder'?",
            id="configuration-key",
        ),
        pytest.param(
            configuration(clusterStatusSettlePeriod="soon"),
            "(VolcanoGlobalConfiguration): clusterStatusSettlePeriod: 'soon' is not a duration; "
            "write a whole number and s, m or h, such as 90s, 10m or 2h",
            id="configuration-value",
        ),
        pytest.param(
            HYPERJOB,
            "(HyperJob ml/llm): spec.replicatedJobs[0].splitPolicy.mode: input should be 'static' or 'auto'",
            id="hyperjob",
        ),
    ],
)
def test_invalid_field_error_names_file_and_document(run, tmp_path, invalid, expected):
    path = write(tmp_path, queue("first"), invalid)
    ended = run("plan", "-f", path, "-o", "json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{path}: document 2 (")
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


BOMB = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
LIST = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [queue("a"), queue("b", weight="x")]})
TOO_LARGE = json.dumps(job("j", {"cpu": "1e999"}))
QUEUE = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("apiVersion: v1", ": kind: it is missing; write for example kind: Job", id="no-kind"),
        pytest.param(
            "kind: Queue",
            f": apiVersion: it is missing; write for example apiVersion: {VOLCANO_JOB}",
            id="no-version",
        ),
        pytest.param(
            "apiVersion: v1\nkind: 5", ": kind: 5 is not text; write for example kind: Job", id="number-as-kind"
        ),
        pytest.param(
            f"{QUEUE}metadata: {{name: 1}}",
            "(Queue): metadata.name: 1 is not text; write it in quotes",
            id="number-as-name",
        ),
        pytest.param(
            f"{QUEUE}metadata: {{name: a b}}",
            '(Queue): metadata.name: "a b" is not a name; write letters, digits, - and .',
            id="blank-in-name",
        ),
        pytest.param(
            f'{QUEUE}metadata: {{name: "a\\e[31m"}}',
            '(Queue): metadata.name: "a\\u001b[31m" is not a name',
            id="escape-in-name",
        ),
        pytest.param(f"{QUEUE}metadata: [a]", "(Queue): metadata: a list is not a mapping", id="metadata"),
        pytest.param("- a\n- b", ": a Kubernetes object is expected, not a list", id="no-object"),
        pytest.param(
            f"{QUEUE}spec: {{weight: 1\n", ": line 4, column 1: did not find expected ',' or '}'", id="yaml-syntax"
        ),
        pytest.param(
            f"{QUEUE}spec:\n\tweight: 1",
            ": line 4, column 1: found character that cannot start any token",
            id="yaml-tab",
        ),
        pytest.param(f"{QUEUE}kind: Queue", ": line 3: duplicate key 'kind'", id="repeated-key"),
        pytest.param(
            f"{QUEUE}spec: !!python/object:os.system {{}}",
            ": line 3: tag tag:yaml.org,2002:python/object:os.system is not supported; remove it",
            id="yaml-tag",
        ),
        pytest.param(
            '{"apiVersion": "v1",\n "kind" "Queue"}',
            ": line 2, column 9: did not find expected ',' or '}'",
            id="json-syntax",
        ),
        pytest.param(
            '{"apiVersion": "v1",\n"kind": "\\ud800"}', ": document 1: line 2, column", id="json-lone-surrogate"
        ),
        pytest.param("[" * 100_000, ": line 1: more than 100 levels of nesting", id="deep"),
        pytest.param(b"a: \xff", ": line 1: it is not UTF-8 text", id="not-utf-8"),
        pytest.param("a: 1".encode("utf-16"), ": line 1: it is not UTF-8 text", id="utf-16"),
        pytest.param("a: \x07", ": document 1: unacceptable character #x0007", id="control-character"),
        pytest.param("&a [*a]", ": document 1: line 1: alias *a has no complete anchor before it", id="alias"),
        pytest.param(
            BOMB, ": document 1: line 8: more than 2000000 values after alias expansion", id="alias-expansion"
        ),
        pytest.param(
            f"a: {'9' * 5000}", "does not fit in 64 bits; write larger numbers in quotes", id="number-too-long"
        ),
        pytest.param("a: .inf", ": document 1: line 1: inf is a number that JSON cannot hold", id="infinite-number"),
        pytest.param("# only a comment", ": no Kubernetes object found", id="comment-only"),
        pytest.param(TOO_LARGE, f": document 1 {REQUESTS}.cpu: '1e999' is larger than any cluster", id="too-large"),
        pytest.param(LIST, ': document 1, item 2 (Queue b): spec.weight: "x" is not a whole number', id="item"),
    ],
)
def test_parse_error_names_the_line(run, tmp_path, text, expected):
    path = tmp_path / "jobs.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    ended = run("plan", "-f", str(path))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(str(path))
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


def test_all_errors_are_reported_up_to_a_limit(run, tmp_path):
    first = write(tmp_path, queue("a", weight="x", priority=-1), name="a.yaml")
    second = write(tmp_path, *(queue(f"q{number}", weight="x") for number in range(58)), name="b.yaml")
    ended = run("plan", "-f", first, "-f", second)
    assert (ended.code, len(ended.err.splitlines()), ended.err.splitlines()[-1]) == (2, 51, "and 10 more errors")


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        pytest.param([queue("a"), queue("a")], "", id="identical"),
        pytest.param(
            [queue("a"), queue("a", weight=2)],
            "{path}: document 2 (Queue a): a different object of this name is in {path}: document 1; keep one\n",
            id="different",
        ),
        pytest.param(
            [job("a", {"cpu": 1}, uid="u"), job("b", {"cpu": 1}, uid="u")],
            "{path}: document 2 (Job ml/b): metadata.uid: Job ml/a in {path}: document 1 has the same uid\n",
            id="same-uid",
        ),
        pytest.param(
            [configuration(), configuration(queueOrder="FairShareFirst")],
            "{path}: document 2 (VolcanoGlobalConfiguration): the first is in {path}: document 1; keep one\n",
            id="two-configurations",
        ),
    ],
)
def test_objects_of_one_name_must_be_identical(run, tmp_path, documents, expected):
    path = write(tmp_path, *documents)
    ended = run("plan", "-f", path)
    assert (ended.code, ended.err) == (2 if expected else 0, expected.format(path=path))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({"spec": {"wieght": 2}}, "spec.wieght: unknown field; did you mean weight?", id="field"),
        pytest.param({"kind": "Qeue"}, "not of a kind that is read; did you mean kind Queue?", id="kind"),
        pytest.param(
            {"apiVersion": "scheduling/v1"},
            "not of a kind that is read; did you mean apiVersion scheduling.volcano.sh/v1beta1?",
            id="group",
        ),
    ],
)
def test_typo_is_noted_and_an_error_with_strict(run, tmp_path, changes, expected):
    path = write(tmp_path, queue("a"), {**queue("b"), **changes})
    noted, refused = run("queues", "-f", path), run("queues", "-f", path, "--strict")
    assert (noted.code, refused.code, refused.out) == (0, 2, "")
    assert expected in noted.err
    assert expected in refused.err


@pytest.mark.parametrize(
    ("name", "expected"),
    [("nope.yaml", "no such file or directory"), ("", "no file there ends in .json, .yaml, .yml")],
    ids=["missing-file", "folder-without-manifests"],
)
def test_path_without_manifests_is_reported(run, tmp_path, name, expected):
    path = str(tmp_path / name)
    ended = run("plan", "-f", path)
    assert (ended.code, ended.out, ended.err) == (2, "", f"{path}: {expected}\n")


def test_error_in_standard_input_names_it(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a: b: c")))
    ended = run("plan", "-f", "-")
    assert ended.err == "standard input: document 1: line 1, column 5: mapping values are not allowed in this context\n"


@pytest.mark.parametrize("command", [["queues"], ["pending"], ["clusters"], ["explain", "job", "j"]])
def test_every_command_validates_fields(run, tmp_path, command):
    ended = run(*command, "-f", write(tmp_path, queue("a", weight="x")))
    assert (ended.code, ended.out) == (2, "")
    assert 'spec.weight: "x" is not a whole number' in ended.err


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(["--now", "soon"], "'soon' is not a time; write it like 2006-01-02T15:04:05Z", id="now"),
        pytest.param(["-o", "xml"], "'xml'", id="output"),
        pytest.param(["--kubeconfig", "k"], "-f reads files; remove the options", id="both"),
        pytest.param(["--colour"], "No such option", id="unknown"),
    ],
)
def test_invalid_option_exits_with_bad_input(run, tmp_path, options, expected):
    ended = run("plan", "-f", write(tmp_path, queue("a")), *options)
    assert (ended.code, ended.out) == (2, "")
    assert expected in ended.err


def test_missing_kubeconfig_and_configuration_are_reported(run, tmp_path):
    missing = run("plan", "--kubeconfig", str(tmp_path / "none"))
    assert (missing.code, missing.out) == (1, "")
    assert missing.err.endswith("no such file; to plan without a control plane, name files with -f\n")
    path = tmp_path / "configuration.yaml"
    path.write_text("kind: Other\n")
    invalid = run("plan", "--kubeconfig", "/nowhere", "--configuration", str(path))
    assert (invalid.code, invalid.out) == (2, "")
    assert invalid.err.startswith(f"{path}: ")
