"""Kubernetes control plane without nodes: etcd, an API server and the controllers that clean up.

It blocks; call it from a thread if an event loop runs.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, Protocol, Self, TypeVar

from localup.api import Api, ApiError
from localup.apply import apply_files, wait_until
from localup.binaries import Binaries
from localup.credentials import Credentials, issue, write_kubeconfig
from localup.folders import RunFolder
from localup.processes import ChildProcess, Server, is_http_ready, stop_on_error

_HERE: Final = Path(__file__).parent
_CHART: Final = _HERE.parent / "charts" / "volcano-global"
CRDS: Final = _HERE / "crds"

#: Applied last: the real CRDs include upstream's HyperJob, which lacks our fields.
OUR_CRDS: Final = _CHART / "files" / "crds"
RBAC_FILES: Final = ("rbac", "hyperjobs", "integrations", "data-sources", "readers", "console")
RBAC: Final = (*(_CHART / "files" / f"{name}.yaml" for name in RBAC_FILES), _HERE / "manifests")

_APISERVER_FLAGS: Final = (
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--authorization-mode=Node,RBAC",
    "--anonymous-auth=false",
    # As in Karmada; without its controller the ServiceAccount plugin would reject every pod.
    "--disable-admission-plugins=StorageObjectInUseProtection,ServiceAccount",
    "--service-account-issuer=https://localup",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--endpoint-reconciler-type=none",
    # One limit for all clients instead of flow control: starts faster and does not slow benchmarks.
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=3000",
    "--max-mutating-requests-inflight=1000",
    "--profiling=false",
)

_AUDIT_POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
- level: None
"""


class EtcdServer(Protocol):
    """Started etcd: an `Etcd`, or that of another process."""

    @property
    def url(self) -> str:
        """URL for clients."""

    @property
    def binaries(self) -> Binaries:
        """The control plane programs."""


Component = TypeVar("Component")


def _require_started(part: Component | None) -> Component:
    if part is None:
        raise RuntimeError("the server is not started; call start() first")
    return part


class LocalServer:
    """Server with a folder for its run; it keeps its data and ports through restarts."""

    _folder: RunFolder | None = None
    _server: Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """Folder of data, keys, kubeconfigs and logs."""
        return _require_started(self._folder).path

    @property
    def server(self) -> Server:
        """The process, which can be killed or frozen."""
        return _require_started(self._server)

    def start(self) -> None:
        """Start it and return when it is ready."""
        raise NotImplementedError

    def restart(self) -> None:
        """Restart the server with the same data and ports."""
        self.server.serve(self._command, self._is_ready)

    def kill(self) -> None:
        """Kill the server; `restart` starts it again."""
        self.server.kill()

    def stop(self) -> None:
        """Stop the server and delete its files."""
        if self._server:
            self._server.close()
        if self._folder:
            self._folder.close()
        self._server = self._folder = None

    def _open(self, name: str, *, count: int = 1) -> None:
        """Create the folder and a server with *count* ports."""
        self._folder = RunFolder()
        self._folder.open()
        self._server = Server(name, self.folder / f"{name}.log", count=count)

    def _command(self, ports: Sequence[int]) -> list[str | Path]:
        raise NotImplementedError

    def _is_ready(self) -> bool:
        raise NotImplementedError


@dataclass
class ControlPlane(LocalServer):
    """API server with the project's CRDs and roles, whose objects have the key *prefix* in *etcd*.

    Several can share one etcd under different prefixes; an additional one can act as a member cluster. It runs
    *controllers* for namespaces, garbage collection and role aggregation, records every write if *audit* is set, and
    serves the *crds* of a folder: the built-in short ones or the real ones. *flags* override others.
    """

    etcd: EtcdServer
    _: KW_ONLY
    prefix: str = "/registry"
    controllers: bool = True
    audit: bool = False
    flags: Sequence[str] = ()
    crds: Path = CRDS
    _controllers: ChildProcess | None = field(default=None, init=False)
    _credentials: Credentials | None = field(default=None, init=False)
    _admin: Api | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        """URL of the API server; restarts keep it."""
        return f"https://127.0.0.1:{self.server.ports[0]}"

    @property
    def ca(self) -> str:
        """CA certificate of the API server as PEM."""
        return _require_started(self._credentials).ca

    @property
    def audit_log(self) -> Path:
        """Audit log with one JSON object per line; absent unless `audit` is set."""
        return self.folder / "audit.log"

    @property
    def admin(self) -> Api:
        """Client with all permissions."""
        return _require_started(self._admin)

    def token(self, identity: str) -> str:
        """Return the bearer token of an identity."""
        return _require_started(self._credentials).tokens[identity]

    def kubeconfig(self, identity: str) -> Path:
        """Return the kubeconfig file of an identity."""
        return write_kubeconfig(_require_started(self._credentials), identity, url=self.url)

    def client(self, identity: str) -> Api:
        """Return a client for an identity; the caller must close it."""
        return Api(self.url, ca=self.ca, token=self.token(identity))

    def start(self) -> None:
        """Start it and return when its CRDs are served and its roles are in effect."""
        with stop_on_error(self.stop):
            self._open("kube-apiserver")
            self._credentials = issue(self.folder)
            (self.folder / "audit.yaml").write_text(_AUDIT_POLICY)
            self.restart()
            self._admin = self.client("admin")
            apply_files(self.admin, self.crds, OUR_CRDS, *RBAC)
            if self.controllers:
                self.start_controllers()

    def start_controllers(self) -> None:
        """Start or restart the controllers; they detect new CRDs immediately only at startup."""
        if self._controllers:
            self._controllers.stop()
        self._controllers = ChildProcess("controllers", self.folder / "controllers.log")
        kubeconfig = self.kubeconfig("kube-controller-manager")
        self._controllers.start([self.etcd.binaries.controllers, f"--kubeconfig={kubeconfig}"])
        wait_until(self._roles_are_aggregated, "controllers ready")

    def stop(self) -> None:
        """Stop all processes and delete their files; objects in etcd remain."""
        if self._admin:
            self._admin.close()
        if self._controllers:
            self._controllers.kill()
        super().stop()
        self._admin = self._controllers = self._credentials = None

    def _command(self, ports: Sequence[int]) -> list[str | Path]:
        audit = [f"--audit-policy-file={self.folder / 'audit.yaml'}", f"--audit-log-path={self.audit_log}"]
        return [
            self.etcd.binaries.apiserver,
            f"--etcd-servers={self.etcd.url}",
            f"--etcd-prefix={self.prefix}",
            f"--secure-port={ports[0]}",
            *_require_started(self._credentials).flags,
            *_APISERVER_FLAGS,
            *(audit if self.audit else ()),
            *self.flags,
        ]

    def _is_ready(self) -> bool:
        with self.client("admin") as api:
            try:
                return bool(api.get("/readyz") == "ok")
            except ApiError:
                return False

    def _roles_are_aggregated(self) -> bool:
        _require_started(self._controllers).check()
        role = self.admin.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/edit")
        return any("work.karmada.io" in rule.get("apiGroups", ()) for rule in role["rules"] or ())


class Etcd(LocalServer):
    """etcd without fsync: data survive a crash of the process but not of the machine."""

    def __init__(self, binaries: Binaries) -> None:
        self.binaries = binaries

    @property
    def url(self) -> str:
        """URL for clients."""
        return f"http://127.0.0.1:{self.server.ports[0]}"

    @property
    def data(self) -> Path:
        """Data folder."""
        return self.folder / "data"

    def start(self) -> None:
        """Start it without data and wait until it is ready."""
        with stop_on_error(self.stop):
            self._open("etcd", count=2)
            self.restart()

    def _command(self, ports: Sequence[int]) -> list[str | Path]:
        clients, peers = (f"http://127.0.0.1:{port}" for port in ports)
        return [
            self.binaries.etcd,
            f"--data-dir={self.data}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--quota-backend-bytes=8589934592",  # enough for the largest benchmark
            "--log-level=error",
        ]

    def _is_ready(self) -> bool:
        return is_http_ready(self.server.ports[0])
