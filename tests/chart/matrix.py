"""Defines sets of values that operators choose, to be combined with the defaults."""

from typing import Any

VALUES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "karmada-by-scripts": {"karmada": {"preset": "Scripts"}},
    "karmada-by-operator": {"karmada": {"preset": "Operator", "name": "prod"}},
    "karmada-custom": {
        "karmada": {
            "preset": "Custom",
            "kubeconfig": {"secretName": "admin", "key": "config", "path": "/etc/karmada/admin.yaml"},
            "namespace": "queues-system",
        }
    },
    "credentials-provided": {
        "credentials": {
            "mode": "Provided",
            "provided": {
                "controller": {"secretName": "c", "user": "team:controller"},
                "webhook": {"secretName": "w", "key": "karmada.config"},
                "certs": {"secretName": "u"},
                "hyperjobs": {"secretName": "h"},
            },
        }
    },
    "certs-external": {"certs": {"mode": "External", "secretName": "from-cert-manager"}},
    "console": {
        "console": {
            "enabled": True,
            "url": "https://queues.example.com",
            "proxyClientCa": {"secretName": "proxy"},
            "history": {"claimName": "decisions"},
        },
        "controller": {"decisionLog": {"enabled": True}},
        "networkPolicy": {"enabled": True},
        "admission": {"integrations": [{"apiVersion": "apps/v1", "kind": "Deployment"}]},
    },
    "all-options": {
        "queues": {"propagate": True},
        "interpreter": {"enabled": True},
        "networkPolicy": {
            "enabled": True,
            "karmadaApiserver": [{"podSelector": {"matchLabels": {"app": "karmada-apiserver"}}}],
            "metrics": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        },
        "metrics": {
            "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
            "prometheusRule": {"enabled": True},
            "dashboard": {"enabled": True},
        },
        "webhook": {
            "clientCa": {"secretName": "callers", "names": ["karmada-apiserver"]},
            "url": "https://10.1.2.3:8443",
            "extraNames": ["queues.example.com"],
            "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"operator": "Exists"}],
            "podAnnotations": {"a": "b"},
            "podLabels": {"team": "platform", "app.kubernetes.io/component": "not-replaced"},
            "extraEnv": [{"name": "TZ", "value": "UTC"}],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
            ],
            "extraArgs": ["--max-connections", "1000"],
        },
        "controller": {"decisionLog": {"enabled": True}, "estimator": {"secretName": "karmada-cert"}},
        "admission": {
            "nodeEstimates": "Estimator",
            "resourceClaimTemplates": [{"name": "one-gpu", "requests": {"nvidia.com/gpu": 1}}],
        },
        "uninstall": {"resumeSuspended": True},
        "imagePullSecrets": [{"name": "pull"}],
    },
    "no-options": {
        "hyperjobs": {"enabled": False},
        "queues": {"createDefault": False},
        "policies": {"enabled": False},
        "webhook": {"replicas": 1},
        "controller": {"replicas": 1},
    },
    "further-kinds": {
        "admission": {
            "integrations": [
                {"apiVersion": "apps/v1", "kind": "Deployment"},
                {"apiVersion": "v1", "kind": "ReplicationController"},
            ]
        }
    },
    "tuned": {
        "admission": {
            "queueOrder": "FairShareFirst",
            "tenantFairness": "Namespace",
            "reclaim": {"enabled": True},
            "tenants": [{"namespaces": ["team-a-*"], "queues": ["a"]}],
            "nodeShapes": [
                {"clusters": ["member1"], "nodes": [{"count": 4, "allocatable": {"nvidia.com/gpu": 8, "cpu": "96"}}]},
                {"clusters": {"matchLabels": {"tier": "cpu"}}, "nodes": [{"count": 2, "allocatable": {"cpu": 64}}]},
            ],
            "resize": {"action": "Report"},
            "exemptNamespaces": ["kube-system"],
        }
    },
    "named": {"fullnameOverride": "vg-volcano-global", "image": {"digest": "sha256:" + "0" * 64}},
}
