"""Writes the Grafana dashboard of the chart: `python docs/generate_dashboard.py [--check]`."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).parents[1] / "charts" / "volcano-global" / "files" / "dashboard.json"

_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_HEIGHT = 8
#: In every query: the installations in the chosen namespace; with the value "all" also series without that label.
_IN = 'namespace=~"$namespace"'


@dataclass(frozen=True)
class Panel:
    """One panel: its queries by legend."""

    title: str
    unit: str
    queries: dict[str, str]
    width: int = 8
    kind: str = "timeseries"
    stacked: bool = False
    about: str = ""
    alarm: float | None = None
    """Value from which a single number is red."""


def metric(name: str, *matchers: str) -> str:
    """Return a selector of the metric in the chosen namespace."""
    return f"volcano_global_{name}{{{', '.join((_IN, *matchers))}}}"


def rate(name: str, *matchers: str) -> str:
    """Return the rate of a counter."""
    return f"rate({metric(name, *matchers)}[$__rate_interval])"


def quantile(share: float, name: str, *labels: str, matchers: tuple[str, ...] = ()) -> str:
    """Return a quantile of a histogram, by *labels*."""
    return f"histogram_quantile({share}, sum by ({', '.join(('le', *labels))}) ({rate(f'{name}_bucket', *matchers)}))"


#: Restricts series that every process exports to those of the project, whatever names its Services have.
_OWN = f"and on (namespace, pod) ({metric('build_info')} or {metric('webhook_build_info')})"
_QUEUE, _RESOURCE = 'queue=~"$queue"', 'resource="$resource"'
_ACTIVE, _UNGATED = 'status="active"', 'condition="NotSuspended"'
_HYPERJOB, _UNWRITTEN = 'reason=~"HyperJob.*"', 'outcome!="written"'

ROWS: dict[str, tuple[Panel, ...]] = {
    "Now": (
        Panel("Leaders", "short", {"": f"sum({metric('leader')})"}, 4, "stat"),
        Panel("Webhooks ready", "short", {"": f"sum({metric('webhook_ready')})"}, 4, "stat"),
        Panel("Pending", "short", {"": f"sum({metric('pending_workloads')}) or vector(0)"}, 4, "stat"),
        Panel("Admitted", "short", {"": f"sum({metric('admitted_active_workloads')}) or vector(0)"}, 4, "stat"),
        Panel("Oldest wait", "s", {"": f"max({metric('oldest_pending_age_seconds', _ACTIVE)})"}, 4, "stat"),
        Panel(
            "Ungated bindings",
            "short",
            {"": f"sum({metric('bindings_by_condition', _UNGATED)}) or vector(0)"},
            4,
            "stat",
            about="Bindings of gated kinds that bypassed the webhook and are not placed yet.",
            alarm=1,
        ),
    ),
    "Queues": (
        Panel(
            "Used, fair share and limit: $queue, $resource",
            "short",
            {
                "{{queue}} used": f"max by (queue) ({metric('queue_resource_usage', _QUEUE, _RESOURCE)})",
                "{{queue}} fair share": f"max by (queue) ({metric('queue_resource_fair_share', _QUEUE, _RESOURCE)})",
                "{{queue}} limit": f"max by (queue) ({metric('queue_resource_limit', _QUEUE, _RESOURCE)})",
            },
            16,
        ),
        Panel(
            "Usage divided by fair share",
            "percentunit",
            {"{{queue}}": f"max by (queue) ({metric('queue_usage_ratio', _QUEUE)})"},
            about="Above 100 % a queue borrows.",
        ),
        Panel(
            "Pending",
            "short",
            {"{{queue}} {{status}}": f"max by (queue, status) ({metric('pending_workloads', _QUEUE)})"},
            stacked=True,
            about="Inadmissible: capacity alone cannot admit them.",
        ),
        Panel(
            "Oldest wait",
            "s",
            {"{{queue}}": f"max by (queue) ({metric('oldest_pending_age_seconds', _QUEUE, _ACTIVE)})"},
            about="Of the workloads that capacity could admit.",
        ),
        Panel(
            "Admitted and not finished",
            "short",
            {"{{queue}}": f"max by (queue) ({metric('admitted_active_workloads', _QUEUE)})"},
            stacked=True,
        ),
        Panel("Admissions", "ops", {"{{queue}}": f"sum by (queue) ({rate('admitted_workloads_total', _QUEUE)})"}),
        Panel(
            "Evictions",
            "ops",
            {"{{queue}} {{reason}}": f"sum by (queue, reason) ({rate('evicted_workloads_total', _QUEUE)})"},
        ),
        Panel(
            "Wait until admission, 90 % of the workloads",
            "s",
            {
                "{{queue}} {{priority_class}}": quantile(
                    0.9, "admission_wait_time_seconds", "queue", "priority_class", matchers=(_QUEUE,)
                )
            },
        ),
    ),
    "Reasons": (
        Panel(
            "Pending by reason",
            "short",
            {"{{reason}}": f"max by (reason) ({metric('pending_workloads_by_reason')})"},
            stacked=True,
        ),
        Panel("Evictions by reason", "ops", {"{{reason}}": f"sum by (reason) ({rate('evicted_workloads_total')})"}),
        Panel(
            "Bindings with a condition",
            "short",
            {"{{condition}}": f"max by (condition) ({metric('bindings_by_condition')})"},
        ),
    ),
    "Clusters": (
        Panel(
            "Used and allocatable: $resource",
            "short",
            {
                "{{cluster}} admitted": f"max by (cluster) ({metric('cluster_resource_usage', _RESOURCE)})",
                "{{cluster}} external": f"max by (cluster) ({metric('cluster_resource_external_usage', _RESOURCE)})",
                "{{cluster}} allocatable": f"max by (cluster) ({metric('cluster_resource_allocatable', _RESOURCE)})",
            },
            12,
        ),
        Panel(
            "Utilization: $resource",
            "percentunit",
            {
                "{{cluster}}": f"max by (cluster) ({metric('cluster_resource_usage', _RESOURCE)}"
                f" + {metric('cluster_resource_external_usage', _RESOURCE)})"
                f" / (max by (cluster) ({metric('cluster_resource_allocatable', _RESOURCE)}) > 0)"
            },
        ),
        Panel("Usable", "bool", {"{{cluster}}": f"max by (cluster) ({metric('cluster_usable')})"}, 4),
        Panel(
            "Idle for reservations: $resource",
            "short",
            {"{{kind}}": f"sum by (kind) ({rate('reserved_idle_resource_seconds_total', _RESOURCE)})"},
            stacked=True,
        ),
    ),
    "HyperJobs": (
        Panel(
            "HyperJobs by phase", "short", {"{{phase}}": f"max by (phase) ({metric('hyperjobs')})"}, 12, stacked=True
        ),
        Panel(
            "Parts that wait for other parts",
            "short",
            {"{{reason}}": f"max by (reason) ({metric('pending_workloads_by_reason', _HYPERJOB)})"},
            12,
        ),
    ),
    "Controller": (
        Panel("Leader", "short", {"{{pod}}": metric("leader")}),
        Panel(
            "Cycle duration",
            "s",
            {"50 %": quantile(0.5, "cycle_duration_seconds"), "99 %": quantile(0.99, "cycle_duration_seconds")},
        ),
        Panel(
            "Patch duration, 99 %",
            "s",
            {"{{effect}} {{outcome}}": quantile(0.99, "patch_duration_seconds", "effect", "outcome")},
        ),
        Panel(
            "Errors",
            "ops",
            {
                "failed cycles": f"sum({rate('failed_cycles_total')})",
                "workloads quarantined in {{step}}": f"sum by (step) ({rate('internal_errors_total')})",
                "patch conflicts": f"sum({rate('patch_conflicts_total')})",
                "decision log interrupted": f"sum({rate('decision_log_losses_total')})",
                "events {{outcome}}": f"sum by (outcome) ({rate('events_total', _UNWRITTEN)})",
            },
        ),
        Panel("Event loop lag, 99 %", "s", {"{{pod}}": quantile(0.99, "event_loop_lag_seconds", "pod")}),
        Panel(
            "Time since the last message of the API server",
            "s",
            {"{{pod}} {{resource}}": f"max by (pod, resource) ({metric('cache_silence_seconds')})"},
        ),
        Panel(
            "Caches not synced", "short", {"{{pod}}": f"count by (pod) ({metric('cache_synced')} == 0) or vector(0)"}
        ),
        Panel(
            "Webhook configuration as desired",
            "bool",
            {"{{configuration}}": f"min by (configuration) ({metric('webhook_registered')})"},
        ),
        Panel(
            "Configuration rejected",
            "bool",
            {
                "{{pod}} {{file}}": f"max by (pod, file) ({metric('configuration_rejected')})",
                "{{pod}}": f"max by (pod) ({metric('webhook_configuration_rejected')})",
            },
        ),
    ),
    "Webhook and processes": (
        Panel(
            "Reviews by outcome",
            "ops",
            {"{{path}} {{outcome}}": f"sum by (path, outcome) ({rate('webhook_responses_total')})"},
        ),
        Panel(
            "Review duration",
            "s",
            {
                "50 %": quantile(0.5, "webhook_request_duration_seconds"),
                "99 %": quantile(0.99, "webhook_request_duration_seconds"),
            },
        ),
        Panel(
            "Time until the certificate expires",
            "s",
            {"{{pod}}": f"{metric('webhook_certificate_expiration_timestamp_seconds')} - time()"},
        ),
        Panel(
            "Memory",
            "bytes",
            {"{{pod}}": f"process_resident_memory_bytes{{{_IN}}} {_OWN}"},
            12,
        ),
        Panel(
            "CPU",
            "short",
            {"{{pod}}": f"rate(process_cpu_seconds_total{{{_IN}}}[$__rate_interval]) {_OWN}"},
            12,
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """Return the dashboard."""
    return {
        "title": "volcano-global",
        "uid": "volcano-global",
        "tags": ["volcano", "karmada"],
        "schemaVersion": 39,
        "version": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "",
        "editable": True,
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
                _variable("namespace", "label_values(volcano_global_leader, namespace)", "Namespace", everything=True),
                _variable("queue", f"label_values({metric('queue_usage_ratio')}, queue)", "Queue", everything=True),
                _variable(
                    "resource",
                    f"label_values({metric('cluster_resource_allocatable')}, resource)",
                    "Resource",
                    everything=False,
                ),
            ]
        },
        "panels": list(_panels()),
    }


def _variable(name: str, query: str, label: str, *, everything: bool) -> dict[str, Any]:
    chosen = {"text": "All", "value": "$__all"} if everything else {"text": "cpu", "value": "cpu"}
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "label": label,
        "refresh": 2,
        "sort": 1,
        "multi": everything,
        "includeAll": everything,
        "current": chosen,
        **({"allValue": ".*"} if everything else {}),
    }


def _panels() -> Iterator[dict[str, Any]]:
    number = top = 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1},
        }
        top += 1
        left = height = 0
        for panel in panels:
            if left + panel.width > _WIDTH:
                left, top = 0, top + height
            height = 4 if panel.kind == "stat" else _HEIGHT
            number += 1
            yield _panel(panel, number, {"x": left, "y": top, "w": panel.width, "h": height})
            left += panel.width
        top += height


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.alarm is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.alarm}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.stacked:
        defaults["custom"] = {"stacking": {"mode": "normal", "group": "A"}, "fillOpacity": 20}
    targets = [
        {"refId": chr(ord("A") + place), "expr": query, "legendFormat": legend, "datasource": _SOURCE}
        for place, (legend, query) in enumerate(panel.queries.items())
    ]
    about = {"description": panel.about} if panel.about else {}
    shown = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        **about,
        "gridPos": position,
        "datasource": _SOURCE,
    }
    return {**shown, "fieldConfig": {"defaults": defaults, "overrides": []}, "targets": targets}


def text() -> str:
    """Return the text of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def main() -> str | None:
    """Write the file, or with ``--check`` return what to do where it differs."""
    if "--check" in sys.argv:
        return (
            None
            if FILE.read_text() == text()
            else f"{FILE.name} differs from docs/generate_dashboard.py: make reference"
        )
    FILE.write_text(text())
    return None


if __name__ == "__main__":
    sys.exit(main())
