"""Generates the schema of the chart's values from the models: `python -m tests.chart.schema` writes it."""

import json
from pathlib import Path
from typing import Any

from controller.api.configuration import VolcanoGlobalConfiguration

CHART = Path(__file__).parents[2] / "charts" / "volcano-global"
FILE = CHART / "values.schema.json"

Schema = dict[str, Any]

DURATION = {"type": "string", "pattern": "^[0-9]{1,9}[smh]$"}
TEXT: Schema = {"type": "string"}
NAME: Schema = {"type": "string", "maxLength": 253, "pattern": "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"}
REQUIRED_NAME: Schema = {**NAME, "minLength": 1}
SWITCH: Schema = {"type": "boolean"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
#: Port of a container; its user may not listen on lower ones.
OWN_PORT: Schema = {**PORT, "minimum": 1024}
#: Host and port of an address; names that are not ASCII are written as the certificate has them (xn--…).
HOST = r"[-A-Za-z0-9.:\[\]]+"
TEXTS: Schema = {"type": "array", "items": TEXT}
MAP: Schema = {"type": "object"}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
LIST: Schema = {"type": "array"}


def count(minimum: int) -> Schema:
    return {"type": "integer", "minimum": minimum}


def number(minimum: float, maximum: float | None = None) -> Schema:
    most = {} if maximum is None else {"maximum": maximum}
    return {"type": "number", "minimum": minimum, **most}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def section(**properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "properties": properties}


PLACEMENT = {"nodeSelector": LABELS, "tolerations": LIST}
PROCESS = {
    **PLACEMENT,
    "resources": MAP,
    "extraArgs": TEXTS,
    "extraEnv": LIST,
    "podAnnotations": LABELS,
    "podLabels": LABELS,
    "topologySpreadConstraints": LIST,
    "affinity": MAP,
    "priorityClassName": TEXT,
}
PROVIDED = section(secretName=NAME, key=TEXT, user=TEXT)


def admission() -> Schema:
    """Return the schema of the configuration, without the fields that the chart adds."""
    schema = VolcanoGlobalConfiguration.model_json_schema(by_alias=True)
    definitions = schema.pop("$defs")

    def plain(node: Any) -> Any:
        if isinstance(node, list):
            return [plain(item) for item in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            return plain(definitions[node["$ref"].rpartition("/")[2]])
        if node.get("format") == "duration":
            return DURATION
        return {key: plain(member) for key, member in node.items() if key not in {"title", "default", "description"}}

    simplified = plain({key: member for key, member in schema.items() if key != "description"})
    # A definition may have the name of a field that is removed above.
    simplified["properties"] = {
        name: plain(member) for name, member in schema["properties"].items() if name not in {"apiVersion", "kind"}
    }
    return simplified


def values() -> Schema:
    """Return the complete schema."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **section(
            **{"global": MAP},
            nameOverride=NAME,
            fullnameOverride=NAME,
            image=section(
                repository={"type": "string", "minLength": 1},
                tag=TEXT,
                digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                pullPolicy=one_of("Always", "IfNotPresent", "Never"),
            ),
            imagePullSecrets={"type": "array", "items": section(name=NAME)},
            karmada=section(
                preset=one_of("Helm", "Scripts", "Operator", "Custom"),
                name={**NAME, "minLength": 1},
                kubeconfig=section(secretName=NAME, key=TEXT, path={"type": "string", "pattern": "^/.+/[^/]+$"}),
                namespace={**NAME, "minLength": 1},
            ),
            credentials=section(
                mode=one_of("Issued", "Provided"),
                tokenDays=number(1, 36_500),
                provided=section(
                    controller=PROVIDED, webhook=PROVIDED, certs=PROVIDED, hyperjobs=PROVIDED, console=PROVIDED
                ),
            ),
            admission=admission(),
            dataSources=section(enabled=SWITCH, pluginsNamespace=REQUIRED_NAME),
            hyperjobs=section(enabled=SWITCH),
            queues=section(createDefault=SWITCH, propagate=SWITCH),
            interpreter=section(enabled=SWITCH),
            policies=section(enabled=SWITCH),
            webhook=section(
                **PROCESS,
                replicas=count(1),
                url={"type": "string", "pattern": f"^(https://{HOST}(/[^?#]*)?)?$"},
                extraNames={"type": "array", "items": {"type": "string", "pattern": "^[-A-Za-z0-9.:*]+$"}},
                port=OWN_PORT,
                plainPort=OWN_PORT,
                service=section(type=one_of("ClusterIP", "NodePort", "LoadBalancer"), port=PORT, annotations=LABELS),
                drainSeconds=number(0, 3600),
                minAvailable={"type": ["integer", "string"]},
                clientCa=section(secretName=NAME, key=TEXT, names=TEXTS),
            ),
            controller=section(
                **PROCESS,
                replicas=count(1),
                port=OWN_PORT,
                estimator=section(
                    servicePrefix={"type": "string", "minLength": 1, "maxLength": 63},
                    serviceNamespace=NAME,
                    port=PORT,
                    timeoutSeconds=number(0.1, 4),
                    secretName=NAME,
                    caKey=TEXT,
                    certKey=TEXT,
                    keyKey=TEXT,
                    insecureSkipVerify=SWITCH,
                ),
                decisionLog=section(
                    enabled=SWITCH, sizeLimit={"type": "string", "pattern": "^[0-9]+([kMGT]|[KMGT]i)$"}
                ),
            ),
            readers=section(groups={**TEXTS, "uniqueItems": True}),
            visibility=section(
                enabled=SWITCH,
                port=OWN_PORT,
                url={"type": "string", "maxLength": 1024, "pattern": f"^(https://{HOST}/?)?$"},
                ca=TEXT,
                service=section(type=one_of("ClusterIP", "NodePort", "LoadBalancer"), port=PORT, annotations=LABELS),
            ),
            console=section(
                **PROCESS,
                enabled=SWITCH,
                replicas=count(1),
                port=OWN_PORT,
                probePort=OWN_PORT,
                url={"type": "string", "maxLength": 1024, "pattern": f"^(https://{HOST}/?)?$"},
                service=section(type=one_of("ClusterIP", "NodePort", "LoadBalancer"), port=PORT, annotations=LABELS),
                tls=section(secretName=NAME),
                proxyClientCa=section(secretName=NAME, key=TEXT),
                history=section(
                    enabled=SWITCH,
                    port=OWN_PORT,
                    probePort=OWN_PORT,
                    claimName=NAME,
                    resources=MAP,
                ),
            ),
            certs=section(
                mode=one_of("SelfSigned", "External"),
                secretName=NAME,
                authorityDays=number(1, 36_500),
                leafDays=number(1, 36_500),
                schedule={"type": "string", "minLength": 1},
                resources=MAP,
            ),
            install=section(**PLACEMENT, waitSeconds=number(1, 3600), backoffLimit=count(0), resources=MAP),
            uninstall=section(resumeSuspended=SWITCH),
            networkPolicy=section(
                enabled=SWITCH,
                karmadaApiserver=LIST,
                metrics=LIST,
                visibility=LIST,
                console=LIST,
                apiserverPorts={"type": "array", "items": PORT, "minItems": 1},
                dnsPorts={"type": "array", "items": PORT, "minItems": 1},
            ),
            metrics=section(
                serviceMonitor=section(enabled=SWITCH, interval=TEXT, labels=LABELS),
                prometheusRule=section(enabled=SWITCH, labels=LABELS, maxWaitSeconds=count(1), runbook=TEXT),
                dashboard=section(enabled=SWITCH, labels=LABELS),
            ),
        ),
    }


def text() -> str:
    """Return the text of the schema file."""
    return json.dumps(values(), indent=2) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
