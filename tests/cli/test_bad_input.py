"""Bad input: exit code 2, no output, and an error that names file, document and field."""

import io
import json

import pytest
import yaml

from tests.cli.manifests import (
    VOLCANO_JOB,
    binding,
    cluster_policy,
    configuration,
    job,
    pod,
    policy,
    queue,
    write,
)
from tests.controllers.hyperjob.objects import document, replicated, task

AMOUNT = "spec.tasks[0].template.spec.containers[0].resources.requests"
SELECTOR = {"clusterAffinity": {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}
HYPERJOB = document(replicated("t", task(replicas=8), splitPolicy={"mode": "dynamic"}))
OLD_BINDING = {**binding("b"), "apiVersion": "work.karmada.io/v1alpha1"}


def with_tasks(tasks):
    return {**job("j", {}), "spec": {"tasks": tasks}}


def with_estimate(text):
    return {**job("j", {"cpu": 1}), "spec": {"runningEstimate": text, "tasks": [{"replicas": 1, "template": pod({})}]}}


def with_metadata(**metadata):
    return {**queue("a"), "metadata": metadata}


FIELDS = {
    "cpu": (job("j", {"cpu": "4x"}), f'(Job ml/j): {AMOUNT}.cpu: "4x" is not a quantity; write for example 500m or 4'),
    "memory": (job("j", {"memory": "4GB"}), '"4GB" is not a quantity; write for example 512Mi or 64Gi'),
    "gpu": (job("j", {"a/gpu": "one"}), f'{AMOUNT}[a/gpu]: "one" is not a quantity; write for example 1 or 16'),
    "list-as-quantity": (job("j", {"cpu": [1]}), f"{AMOUNT}.cpu: a list is not a quantity"),
    "boolean-as-quantity": (job("j", {"cpu": True}), f"{AMOUNT}.cpu: true is not a quantity"),
    "negative-quantity": (job("j", {"cpu": -1}), f"{AMOUNT}.cpu: -1 is below zero; write zero or more"),
    "no-tasks": (with_tasks([]), "(Job ml/j): spec.tasks is empty; give the job a task"),
    "mapping-as-list": (with_tasks({"a": 1}), "spec.tasks: a mapping is not a list"),
    "fraction": (with_tasks([{"replicas": 1.5}]), "spec.tasks[0].replicas: 1.5 is not a whole number"),
    "negative": (with_tasks([{"replicas": -1}]), "spec.tasks[0].replicas: -1 is not between 0 and 2147483647"),
    "no-time": (with_estimate("0s"), "(Job ml/j): spec.runningEstimate: '0s' is"),
    "too-long-time": (with_estimate("87600h"), "spec.runningEstimate: '87600h' is "),
    "text-as-duration": (with_estimate("soon"), "spec.runningEstimate: 'soon' is "),
    "text-as-number": (queue("a", weight="heavy"), '(Queue a): spec.weight: "heavy" is not a whole number'),
    "bounds": (queue("a", weight=70000), "spec.weight: 70000 is not between 0 and 65535"),
    "enumeration": (queue("a", dequeueStrategy="lifo"), 'spec.dequeueStrategy: "lifo" is not fifo or traverse'),
    "list-as-mapping": (queue("a", guarantee={"resource": [1]}), "spec.guarantee.resource: a list is not a mapping"),
    "text-as-boolean": (queue("a", reclaimable="maybe"), 'spec.reclaimable: "maybe" is not true or false'),
    "text-as-mapping": ({**queue("a"), "spec": "none"}, '(Queue a): spec: "none" is not a mapping'),
    "number-as-text": (with_metadata(name="a", labels={"x": 1}), "metadata.labels.x: 1 is not text"),
    "time": (with_metadata(name="a", creationTimestamp="soon"), 'metadata.creationTimestamp: "soon" is not a time'),
    "no-name": (with_metadata(), "(Queue): metadata.name: it is missing"),
    "no-kind": (cluster_policy("p", {}, {"apiVersion": "v1"}), "p): spec.resourceSelectors[0].kind: it is missing"),
    "operator": (policy("p", SELECTOR), 'operator: "Is" is not In or NotIn or Exists or DoesNotExist or Gt or Lt'),
    "version": (OLD_BINDING, '"work.karmada.io/v1alpha1" is not read; write work.karmada.io/v1alpha2'),
    "charge": (binding("j", record={"charge": {"cpu": "x"}}), "the admission record's charge: cpu: 'x' is not"),
    "record": (binding("j", record={"admittedAt": "x"}), "annotation volcano-global.io/admission is unreadable"),
    "configuration-key": (configuration(queueOrdr="a"), "queueOrdr: unknown key; did you mean 'queueOrder'?"),
    "configuration-value": (configuration(clusterStatusSettlePeriod="a"), "clusterStatusSettlePeriod: 'a' is not"),
    "hyperjob": (HYPERJOB, "spec.replicatedJobs[0].splitPolicy.mode: input should be 'static' or 'auto'"),
}


@pytest.mark.parametrize(("invalid", "expected"), FIELDS.values(), ids=FIELDS)
def test_invalid_field_error_names_file_and_document(run, tmp_path, invalid, expected):
    path = write(tmp_path, queue("first"), invalid)
    ended = run("plan", "-f", path, "-o", "json")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{path}: document 2 (")
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


BOMB = "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9))])
LIST = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [queue("a"), queue("b", weight="x")]})
NESTED = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [yaml.safe_load(LIST)]})
QUEUE = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\n"


TEXTS = {
    "no-kind": ("apiVersion: v1", ": kind: it is missing; write for example kind: Job"),
    "no-version": ("kind: Queue", f": apiVersion: it is missing; write for example apiVersion: {VOLCANO_JOB}"),
    "number-as-kind": ("apiVersion: v1\nkind: 5", ": kind: 5 is not text; write for example kind: Job"),
    "number-as-name": (f"{QUEUE}metadata: {{name: 1}}", "(Queue): metadata.name: 1 is not text; write it in quotes"),
    "blank-in-name": (f"{QUEUE}metadata: {{name: a b}}", '"a b" is not a name; write letters, digits, - and .'),
    "escape-in-name": (f'{QUEUE}metadata: {{name: "a\\e[31m"}}', 'metadata.name: "a\\u001b[31m" is not a name'),
    "metadata": (f"{QUEUE}metadata: [a]", "(Queue): metadata: a list is not a mapping"),
    "no-object": ("- a\n- b", ": a Kubernetes object is expected, not a list"),
    "yaml-syntax": (f"{QUEUE}spec: {{weight: 1\n", ": line 4, column 1: did not find expected ',' or '}'"),
    "yaml-tab": (f"{QUEUE}spec:\n\tweight: 1", ": line 4, column 1: found character that cannot start any token"),
    "repeated-key": (f"{QUEUE}kind: Queue", ": line 3: duplicate key 'kind'"),
    "yaml-tag": (
        f"{QUEUE}spec: !!python/object:os.system {{}}",
        ": line 3: tag tag:yaml.org,2002:python/",
    ),
    "json-syntax": ('{"apiVersion": "v1",\n "kind" "Queue"}', ": line 2, column 9: did not find expected ',' or '}'"),
    "lone-surrogate": ('{"apiVersion": "v1",\n"kind": "\\ud800"}', ": document 1: line 2, column"),
    "deep": ("[" * 100_000, ": line 1: more than 100 levels of nesting"),
    "not-utf-8": (b"a: \xff", ": line 1: it is not UTF-8 text"),
    "utf-16": ("a: 1".encode("utf-16"), ": line 1: it is not UTF-8 text"),
    "control-character": ("a: \x07", ": document 1: unacceptable character #x0007"),
    "alias-of-itself": ("&a [*a]", ": document 1: line 1: alias *a has no complete anchor before it"),
    "alias-expansion": (BOMB, ": document 1: line 8: more than 2000000 values after alias expansion"),
    "long-number": (f"a: {'9' * 5000}", "does not fit in 64 bits; write larger numbers in quotes"),
    "infinite-number": ("a: .inf", ": document 1: line 1: inf is a number that JSON cannot hold"),
    "too-large": (json.dumps(job("j", {"cpu": "1e999"})), f"{AMOUNT}.cpu: '1e999' is larger than any cluster"),
    "comment-only": ("# only a comment", ": no Kubernetes object found"),
    "list-in-list": (NESTED, ": document 1, item 1 (List): a List in a List is not read"),
    "items": ("apiVersion: v1\nkind: QueueList\nitems: {a: 1}", ": document 1 (QueueList): items: it is not a list"),
    "item": (LIST, ': document 1, item 2 (Queue b): spec.weight: "x" is not a whole number'),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_parse_error_names_the_line(run, tmp_path, text, expected):
    path = tmp_path / "jobs.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    ended = run("plan", "-f", str(path))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(str(path))
    assert expected in ended.err
    assert len(ended.err.splitlines()) == 1


def test_missing_file_of_the_endpoint_is_bad_input(run, tmp_path):
    missing = tmp_path / "ca.crt"
    ended = run("pending", "-n", "ml", "--server-url", "https://localhost", "--server-ca", str(missing))
    assert (ended.code, ended.err) == (2, f"{missing}: no such file or directory\n")


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
        pytest.param([configuration(queueOrder="FairShareFirst")] * 2, "", id="identical-configurations"),
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


@pytest.mark.parametrize("command", [["plan", "-f"], ["replay"], ["history", "ml/j", "-f"]], ids=" ".join)
def test_file_without_a_name_is_not_the_current_folder(run, command):
    ended = run(*command, "")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("the name of a file is empty; is a variable not set?\n")


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
        pytest.param(
            ["--now", "9999-12-31T23:59:59Z"], "'9999-12-31T23:59:59Z' is not between 1970 and 9000", id="late"
        ),
        pytest.param(["--now", "0001-01-01T00:00:00+14:00"], "is not between 1970 and 9000", id="early"),
        pytest.param(["-o", "xml"], "'xml'", id="output"),
        pytest.param(["--kubeconfig", "k"], "the options for the live control plane: --kubeconfig\n", id="both"),
        pytest.param(
            ["--configuration", "k"],
            "--configuration; a VolcanoGlobalConfiguration is read with -f, too\n",
            id="configuration",
        ),
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
