"""The API servers of the members, by cluster name; each keeps its objects while its Cluster is away.

Synchronous, like the control planes they are: call it from a thread.
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from localup.binaries import Binaries
from localup.controlplane import CRDS, ControlPlane

#: All that a member knows beside Kubernetes' own kinds.
_DEFINITIONS: Final = CRDS / "batch.volcano.sh_jobs.yaml"


@dataclass(frozen=True, slots=True)
class ExternalEtcd:
    """A store that somebody else has started."""

    url: str
    binaries: Binaries


@dataclass(slots=True)
class MemberApiServer:
    """One member's API server."""

    plane: ControlPlane
    is_up: bool = True

    def set_running(self, *, up: bool) -> None:
        """Start it again or shoot it, if it is not so already."""
        if up != self.is_up:
            if up:
                self.plane.restart()
            else:
                self.plane.kill()
            self.is_up = up


@dataclass(slots=True)
class MemberApiServers:
    """All of them, on one store."""

    store: str
    """The URL of an etcd, and a prefix."""
    binaries: Binaries
    _apiservers: dict[str, MemberApiServer] = field(default_factory=dict)

    def ensure(self, name: str) -> MemberApiServer:
        """Return the ground of a cluster, started first where there is none; that takes some seconds."""
        if name not in self._apiservers:
            place = urlsplit(self.store)
            etcd = ExternalEtcd(f"{place.scheme}://{place.netloc}", self.binaries)
            plane = ControlPlane(etcd, prefix=f"{place.path}/{name}", controllers=False, crds=_DEFINITIONS)
            plane.start()
            self._apiservers[name] = MemberApiServer(plane)
        return self._apiservers[name]

    def stop(self) -> None:
        """End all of them."""
        while self._apiservers:
            self._apiservers.popitem()[1].plane.stop()
