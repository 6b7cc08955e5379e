"""A Kubernetes control plane without nodes: an API server and the controllers that clean up.

Synchronous: call it from a thread when an event loop is running.
"""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Final, Protocol, Self, TypeVar

from localup.api import Api, ApiError
from localup.apply import apply_files, wait_until
from localup.binaries import Binaries
from localup.credentials import Credentials, issue, write_kubeconfig
from localup.processes import ChildProcess
from localup.runfolder import RunFolder
from localup.server import Server, stop_on_error

_HERE: Final = Path(__file__).parent
_CHART: Final = _HERE.parent / "charts" / "volcano-global"
CRDS: Final = _HERE / "crds"
#: Ours come last: where the real ones are used, upstream's HyperJob is among them and lacks our fields.
OUR_CRDS: Final = _CHART / "files" / "crds"
RBAC_FILES: Final = ("rbac", "hyperjobs", "workloads")
RBAC: Final = (*(_CHART / "files" / f"{name}.yaml" for name in RBAC_FILES), _HERE / "manifests")
_CONTROLLERS: Final = "namespace-controller,garbage-collector-controller,clusterrole-aggregation-controller"
_APISERVER_FLAGS: Final = (
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--authorization-mode=Node,RBAC",
    "--anonymous-auth=false",
    # As Karmada has it; without its controller the service account plugin would refuse every pod.
    "--disable-admission-plugins=StorageObjectInUseProtection,ServiceAccount",
    "--service-account-issuer=https://localup",
    "--service-cluster-ip-range=10.0.0.0/24",
    "--endpoint-reconciler-type=none",
    # One cap for all instead of shares by flow: starts sooner, and never slows a benchmark.
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=3000",
    "--max-mutating-requests-inflight=1000",
    "--profiling=false",
)
_CONTROLLER_FLAGS: Final = (
    "--leader-elect=false",
    "--secure-port=0",
    "--kube-api-qps=1000",
    "--kube-api-burst=2000",
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
    """Where an API server keeps its objects: something like `localup.etcd.Etcd`, started."""

    @property
    def url(self) -> str:
        """Where clients find it."""

    @property
    def binaries(self) -> Binaries:
        """The programs it is one of."""


@dataclass(slots=True)
class ControlPlane:
    """An API server with the project's definitions and roles.

    Several may stand on one etcd: each sees only what lies under its prefix, and
    one more of them is what a member cluster looks like from above.

    Attributes:
        etcd: The store, already started.
        prefix: Where in the store its objects lie.
        controllers: Whether namespaces get deleted, orphans collected, and roles aggregated.
        audit: Whether every write is recorded in `audit_log`.
        flags: More flags for the API server; they come last and so prevail.
        crds: The folder of definitions; ours are short, the real ones may be named instead.
    """

    etcd: EtcdServer
    _: KW_ONLY
    prefix: str = "/registry"
    controllers: bool = True
    audit: bool = False
    flags: Sequence[str] = ()
    crds: Path = CRDS
    _folder: RunFolder | None = field(default=None, init=False)
    _server: Server | None = field(default=None, init=False)
    _controllers: ChildProcess | None = field(default=None, init=False)
    _credentials: Credentials | None = field(default=None, init=False)
    _admin: Api | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """The folder of the run: keys, kubeconfigs, logs."""
        return _require_started(self._folder).path

    @property
    def server(self) -> Server:
        """The API server's process."""
        return _require_started(self._server)

    @property
    def url(self) -> str:
        """Where the API server listens; it stays the same through kills and restarts."""
        return f"https://127.0.0.1:{self.server.ports[0]}"

    @property
    def ca(self) -> str:
        """The certificate that the API server's own is signed with, as PEM."""
        return _require_started(self._credentials).ca

    @property
    def audit_log(self) -> Path:
        """The writes so far, one JSON object a line; there is none unless `audit` is set."""
        return self.folder / "audit.log"

    @property
    def admin(self) -> Api:
        """A client with all rights."""
        return _require_started(self._admin)

    def token(self, identity: str) -> str:
        """Return the bearer token of an identity."""
        return _require_started(self._credentials).tokens[identity]

    def kubeconfig(self, identity: str) -> Path:
        """Return the kubeconfig file of an identity."""
        return write_kubeconfig(_require_started(self._credentials), identity, url=self.url)

    def client(self, identity: str) -> Api:
        """Return a client of an identity; the caller closes it."""
        return Api(self.url, ca=self.ca, token=self.token(identity))

    def start(self) -> None:
        """Start it and return when its definitions are served and its roles bite."""
        with stop_on_error(self.stop):
            self._folder = RunFolder()
            self._folder.open()
            self._credentials = issue(self.folder)
            (self.folder / "audit.yaml").write_text(_AUDIT_POLICY)
            self._server = Server("kube-apiserver", self.folder / "kube-apiserver.log")
            self.restart()
            self._admin = self.client("admin")
            apply_files(self.admin, self.crds, OUR_CRDS, *RBAC)
            if self.controllers:
                self.start_controllers()

    def restart(self) -> None:
        """Start the API server again, over the same data and on the same port."""
        self.server.halt()
        self.server.start(self._command, self._is_ready)

    def kill(self) -> None:
        """End the API server without any grace; `restart` brings it back."""
        self.server.kill()

    def start_controllers(self) -> None:
        """Start the controllers, anew if they run: they learn of new definitions at once only when they start."""
        if self._controllers:
            self._controllers.stop()
        self._controllers = ChildProcess("kube-controller-manager", self.folder / "kube-controller-manager.log")
        self._controllers.start(self._controllers_command())
        wait_until(self._roles_are_aggregated, "kube-controller-manager at work")

    def stop(self) -> None:
        """End everything and remove what it wrote, but not its objects in the store."""
        if self._admin:
            self._admin.close()
        if self._controllers:
            self._controllers.kill()
        if self._server:
            self._server.stop()
        if self._folder:
            self._folder.close()
        self._admin = self._controllers = self._server = self._folder = self._credentials = None

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

    def _controllers_command(self) -> list[str | Path]:
        return [
            self.etcd.binaries.controller_manager,
            f"--kubeconfig={self.kubeconfig('kube-controller-manager')}",
            f"--controllers={_CONTROLLERS}",
            *_CONTROLLER_FLAGS,
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


Component = TypeVar("Component")


def _require_started(part: Component | None) -> Component:
    if part is None:
        raise RuntimeError("the control plane is not started; call start() first")
    return part
