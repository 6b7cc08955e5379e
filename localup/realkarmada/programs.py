"""Karmada's programs in a user-provided folder."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from localup.progress import StepError

#: Environment variable with the folder, used without the option.
KARMADA_BIN: Final = "KARMADA_BIN"

_NAMES: Final = ("karmada-controller-manager", "karmada-scheduler", "karmada-webhook")
_PREFIX: Final = "karmada-"
_AGGREGATED: Final = "karmada-aggregated-apiserver"
_ANSWER_SECONDS: Final = 20


@dataclass(frozen=True, slots=True)
class Programs:
    """Folder with the three required programs."""

    folder: Path

    @classmethod
    def from_folder(cls, folder: Path) -> Self:
        """Return the programs of a folder.

        Raises:
            StepError: A program is missing or not executable.
        """
        if missing := [name for name in _NAMES if _program(folder, name) is None]:
            raise StepError(
                f"{folder} has no {', '.join(missing)}; name a folder with {', '.join(_NAMES)}, "
                f"with or without '{_PREFIX}'"
            )
        return cls(folder.resolve())

    @property
    def controller_manager(self) -> Path:
        """Path of karmada-controller-manager."""
        return self._path(_NAMES[0])

    @property
    def scheduler(self) -> Path:
        """Path of karmada-scheduler."""
        return self._path(_NAMES[1])

    @property
    def webhook(self) -> Path:
        """Path of karmada-webhook."""
        return self._path(_NAMES[2])

    def _path(self, name: str) -> Path:
        return _program(self.folder, name) or self.folder / name

    @property
    def aggregated_apiserver(self) -> Path | None:
        """Path of karmada-aggregated-apiserver, ``None`` if absent; a CRD replaces it then."""
        return _program(self.folder, _AGGREGATED)

    @property
    def version(self) -> str:
        """Version reported by the programs, such as ``v1.18.2``."""
        answer = subprocess.run(
            [str(self.controller_manager), "version"],
            capture_output=True,
            text=True,
            check=False,
            timeout=_ANSWER_SECONDS,
        )
        found = re.search(r'GitVersion:"([^"]+)"', answer.stdout)
        return found[1] if found else "unknown"


def _program(folder: Path, name: str) -> Path | None:
    """Return the program *name* of a folder; ``go build ./cmd/scheduler`` omits the prefix."""
    known = (folder / item for item in (name, name.removeprefix(_PREFIX)))
    return next((path for path in known if path.is_file() and os.access(path, os.X_OK)), None)


def programs_from_environment() -> Programs | None:
    """Return the programs of the folder in `KARMADA_BIN`, ``None`` if it is not set.

    Raises:
        StepError: A program is missing or not executable.
    """
    folder = os.environ.get(KARMADA_BIN)
    return Programs.from_folder(Path(folder)) if folder else None
