"""Tests the pods (TC4, TC6, TC8): restricted pod security standard, minimal permissions, and network policies."""

import itertools

import pytest

from certs.settings import parse_flags
from install.settings import parse_flags as parse_install_flags
from tests.chart.matrix import VALUES
from tests.chart.permissions import granted

MATRIX = [pytest.param(values, id=name) for name, values in VALUES.items()]
VOLUMES = {"configMap", "emptyDir", "persistentVolumeClaim", "secret"}

COMPONENT = "app.kubernetes.io/component"


@pytest.mark.parametrize("values", MATRIX)
def test_tc4_pods_satisfy_the_restricted_standard(render, values):
    pods = render(values).pods()
    assert len(pods) == 8 + values.get("console", {}).get("enabled", False)
    for name, pod in pods.items():
        context = pod["securityContext"]
        assert context["runAsNonRoot"], name
        assert context["runAsUser"] > 1000
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"} & set(pod)
        for volume in pod["volumes"]:
            assert len(volume) == 2
            assert VOLUMES & set(volume), volume


@pytest.mark.parametrize("values", MATRIX)
def test_tc4_containers_are_read_only_without_privileges(render, values):
    for name, container in render(values).containers():
        context = container["securityContext"]
        assert context == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert not any("hostPort" in port for port in container.get("ports", []))
        assert container["resources"]["limits"]["memory"]
        for mount in container["volumeMounts"]:
            assert mount.get("readOnly") or mount["name"] in {"tmp", "decision-log", "history"}


@pytest.mark.parametrize("values", MATRIX)
def test_tc4_only_jobs_that_use_a_token_mount_one(render, values):
    with_token = {name for name, pod in render(values).pods().items() if pod["automountServiceAccountToken"]}
    assert with_token == {f"vg-volcano-global-{job}" for job in ("install-1", "rotate", "uninstall", "renew")}


@pytest.mark.parametrize("values", MATRIX)
def test_tc2_host_roles_name_their_objects(render, values):
    rendered = render(values)
    assert not rendered.of("ClusterRole", "ClusterRoleBinding")
    for role in rendered.of("Role"):
        for rule in role["rules"]:
            assert rule["resourceNames"]
            assert not {"*", "create", "list", "watch", "delete"} & set(rule["verbs"])


@pytest.mark.parametrize("values", MATRIX)
def test_tc2_karmada_roles_have_no_wildcards_and_no_secrets(render, values):
    for role in render(values).objects():
        for rule in role.get("rules", []) if role["kind"] in {"ClusterRole", "Role"} else []:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "secrets" not in rule["resources"]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])


def test_tc2_only_the_rotation_may_issue_tokens(rendered):
    tokens = {
        permission.user for permission in granted(rendered.objects()) if permission.resource == "serviceaccounts/token"
    }
    assert tokens == {"system:serviceaccount:karmada-system:volcano-global-certs"}


@pytest.mark.parametrize("values", MATRIX)
def test_tc2_admitting_and_creating_jobs_are_separate_roles(render, values):
    permissions = granted(render(values).objects())
    admitting = {
        permission.user
        for permission in permissions
        if (permission.resource, permission.verb) == ("resourcebindings", "patch")
    }
    making = {
        permission.user
        for permission in permissions
        if permission.verb == "create" and permission.resource in {"jobs", "propagationpolicies"}
    }
    assert len(admitting) == 1
    assert not admitting & making
    assert len(making) == (1 if values.get("hyperjobs", {}).get("enabled", True) else 0)


@pytest.mark.parametrize("enabled", [True, False])
def test_tc2_hyperjob_controller_requires_its_credentials(render, enabled):
    rendered = render({"hyperjobs": {"enabled": enabled}})
    pod = rendered.pods()["vg-volcano-global-controller"]
    args = pod["containers"][0]["args"]
    assert ("--hyperjob-kubeconfig" in args) is enabled
    assert (("--hyperjobs", "false") in itertools.pairwise(args)) is not enabled
    secrets = {secret["metadata"]["name"] for secret in rendered.of("Secret")}
    assert ("vg-volcano-global-hyperjobs-kubeconfig" in secrets) is enabled
    accounts = {account["metadata"]["name"] for account in rendered.objects() if account["kind"] == "ServiceAccount"}
    assert ("volcano-global-hyperjobs" in accounts) is enabled
    assert {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume} <= secrets


def test_tc6_webhook_stays_available_during_updates(rendered):
    deployment = rendered.one("Deployment", "-webhook")["spec"]
    assert deployment["replicas"] >= 2
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    pod = deployment["template"]["spec"]
    assert pod["affinity"]["podAntiAffinity"]
    args = pod["containers"][0]["args"]
    drain = float(args[args.index("--drain-seconds") + 1])
    assert drain >= 5
    assert pod["terminationGracePeriodSeconds"] > drain + 10
    budget = rendered.one("PodDisruptionBudget", "-webhook")["spec"]
    assert budget["minAvailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()


@pytest.mark.parametrize("mode", ["SelfSigned", "External"])
def test_upgrade_publishes_a_renewed_ca_before_its_certificates(render, mode):
    pod = render({"certs": {"mode": mode}}).pods()["vg-volcano-global-install-1"]
    (container,) = [candidate for candidate in pod["initContainers"] if candidate["name"] == "certificates"]
    settings = parse_flags(["ensure", *container["args"]])
    assert settings.webhook_configuration == ("volcano-global",)
    assert (settings.before_registration, settings.external) == (True, mode == "External")
    (mount,) = [candidate for candidate in container["volumeMounts"] if candidate["name"] == "karmada"]
    assert str(settings.kubeconfig.parent) == mount["mountPath"]


def test_tc6_webhooks_are_registered_by_url_with_short_timeouts(render):
    rendered = render({"webhook": {"url": "https://10.1.2.3:8443"}})
    for webhook in (webhook for manifest in rendered.objects() for webhook in manifest.get("webhooks", [])):
        assert 3 <= webhook["timeoutSeconds"] <= 5
        assert set(webhook["clientConfig"]) == {"url"}
        assert webhook["clientConfig"]["url"].startswith("https://10.1.2.3:8443/")
    arguments = [
        container["args"]
        for _, container in rendered.containers()
        if container["command"] == ["python", "-m", "certs", "ensure"]
    ]
    assert arguments
    assert all(("--ip", "10.1.2.3") in itertools.pairwise(args) for args in arguments)


def test_tc8_egress_is_limited_to_api_servers_and_dns(render):
    policies = {
        policy["spec"]["podSelector"]["matchLabels"][COMPONENT]: policy["spec"]
        for policy in render(VALUES["all-options"]).of("NetworkPolicy")
    }
    assert sorted(policies) == ["check", "controller", "install", "rotation", "test", "uninstall", "webhook"]
    for component, spec in policies.items():
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        # 10352 is the port of Karmada's scheduler estimators, which the controller may call.
        allowed = {53, 443, 5443, 6443, 8443} | ({10352} if component == "controller" else set())
        for rule in spec["egress"]:
            ports = {port["port"] for port in rule["ports"]}
            assert ports <= allowed | ({8080} if component == "test" else set())
            assert 8443 not in ports or rule["to"]
    reviews, metrics = policies["webhook"]["ingress"]
    callers = [peer["podSelector"]["matchLabels"].get("app", "ours") for peer in reviews["from"]]
    assert callers == ["karmada-apiserver", "ours", "ours"]
    assert metrics["from"][:-1] == [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]


def test_helm_test_reaches_the_probes_within_the_policies(render):
    rendered = render({**VALUES["all-options"], "console": {"enabled": True}})
    policies = {
        policy["spec"]["podSelector"]["matchLabels"][COMPONENT]: policy["spec"]
        for policy in rendered.of("NetworkPolicy")
    }
    reached = {
        (peer["podSelector"]["matchLabels"][COMPONENT], port["port"])
        for rule in policies["test"]["egress"]
        for peer in rule.get("to", ())
        for port in rule["ports"]
    }
    assert reached == {("webhook", 8080), ("controller", 8080), ("console", 8080)}
    for component, number in reached:
        (rule,) = [candidate for candidate in policies[component]["ingress"] if candidate["ports"][0]["port"] == number]
        assert policies["test"]["podSelector"] in [peer.get("podSelector") for peer in rule["from"]]


def test_helm_test_runs_on_the_nodes_of_the_jobs(render):
    place = {"nodeSelector": {"pool": "system"}, "tolerations": [{"operator": "Exists"}]}
    pods = render({"install": place}).pods()
    placed = {name for name, pod in pods.items() if pod.items() >= place.items()}
    assert placed == {
        f"vg-volcano-global-{name}" for name in ("check", "install-1", "renew", "rotate", "test", "uninstall")
    }


def test_tc9_metrics_have_a_separate_port(rendered):
    service = rendered.one("Service", "-webhook")["spec"]["ports"]
    assert [port["targetPort"] for port in service] == ["https"]
    ports = {
        port["name"]: port["containerPort"]
        for port in rendered.pods()["vg-volcano-global-webhook"]["containers"][0]["ports"]
    }
    assert ports["https"] != ports["metrics"]


def test_selector_labels_are_constant(rendered):
    for deployment in rendered.of("Deployment"):
        assert set(deployment["spec"]["selector"]["matchLabels"]) == {
            "app.kubernetes.io/name",
            "app.kubernetes.io/instance",
            "app.kubernetes.io/component",
        }


def test_history_container_cannot_write(render):
    values = {"console": {"enabled": True}, "controller": {"decisionLog": {"enabled": True}}}
    rendered = render(values)
    pod = rendered.pods()["vg-volcano-global-controller"]
    history = pod["containers"][1]
    mounts = {mount["name"]: mount for mount in history["volumeMounts"]}
    assert mounts["decision-log"]["readOnly"]
    assert {"kubeconfig", "hyperjob-kubeconfig"}.isdisjoint(mounts)
    user = "system:serviceaccount:karmada-system:volcano-global-console"
    verbs = {
        permission.verb
        for permission in granted(rendered.objects())
        if permission.user == user and "review" not in permission.resource
    }
    assert verbs == {"get", "list", "watch"}


@pytest.mark.parametrize("claim", ["", "decisions"])
def test_console_stores_decisions_on_a_claim_alone(render, claim):
    values = {"enabled": True, "history": {"claimName": claim}}
    rendered = render({"console": values, "controller": {"decisionLog": {"enabled": True}}})
    console = rendered.one("Deployment", "-console")
    spec = console["spec"]["template"]["spec"]
    claims = [volume["persistentVolumeClaim"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert claims == ([{"claimName": claim}] if claim else [])
    assert ("--history-file" in spec["containers"][0]["args"]) is bool(claim)
    # Two processes must not write the file at the same time.
    assert console["spec"]["strategy"]["type"] == ("Recreate" if claim else "RollingUpdate")


@pytest.mark.parametrize(
    ("console", "log", "history"), [(True, True, True), (True, True, False), (True, False, True), (False, True, True)]
)
def test_history_is_served_where_all_parts_are_enabled(render, console, log, history):
    values = {
        "console": {"enabled": console, "history": {"enabled": history}},
        "controller": {"decisionLog": {"enabled": log}},
        "networkPolicy": {"enabled": True},
    }
    rendered, is_served = render(values), console and log and history
    names = [container["name"] for container in rendered.pods()["vg-volcano-global-controller"]["containers"]]
    assert names == ["controller", *(["history"] if is_served else [])]
    services = {service["metadata"]["name"] for service in rendered.of("Service")}
    assert ("vg-volcano-global-history" in services) is is_served
    (policy,) = [
        candidate for candidate in rendered.of("NetworkPolicy") if candidate["metadata"]["name"].endswith("-controller")
    ]
    ports = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
    assert (8445 in ports) is is_served


def test_uninstallation_may_stop_the_install_job(rendered):
    (container,) = rendered.pods()["vg-volcano-global-uninstall"]["containers"]
    job = parse_install_flags(["remove", *container["args"]]).job
    assert job in [candidate["metadata"]["name"] for candidate in rendered.of("Job")]
    rules = rendered.one("Role", "-uninstall")["rules"]
    assert {"apiGroups": ["batch"], "resources": ["jobs"], "resourceNames": [job], "verbs": ["get", "patch"]} in rules
