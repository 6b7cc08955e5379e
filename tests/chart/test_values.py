"""Tests the values of the chart: lint, schema, and the rendered configuration."""

import contextlib
import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
import yaml

from controller.api.configuration import VolcanoGlobalConfiguration, load_configuration
from controller.settings import parse_flags
from tests.chart import schema
from tests.chart.helm import CHART, NAMESPACE, RELEASE, HelmError
from tests.chart.matrix import VALUES

PROVIDED = ("controller", "webhook", "certs")
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())


def test_schema_matches_the_models():
    assert schema.FILE.read_text() == schema.text(), "run `make reference`"


def test_default_configuration_is_complete_and_equal():
    def keys(node):
        return {key: keys(inner) for key, inner in node.items()} if isinstance(node, dict) else None

    default = VolcanoGlobalConfiguration()
    assert VolcanoGlobalConfiguration.model_validate(DEFAULTS["admission"]) == default
    written = keys(DEFAULTS["admission"])
    expected = keys(default.model_dump(by_alias=True, exclude={"api_version", "kind"}))
    assert written == expected, "write the default of each key below admission in values.yaml"


def test_app_version_is_the_project_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = re.search(r'^version = "(.+)"', (CHART.parents[1] / "pyproject.toml").read_text(), re.MULTILINE)
    assert chart["version"] == chart["appVersion"] == version[1]


@pytest.mark.parametrize("values", [pytest.param(values, id=name) for name, values in VALUES.items()])
def test_lint_passes_and_processes_load_the_configuration(helm, render, values):
    assert "0 chart(s) failed" in helm.run("lint", "--strict", CHART, values=values)
    rendered = render(values)
    configuration = load_configuration(rendered.admission())
    chosen = values.get("admission", {})
    assert configuration.queue_order == chosen.get("queueOrder", "PriorityFirst")
    assert len(configuration.integrations) == len(chosen.get("integrations", []))
    assert configuration.resize.grace_period == timedelta(minutes=5)
    # The webhook gates the configured kinds.
    wanted = {
        "batch.volcano.sh/Job",
        *(f"{integration.group}/{integration.kind}" for integration in configuration.integrations),
    }
    (mutating,) = [manifest for manifest in rendered.objects() if manifest["kind"] == "MutatingWebhookConfiguration"]
    (condition,) = mutating["webhooks"][0]["matchConditions"]
    assert set(re.findall(r"'([^']*/[A-Z]\w*)'", condition["expression"])) == wanted


@pytest.mark.parametrize(
    ("values", "says"),
    [
        pytest.param({"admission": {"queueOrder": "Priority"}}, "/admission/queueOrder", id="choice"),
        pytest.param({"admission": {"resize": {"gracePeriod": "five minutes"}}}, "gracePeriod", id="duration"),
        pytest.param({"admission": {"reclaim": {"enable": True}}}, "'enable'", id="unknown-key"),
        pytest.param({"admission": {"tenants": [{"queues": ["a"]}]}}, "namespaces", id="missing-key"),
        pytest.param({"admission": {"nodeShapes": [{"clusters": ["m"]}]}}, "nodes", id="no-nodes"),
        pytest.param({"webhook": {"replicas": 0}}, "/webhook/replicas", id="no-webhook"),
        pytest.param({"webhook": {"port": 443}}, "/webhook/port", id="privileged-port"),
        pytest.param({"webhook": {"plainPort": 80}}, "/webhook/plainPort", id="privileged-plain-port"),
        pytest.param({"controller": {"port": 80}}, "/controller/port", id="privileged-port-of-the-controller"),
        pytest.param({"webhook": {"url": "http://plain"}}, "/webhook/url", id="plain-http"),
        pytest.param({"webhook": {"url": "https://host/path?query"}}, "/webhook/url", id="query"),
        pytest.param({"webhook": {"url": "https://user@host"}}, "/webhook/url", id="user"),
        pytest.param({"webhook": {"url": "https://bücher.example"}}, "/webhook/url", id="unicode-host"),
        pytest.param({"console": {"url": "https://bücher.example"}}, "/console/url", id="unicode-host-of-the-console"),
        pytest.param({"webhook": {"extraNames": ["bücher.example"]}}, "/webhook/extraNames", id="unicode-name"),
        pytest.param({"fullnameOverride": "queues.prod"}, '"queues.prod", which is no name of a Service', id="dot"),
        pytest.param({"fullnameOverride": "2nd"}, '"2nd", which is no name of a Service', id="digit"),
        pytest.param({"controler": {"replicas": 3}}, "'controler'", id="misspelt"),
        pytest.param({"image": {"digest": "latest"}}, "/image/digest", id="digest"),
        pytest.param({"karmada": {"preset": "Custom"}}, "karmada.kubeconfig.secretName", id="no-secret"),
        pytest.param({"credentials": {"mode": "Provided"}}, "credentials.provided", id="no-credentials"),
        pytest.param(
            {"credentials": {"mode": "Provided", "provided": {name: {"secretName": name} for name in PROVIDED}}},
            "credentials.provided.hyperjobs.secretName",
            id="no-credentials-of-the-stage",
        ),
        # As in an upgrade with --reuse-values from a version without these values.
        pytest.param(
            {
                "credentials": {
                    "mode": "Provided",
                    "provided": {**{name: {"secretName": name} for name in PROVIDED}, "hyperjobs": None},
                }
            },
            "credentials.provided.hyperjobs.secretName",
            id="never-heard-of-the-stage",
        ),
        pytest.param({"networkPolicy": {"apiserverPorts": []}}, "apiserverPorts", id="no-way-out"),
        pytest.param({"webhook": {"minAvailable": 2}}, "webhook.minAvailable is 2 of 2 replicas", id="no-drain"),
        pytest.param(
            {"console": {"replicas": 2, "history": {"claimName": "c"}}}, "console.replicas is 2", id="shared-claim"
        ),
        pytest.param({"webhook": {"minAvailable": "51%"}}, "webhook.minAvailable is 51% of 2", id="no-drain-percent"),
        pytest.param({"webhook": {"minAvailable": "half"}}, 'webhook.minAvailable is "half"', id="no-number"),
        pytest.param(
            {"webhook": {"port": 8080}}, "webhook.plainPort and webhook.port are both 8080", id="port-of-the-probes"
        ),
        pytest.param(
            {"visibility": {"enabled": True, "port": 9000}, "controller": {"port": 9000}},
            "controller.port and visibility.port are both 9000",
            id="port-of-the-metrics",
        ),
        pytest.param(
            {
                "console": {"enabled": True, "history": {"probePort": 8080}},
                "controller": {"decisionLog": {"enabled": True}},
            },
            "console.history.probePort and controller.port are both 8080",
            id="port-of-another-container",
        ),
        pytest.param(
            {"console": {"enabled": True, "probePort": 8443}},
            "console.port and console.probePort are both 8443",
            id="console",
        ),
        pytest.param({"certs": {"schedule": "daily"}}, 'certs.schedule is "daily"', id="no-cron"),
        pytest.param({"certs": {"schedule": "61 3 * * *"}}, "is no cron schedule", id="no-minute"),
        pytest.param({"certs": {"schedule": "0 3 * *"}}, "is no cron schedule", id="four-fields"),
        pytest.param(
            {"controller": {"resources": {"limits": {"memory": "1 GB"}}}},
            'controller.resources.limits.memory is "1 GB", which is no quantity',
            id="no-quantity",
        ),
        pytest.param(
            {"install": {"resources": {"requests": {"cpu": "-1"}}}}, "install.resources.requests.cpu", id="negative"
        ),
        pytest.param(
            {"console": {"history": {"resources": {"limits": {"memory": "1 GB"}}}}},
            'console.history.resources.limits.memory is "1 GB"',
            id="no-quantity-of-the-history",
        ),
        pytest.param({"metrics": {"serviceMonitor": {"interval": "30"}}}, "is no duration", id="no-duration"),
        pytest.param(
            {"admission": {"exemptNamespaces": [f"namespace-{number}" for number in range(10_000)]}},
            "bytes as YAML, at most 130000 are possible",
            id="no-environment-variable",
        ),
    ],
)
def test_invalid_values_are_refused_by_name(helm, values, says):
    with pytest.raises(HelmError, match=re.escape(says)):
        helm.template(values)


@pytest.mark.parametrize(
    "values",
    [
        {"webhook": {"minAvailable": "50%"}},
        {"webhook": {"minAvailable": 1, "replicas": 1}},
        {"certs": {"schedule": "*/15 0-6,22 1 JAN-mar 1,5"}},
        {"certs": {"schedule": "@weekly"}},
        {"controller": {"resources": {"limits": {"cpu": 2, "memory": "1.5Gi", "nvidia.com/gpu": "1e0"}}}},
        {"metrics": {"serviceMonitor": {"interval": "1m30s"}}},
        {"console": {"port": 9000, "probePort": 9000}, "visibility": {"port": 8080}},
    ],
    ids=lambda values: next(iter(values)),
)
def test_unusual_valid_values_are_accepted(helm, values):
    assert helm.template(values)


def test_pods_have_labels_environment_and_spread_of_the_values(render):
    deployment = render(VALUES["all-options"]).one("Deployment", "-webhook")
    template = deployment["spec"]["template"]
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert template["metadata"]["labels"]["team"] == "platform"
    assert selector.items() <= template["metadata"]["labels"].items()
    assert template["spec"]["containers"][0]["env"] == [{"name": "TZ", "value": "UTC"}]
    (spread,) = template["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"] == {"matchLabels": selector}


def test_spread_with_its_own_selector_is_not_changed(render):
    spread = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spread["labelSelector"] = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    values = {name: {"topologySpreadConstraints": [spread]} for name in ("webhook", "controller", "console")}
    values["console"]["enabled"] = True
    rendered = render(values)
    for name in values:
        deployment = rendered.one("Deployment", f"-{name}")
        assert deployment["spec"]["template"]["spec"]["topologySpreadConstraints"] == [spread]


@pytest.mark.parametrize(
    ("preset", "secret", "key"),
    [
        pytest.param({"preset": "Helm"}, "karmada-kubeconfig", "kubeconfig", id="helm"),
        pytest.param({"preset": "Helm", "name": "fleet"}, "fleet-kubeconfig", "kubeconfig", id="helm-named"),
        pytest.param({"preset": "Scripts"}, "karmada-controller-manager-config", "karmada.config", id="scripts"),
        pytest.param({"preset": "Operator"}, "karmada-admin-config", "karmada.config", id="operator"),
        pytest.param(
            {"preset": "Operator", "name": "prod"}, "prod-karmada-admin-config", "karmada.config", id="operator-named"
        ),
        pytest.param(
            {"preset": "Operator", "kubeconfig": {"secretName": "mine", "key": "k"}}, "mine", "k", id="overridden"
        ),
    ],
)
def test_each_karmada_preset_has_its_kubeconfig(render, preset, secret, key):
    pods = render({"karmada": preset}).pods()
    for name in ("check", "install-1", "uninstall", "test"):
        (volume,) = [
            candidate for candidate in pods[f"vg-volcano-global-{name}"]["volumes"] if candidate["name"] == "karmada"
        ]
        assert volume["secret"]["secretName"] == secret
        assert volume["secret"]["items"] == [{"key": key, "path": "kubeconfig"}]


def test_estimators_use_the_scheduler_certificates(render):
    values = {"admission": {"nodeEstimates": "Estimator"}, "controller": {"estimator": {"secretName": "karmada-cert"}}}
    pod = render(values).pods()["vg-volcano-global-controller"]
    (container,) = pod["containers"]
    (volume,) = [candidate for candidate in pod["volumes"] if candidate["name"] == "estimator"]

    settings = parse_flags(container["args"])
    assert settings.estimator_access.hosts("m1")[1] == "karmada-scheduler-estimator-m1.karmada-system.svc"
    assert settings.scheduler_estimator_ca_file == Path("/etc/volcano-global/estimator/ca.crt")
    assert [item["key"] for item in volume["secret"]["items"]] == ["server-ca.crt", "karmada.crt", "karmada.key"]


def test_visibility_endpoint_has_port_certificate_and_address(render):
    url = "https://queues.example.com:8443"
    rendered = render({"visibility": {"enabled": True, "url": url, "ca": "CA", "service": {"type": "LoadBalancer"}}})
    pod = rendered.pods()["vg-volcano-global-controller"]
    (container,) = pod["containers"]
    settings = parse_flags(container["args"])
    (mount,) = [candidate for candidate in container["volumeMounts"] if candidate["name"] == "visibility-tls"]
    assert str(settings.visibility_certificate_directory) == mount["mountPath"]
    (port,) = [candidate for candidate in container["ports"] if candidate["name"] == "visibility"]
    assert port["containerPort"] == settings.visibility_port
    service = rendered.one("Service", "-visibility")
    assert (service["spec"]["type"], service["spec"]["ports"][0]["targetPort"]) == ("LoadBalancer", "visibility")
    (published,) = [
        manifest
        for manifest in rendered.objects()
        if manifest["metadata"]["name"] == "volcano-global-visibility" and manifest["kind"] == "ConfigMap"
    ]
    assert published["data"] == {"url": url, "ca.crt": "CA"}
    kinds = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in rendered.objects()}
    assert ("ClusterRoleBinding", "volcano-global-visibility") in kinds
    assert "queues.example.com" in json.dumps(rendered.of("Job", "CronJob"))


@pytest.mark.parametrize("part", ["hyperjobs", "dataSources"])
def test_kinds_of_others_are_not_reviewed(render, part):
    def reviewed(values):
        configurations = [manifest for manifest in render(values).objects() if "webhooks" in manifest]
        return [
            (configuration["kind"], webhook["name"])
            for configuration in configurations
            for webhook in configuration["webhooks"]
        ]

    every, left = reviewed({}), reviewed({part: {"enabled": False}})
    of_others = {"hyperjobs": "hyperjobs.volcano-global.io", "dataSources": "datasourceclaims.volcano-global.io"}[part]
    assert left == [pair for pair in every if pair[1] != of_others]
    assert len(left) < len(every)


def test_optional_parts_are_absent_by_default(rendered, render):
    names = [manifest["metadata"]["name"] for manifest in (*rendered.manifests, *rendered.objects())]
    assert [name for name in names if name.endswith("-visibility")] == []
    pod = render({"controller": {"estimator": {"secretName": "karmada-cert"}}}).pods()["vg-volcano-global-controller"]
    assert not any("estimator" in argument for argument in pod["containers"][0]["args"])
    assert not any(volume["name"] == "estimator" for volume in pod["volumes"])


def test_documented_objects_are_created_by_the_chart(helm):
    text = helm.run("template", "volcano-global", CHART, "--namespace", "karmada-system")
    made = {
        (manifest["kind"].lower(), manifest["metadata"]["name"]) for manifest in yaml.safe_load_all(text) if manifest
    }
    root = CHART.parents[1]
    pages = "".join(page.read_text() for page in (*root.glob("*.md"), *(root / "docs").rglob("*.md")))
    named = set(re.findall(r"\b(deployment|job|cronjob|service|secret)/(volcano-global-[a-z0-9-]+)", pages))
    assert len(named) > 3
    assert named <= made


@pytest.mark.parametrize(
    ("values", "is_warned"),
    [({}, True), ({"webhook": {"clientCa": {"secretName": "callers"}}}, False)],
    ids=["off", "on"],
)
def test_notes_warn_about_unauthenticated_callers(helm, values, is_warned):
    notes = helm.run("install", RELEASE, str(CHART), "--namespace", NAMESPACE, "--dry-run=client", values=values)
    assert ("WARNING: the webhook does not authenticate its callers" in notes) is is_warned
    assert ("Remedy: set webhook.clientCa.secretName" in notes) is is_warned


@pytest.mark.parametrize(
    ("owner", "is_refused"), [pytest.param(RELEASE, True, id="ours"), pytest.param(None, False, id="issuers")]
)
def test_upgrade_to_an_external_secret_does_not_delete_it(helm, control_plane, namespace, owner, is_refused):
    """Helm deletes what is no longer rendered, also if an issuer has taken it over meanwhile."""
    annotations = {"meta.helm.sh/release-name": owner} if owner else {}
    metadata = {"name": f"{RELEASE}-volcano-global-webhook-tls", "annotations": annotations}
    control_plane.admin.create(f"/api/v1/namespaces/{namespace}/secrets", {"metadata": metadata})
    flags = ("--namespace", namespace, "--dry-run=server", "--kubeconfig", control_plane.kubeconfig("admin"))
    expected = pytest.raises(HelmError, match=r"set certs\.secretName") if is_refused else contextlib.nullcontext()
    with expected:
        helm.run("template", RELEASE, CHART, *flags, values={"certs": {"mode": "External"}})
