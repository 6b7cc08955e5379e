"""Command line of the member clusters for a real Karmada: `python -m localup.members --help`."""

import sys

from controller.api.flags import SettingsError, read_flags
from controller.kube.kubeconfig import KubeconfigError
from controller.kube.logs import configure_logging
from localup.binaries import Binaries
from localup.karmada.__main__ import serve
from localup.members.members import MemberApiServers, Members, MembersSettings

_DESCRIPTION = "Run an API server with a fake kubelet for every annotated Cluster until SIGTERM."


def main() -> None:
    """Parse the flags and run."""
    configure_logging()
    try:
        settings = read_flags(MembersSettings, None, description=_DESCRIPTION)
        apiservers = MemberApiServers(settings.store, Binaries(settings.programs))
        try:
            serve(
                lambda api: Members(api, apiservers, run_time=settings.run_time).run(),
                settings.kubeconfig,
                user_agent="members",
            )
        finally:
            apiservers.stop()
    except (SettingsError, KubeconfigError) as error:
        sys.exit(f"localup.members: {error}")


if __name__ == "__main__":
    main()
