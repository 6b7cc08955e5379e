"""The description of one mutation."""

from dataclasses import dataclass

from tests.mutants.transformations import Transformation


@dataclass(frozen=True, slots=True)
class Mutant:
    """A mutation of one function or class."""

    name: str
    module: str
    definition: str
    """The function or class within the module, such as ``Actuator._send``."""
    transformation: Transformation
    caught_by: str
    """The test that must fail."""

    @property
    def file(self) -> str:
        """Path of the module in the repository."""
        return f"{self.module.replace('.', '/')}.py"
