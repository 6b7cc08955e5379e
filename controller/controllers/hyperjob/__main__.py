"""Write the CRDs of HyperJobs into the chart: `python -m controller.controllers.hyperjob [--check] [FOLDER]`."""

import argparse
import sys
from pathlib import Path

from controller.controllers.hyperjob.crd import crd_files

FOLDER = Path(__file__).parents[2] / "charts" / "volcano-global" / "files" / "crds"


def outdated(folder: Path) -> list[str]:
    """Return the files in *folder* that differ from the generated CRDs."""
    return [
        name
        for name, text in crd_files().items()
        if not (folder / name).is_file() or (folder / name).read_text() != text
    ]


def main() -> None:
    """Write the CRDs, or with ``--check`` only report which are outdated."""
    parser = argparse.ArgumentParser(prog="python -m controller.controllers.hyperjob", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="where the definitions are")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a definition is outdated")
    arguments = parser.parse_args()
    names = outdated(arguments.folder)
    if arguments.check:
        sys.exit(f"outdated: {', '.join(names)}; run python -m controller.controllers.hyperjob" if names else 0)
    for name in names:
        (arguments.folder / name).write_text(crd_files()[name])


if __name__ == "__main__":
    main()
