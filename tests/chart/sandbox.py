"""Runs a container without a container engine: its own network, a read-only root and an unprivileged user.

Needs root for namespaces and mounts, which end with the process that created them.
"""

import ctypes
import fcntl
import os
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

USER = 65532
IMAGE = Path("/opt/volcano-global")
PYTHON = Path("/opt/python")
NAMES = Path("/opt/names")
#: Writable folders of a pod; everything else is read-only.
WRITABLE = {"/tmp", "/var/lib/volcano-global"}

_CLONE_NEWNET = 0x40000000
_SIOCSIFFLAGS = 0x8914
_UP_AND_RUNNING = 0x41
_LIBC = ctypes.CDLL(None, use_errno=True)
_TOOLS = ("nsenter", "unshare", "setpriv", "chroot", "mount")


def reason_not_possible() -> str | None:
    """Return why containers cannot be run here, or ``None``."""
    if os.getuid() != 0:
        return "containers need root here, for namespaces and mounts"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"containers need {', '.join(missing)}"
    probe = subprocess.run(["unshare", "-mn", "true"], capture_output=True, check=False)
    return None if probe.returncode == 0 else "namespaces are not permitted here"


class Network:
    """Network namespace of one pod, with its own loopback and sockets for relays."""

    def __init__(self) -> None:
        # One thread stays in the namespace; sockets that it creates belong to the namespace.
        self._inside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="network")
        self._thread = self._inside.submit(self._enter).result()

    @property
    def path(self) -> str:
        return f"/proc/{os.getpid()}/task/{self._thread}/ns/net"

    def socket(self) -> socket.socket:
        """Return a socket in the network."""
        return self._inside.submit(socket.socket, socket.AF_INET, socket.SOCK_STREAM).result()

    def close(self) -> None:
        self._inside.shutdown()

    @staticmethod
    def _enter() -> int:
        if _LIBC.unshare(_CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _UP_AND_RUNNING))
        return threading.get_native_id()


@dataclass
class Sandbox:
    """Environment that the containers of one pod share."""

    folder: Path
    image: Path
    network: Network = field(default_factory=Network)

    def __post_init__(self) -> None:
        (self.folder / "etc").mkdir(parents=True)
        (self.folder / "etc" / "passwd").write_text(f"nonroot:x:{USER}:{USER}::/nonexistent:/sbin/nologin\n")
        (self.folder / "etc" / "group").write_text(f"nonroot:x:{USER}:\n")
        (self.folder / "etc" / "nsswitch.conf").write_text("hosts: files\n")
        # A name has all its addresses, as with DNS.
        (self.folder / "etc" / "host.conf").write_text("multi on\n")
        self.know({})

    def know(self, hosts: Mapping[str, Sequence[str]]) -> None:
        """Add host names to the pod."""
        lines = [f"{address} {name}\n" for name, addresses in hosts.items() for address in addresses]
        file, text = self.folder / "etc" / "hosts", "127.0.0.1 localhost\n" + "".join(lines)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)

    def start(
        self, command: Sequence[str], *, mounts: Mapping[str, Path], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen:
        """Start the process of a container; *mounts* are folders by their mount path."""
        script = log.with_suffix(".sh")
        script.write_text(self._script(command, mounts, environment))
        with log.open("ab") as output:
            return subprocess.Popen(
                [
                    "nsenter",
                    f"--net={self.network.path}",
                    "unshare",
                    "--mount",
                    "--uts",
                    "--propagation",
                    "private",
                    "sh",
                    script,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ["PATH"]},
                start_new_session=True,
            )

    def close(self) -> None:
        self.network.close()

    def _script(self, command: Sequence[str], mounts: Mapping[str, Path], environment: Mapping[str, str]) -> str:
        root = self.folder / "root"
        root.mkdir(exist_ok=True)
        bound = {
            "/usr": Path("/usr"),
            "/proc": Path("/proc"),
            str(PYTHON): Path(sys.base_prefix),
            str(IMAGE): self.image,
            "/etc": self.folder / "etc",
        }
        lines = [
            "set -e",
            f"echo {self.folder.name} > /proc/sys/kernel/hostname",
            f"mount -t tmpfs -o mode=755 tmpfs {root}",
        ]
        lines += [f"ln -s usr/{name} {root}/{name}" for name in ("bin", "sbin", "lib", "lib64")]
        lines += [f"mkdir -p {root}/dev", *(_device(root, name) for name in ("null", "urandom"))]
        lines += [line for place, source in bound.items() for line in _bind(root, place, source)]
        # Debian's interpreter has another file name than that of the image.
        lines.append(f"mkdir -p {root}{NAMES} && ln -s {PYTHON}/bin/{_interpreter()} {root}{NAMES}/python")
        # Mounts below /etc go to a folder in the pod's own /etc.
        for place, source in sorted(mounts.items()):
            if place.startswith("/etc/"):
                (self.folder / place.lstrip("/")).mkdir(parents=True, exist_ok=True)
            lines += _bind(root, place, source, writable=place in WRITABLE)
        lines.append(f"mount -o remount,ro {root}")
        variables = " ".join(shlex.quote(f"{name}={value}") for name, value in environment.items())
        privileges = (
            f"--reuid {USER} --regid {USER} --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all "
            "--pdeathsig KILL"
        )
        lines.append(
            f"exec chroot {root} /usr/bin/setpriv {privileges} /usr/bin/env -i {variables} {shlex.join(command)}"
        )
        return "\n".join(lines) + "\n"


def end(process: subprocess.Popen, *, seconds: float) -> int:
    """End a container like the kubelet: a signal to its first process, then by force."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def _interpreter() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _bind(root: Path, place: str, source: Path, *, writable: bool = False) -> list[str]:
    target = f"{root}{place}"
    lines = [f"mkdir -p {target}", f"mount --bind {source} {target}"]
    return lines if writable else [*lines, f"mount -o remount,bind,ro {target}"]


def _device(root: Path, name: str) -> str:
    return f"touch {root}/dev/{name}; mount --bind /dev/{name} {root}/dev/{name}"
