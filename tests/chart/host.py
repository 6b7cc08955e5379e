"""Simulates a host cluster for the chart's pods: controllers of Deployments and Jobs, Services, and a kubelet.

The objects are on a real API server, where Helm creates them.
"""

import contextlib
import itertools
import json
import os
import threading
import time
from http import HTTPStatus
from pathlib import Path
from typing import Any

from localup.api import Api, ApiError
from localup.controlplane import ControlPlane
from tests.chart.pods import Pod
from tests.chart.relay import Endpoint, Relay
from tests.chart.sandbox import USER
from tests.chart.volumes import NotYetError

_TICK_SECONDS = 0.25
_NOW = "%Y-%m-%dT%H:%M:%SZ"

Manifest = dict[str, Any]


class Host:
    """Runs the pods of one namespace until it is closed."""

    def __init__(
        self, plane: ControlPlane, karmada: ControlPlane, *, namespace: str, image: Path, folder: Path
    ) -> None:
        self.plane = plane
        self.namespace = namespace
        self.image = image
        self.folder = folder
        self.api: Api = plane.client("admin")
        self.relay = Relay()
        self.deployed: dict[str, list[Pod]] = {}
        self.jobs: dict[str, list[Pod]] = {}
        self.errors: list[str] = []
        self._apiservers = [control_plane.server.ports[0] for control_plane in (plane, karmada)]
        self._numbers = itertools.count(1)
        self._addresses = itertools.count(1)
        self._known: dict[tuple[str, str, int], str] = {}
        self._cluster_ips: dict[str, str] = {}
        self.environment = {
            "KUBERNETES_SERVICE_HOST": "127.0.0.1",
            "KUBERNETES_SERVICE_PORT": str(plane.server.ports[0]),
        }
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="host")
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        for pod in self._pods():
            pod.stop()
        self.relay.close()
        self.api.close()

    def ready(self, component: str) -> list[Pod]:
        """Return the ready pods of a Service."""
        return [
            pod
            for pods in list(self.deployed.values())
            for pod in list(pods)
            if _component(pod) == component and pod.is_ready
        ]

    def log(self) -> str:
        """Return the output of all pods."""
        return "\n".join(f"--- {pod.name} {pod.phase} {pod.reason}\n{pod.log()}" for pod in self._pods())

    def write_account(self, account: str, folder: Path) -> None:
        """Write the service account files of a pod with a token."""
        folder.mkdir(exist_ok=True)
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{account}/token"
        granted = self.api.create(path, {"spec": {"expirationSeconds": 3600}})["status"]["token"]
        for name, text in (("token", granted), ("ca.crt", self.plane.ca), ("namespace", self.namespace)):
            (folder / name).write_text(text)
            os.chown(folder / name, 0, USER)
            (folder / name).chmod(0o440)

    def _pods(self) -> list[Pod]:
        groups = (*list(self.deployed.values()), *list(self.jobs.values()))
        return [pod for pods in groups for pod in list(pods)]

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._tick()
            except ApiError as error:
                if error.status != HTTPStatus.NOT_FOUND:  # Helm has just deleted it
                    self.errors.append(repr(error))
            except OSError as error:
                self.errors.append(repr(error))
            time.sleep(_TICK_SECONDS)

    def _tick(self) -> None:
        self._deploy()
        self._work()
        self._test()
        for pod in self._pods():
            pod.probe()
            if not pod.is_over:
                with contextlib.suppress(NotYetError):
                    pod.refresh()
        self._serve()

    # Deployments

    def _deploy(self) -> None:
        folder = f"/apis/apps/v1/namespaces/{self.namespace}/deployments"
        wanted = {deployment["metadata"]["name"]: deployment for deployment in self.api.get(folder)["items"]}
        for name in set(self.deployed) - set(wanted):
            self._stop(self.deployed.pop(name))
        for name, deployment in wanted.items():
            pods = self.deployed.setdefault(name, [])
            self._roll(deployment, pods)
            self.api.merge(f"{folder}/{name}/status", {"status": _deployed(deployment, pods)})

    def _roll(self, deployment: Manifest, pods: list[Pod]) -> None:
        spec, replicas = deployment["spec"], deployment["spec"]["replicas"]
        template = json.dumps(spec["template"], sort_keys=True)
        new = [pod for pod in pods if pod.template == template]
        rolls = spec["strategy"]["type"] == "RollingUpdate"
        most = replicas + (spec["strategy"]["rollingUpdate"]["maxSurge"] if rolls else 0)
        if len(new) < replicas and len(pods) < most:
            pods.append(self._start(deployment["metadata"]["name"], spec["template"], template, keep=True))
        ready = sum(pod.is_ready for pod in pods)
        surplus = [pod for pod in pods if pod.template != template] or new[replicas:]
        if surplus and not rolls:
            surplus[0].stop()
            pods.remove(surplus[0])
        elif surplus and (ready > replicas or not surplus[0].is_ready or replicas == 0):
            pods.remove(surplus[0])
            # The other pods continue while it drains.
            threading.Thread(target=surplus[0].stop, daemon=True).start()
        for pod in new[replicas + 1 :]:
            pods.remove(pod)
            pod.stop()

    def _stop(self, pods: list[Pod]) -> None:
        for pod in pods:
            pod.stop()

    def _start(self, name: str, template: Manifest, text: str = "", *, keep: bool = False) -> Pod:
        pod = Pod(self, f"{name}-{next(self._numbers)}", template["spec"], template["metadata"]["labels"], keep=keep)
        pod.template = text
        self._connect(pod)
        return pod

    # Jobs

    def _work(self) -> None:
        folder = f"/apis/batch/v1/namespaces/{self.namespace}/jobs"
        wanted = {job["metadata"]["uid"]: job for job in self.api.get(folder)["items"]}
        for uid in set(self.jobs) - set(wanted):
            if not uid.startswith("pod-"):
                self._stop(self.jobs.pop(uid))
        for uid, job in wanted.items():
            if job.get("status", {}).get("conditions"):
                continue
            pods = self.jobs.setdefault(uid, [])
            if not pods or (pods[-1].phase == "Failed" and len(pods) <= job["spec"]["backoffLimit"]):
                pods.append(self._start(job["metadata"]["name"], job["spec"]["template"]))
            elif pods[-1].is_over:
                failed = sum(pod.phase == "Failed" for pod in pods)
                self.api.merge(
                    f"{folder}/{job['metadata']['name']}/status", {"status": _finished(pods[-1].phase, failed)}
                )

    def _test(self) -> None:
        """Run bare pods, as `helm test` creates them."""
        folder = f"/api/v1/namespaces/{self.namespace}/pods"
        for manifest in self.api.get(folder)["items"]:
            key = f"pod-{manifest['metadata']['uid']}"
            if key not in self.jobs:
                self.jobs[key] = [self._start(manifest["metadata"]["name"], manifest)]
            (pod,) = self.jobs[key]
            if pod.phase != manifest["status"].get("phase"):
                self.api.merge(f"{folder}/{manifest['metadata']['name']}/status", {"status": {"phase": pod.phase}})

    # Services

    def _connect(self, pod: Pod) -> None:
        """Give a pod access to the API servers, which listen on this machine only."""
        for port in self._apiservers:
            self.relay.listen(lambda port=port: [Endpoint(port)], port=port, network=pod.sandbox.network)

    def _serve(self) -> None:
        """Give the pods of Jobs and the console access to Services by name, and to each pod of a headless Service."""
        callers = [pod for pod in self._pods() if not pod.is_over and (not pod.keep or _component(pod) == "console")]
        if not callers:
            return
        services = self.api.get(f"/api/v1/namespaces/{self.namespace}/services")["items"]
        for caller in callers:
            hosts: dict[str, list[str]] = {}
            for service in services:
                name = service["metadata"]["name"]
                headless = service["spec"].get("clusterIP") == "None"
                addresses = self._headless(caller, service) if headless else [self._virtual(caller, service)]
                for domain in ("", ".svc", ".svc.cluster.local"):
                    hosts[f"{name}.{self.namespace}{domain}"] = addresses
            caller.sandbox.know(hosts)

    def _headless(self, caller: Pod, service: Manifest) -> list[str]:
        selector = service["spec"]["selector"].items()
        behind = [pod for pods in list(self.deployed.values()) for pod in pods if selector <= pod.labels.items()]
        addresses = []
        for pod in behind:
            address = ""
            for port in service["spec"]["ports"]:
                number = _number(pod, port["targetPort"])
                address = self._listen(caller, pod.name, port["port"], lambda pod=pod, to=number: [pod.endpoint(to)])
            addresses.append(address)
        return addresses

    def _virtual(self, caller: Pod, service: Manifest) -> str:
        name, component = service["metadata"]["name"], service["spec"]["selector"]["app.kubernetes.io/component"]
        address = ""
        for port in service["spec"]["ports"]:

            def behind(target: str = port["targetPort"]) -> list[Endpoint]:
                return [pod.endpoint(_number(pod, target)) for pod in self.ready(component)]

            address = self._listen(caller, name, port["port"], behind)
        return address

    def _listen(self, caller: Pod, name: str, port: int, behind: Any) -> str:
        if name not in self._cluster_ips:
            number = next(self._addresses)
            self._cluster_ips[name] = f"127.1.{number >> 8}.{number & 255}"
        address = self._cluster_ips[name]
        # The pod's own processes listen on its ports, on all its addresses.
        if (caller.name, name, port) not in self._known and port not in caller.ports.values():
            self._known[caller.name, name, port] = address
            self.relay.listen(behind, address=address, port=port, network=caller.sandbox.network)
        return address


def _number(pod: Pod, target: str | int) -> int:
    if isinstance(target, int):
        return target
    return pod.ports[target]


def _component(pod: Pod) -> str:
    return pod.labels["app.kubernetes.io/component"]


def _deployed(deployment: Manifest, pods: list[Pod]) -> Manifest:
    template = json.dumps(deployment["spec"]["template"], sort_keys=True)
    ready = sum(pod.is_ready for pod in pods)
    updated = sum(pod.template == template for pod in pods)
    enough = "True" if ready >= deployment["spec"]["replicas"] else "False"
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        "replicas": len(pods),
        "updatedReplicas": updated,
        "readyReplicas": ready,
        "availableReplicas": ready,
        "unavailableReplicas": len(pods) - ready,
        "conditions": [
            {"type": "Available", "status": enough, "reason": "Played", "message": "played"},
            {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "played"},
        ],
    }


def _finished(phase: str, failed: int) -> Manifest:
    now = time.strftime(_NOW, time.gmtime())
    kinds = ["SuccessCriteriaMet", "Complete"] if phase == "Succeeded" else ["FailureTarget", "Failed"]
    status: Manifest = {
        "startTime": now,
        "succeeded": int(phase == "Succeeded"),
        "failed": failed,
        "ready": 0,
        "terminating": 0,
        "uncountedTerminatedPods": {},
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": now, "lastTransitionTime": now, "reason": "Played"}
            for kind in kinds
        ],
    }
    if phase == "Succeeded":
        status["completionTime"] = now
    return status
