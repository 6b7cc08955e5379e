"""Which processes run and which ports are open on this machine."""

import socket
import subprocess
from pathlib import Path


def commands_in(folder: Path) -> dict[int, str]:
    """Return the running commands that name *folder*, by process ID."""
    table = subprocess.run(["ps", "-ewwo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    rows = (line.split(maxsplit=1) for line in table.splitlines() if str(folder) in line)
    return {int(pid): command for pid, command in rows}


def listens(port: int) -> bool:
    """Return whether a server accepts connections at *port*."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
