"""API servers of the members by cluster name; each keeps its objects while its Cluster is deleted.

All methods block; call them from a thread.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from localup.binaries import Binaries
from localup.controlplane import CRDS, ControlPlane

#: The only CRD of a member.
_DEFINITIONS: Final = CRDS / "batch.volcano.sh_jobs.yaml"


@dataclass(frozen=True, slots=True)
class ExternalEtcd:
    """etcd that another process has started."""

    url: str
    binaries: Binaries


@dataclass(slots=True)
class MemberApiServer:
    """API server of a member."""

    plane: ControlPlane
    is_up: bool = True

    def set_running(self, *, up: bool) -> None:
        """Restart or kill it unless it is already in the desired state."""
        if up != self.is_up:
            if up:
                self.plane.restart()
            else:
                self.plane.kill()
            self.is_up = up


@dataclass(slots=True)
class MemberApiServers:
    """All API servers, in one etcd."""

    store: str
    """URL of an etcd and a prefix."""
    binaries: Binaries
    _apiservers: dict[str, MemberApiServer] = field(default_factory=dict)

    def ensure(self, name: str) -> MemberApiServer:
        """Return the API server of a cluster; a new one is started first, which takes some seconds."""
        if name not in self._apiservers:
            place = urlsplit(self.store)
            etcd = ExternalEtcd(f"{place.scheme}://{place.netloc}", self.binaries)
            plane = ControlPlane(etcd, prefix=f"{place.path}/{name}", controllers=False, crds=_DEFINITIONS)
            plane.start()
            self._apiservers[name] = MemberApiServer(plane)
        return self._apiservers[name]

    def stop(self) -> None:
        """Stop all API servers."""
        while self._apiservers:
            self._apiservers.popitem()[1].plane.stop()
