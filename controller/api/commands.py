"""Volcano's Command (bus.volcano.sh): an action that somebody asks of a Job or a Queue, as `vcctl` does."""

import msgspec

from controller.api import lenient_decode
from controller.api.meta import WatchedObject


class Target(msgspec.Struct, rename="camel", frozen=True):
    """What the action is asked of."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def group_kind(self) -> tuple[str, str]:
        """Return its group and kind, in any version."""
        return self.api_version.partition("/")[0], self.kind


class Command(WatchedObject, frozen=True):
    """One command; unlike other objects it has its members at the top."""

    action: str = ""
    target: Target = msgspec.field(default_factory=Target)


_COMMAND = msgspec.json.Decoder(Command)


def decode_command(raw: bytes | memoryview) -> Command:
    """Return the Command in *raw*."""
    return lenient_decode.decode(_COMMAND, raw)
