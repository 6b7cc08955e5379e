"""Wire types of Volcano's Command (bus.volcano.sh): an action on a Job or Queue, as `vcctl` creates it."""

import msgspec

from controller.api import lenient_decode
from controller.api.meta import WatchedObject


class Target(msgspec.Struct, rename="camel", frozen=True):
    """The object of the action."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""

    @property
    def group_kind(self) -> tuple[str, str]:
        """Group and kind of the target, in any version."""
        return self.api_version.partition("/")[0], self.kind


class Command(WatchedObject, frozen=True):
    """A command; unlike other objects it has no spec."""

    action: str = ""
    target: Target = msgspec.field(default_factory=Target)


_COMMAND = msgspec.json.Decoder(Command)


def decode_command(raw: bytes | memoryview) -> Command:
    """Decode a Command."""
    return lenient_decode.decode(_COMMAND, raw)
