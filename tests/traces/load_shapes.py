"""The named shapes of loads and their generators."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tests.traces.alibaba import alibaba_load
from tests.traces.cohorts import THIRTY, THOUSAND, cohorts_load, gang_load
from tests.traces.helios import helios_load
from tests.traces.load import Load, LoadSize
from tests.traces.philly import philly_load


class LoadShape(StrEnum):
    """Names of the load shapes."""

    GANG = "gang"
    COHORTS_30 = "cohorts-30"
    COHORTS_1000 = "cohorts-1000"
    PHILLY = "philly"
    HELIOS = "helios"
    ALIBABA = "alibaba"


class SizeError(ValueError):
    """A size that is invalid or that a shape does not support; the message names it."""


@dataclass(frozen=True, slots=True)
class LoadGenerator:
    """Generator function of a shape, and the sizes that it accepts."""

    generate: Callable[[LoadSize], Load]
    accepts: frozenset[str] = frozenset({"jobs", "queues", "clusters", "load"})
    defaults: Mapping[str, int] = field(default_factory=dict)


GENERATORS: Mapping[LoadShape, LoadGenerator] = MappingProxyType(
    {
        LoadShape.GANG: LoadGenerator(lambda size: gang_load(size.jobs), frozenset({"jobs"}), {"jobs": 5}),
        LoadShape.COHORTS_30: LoadGenerator(
            lambda size: cohorts_load(THIRTY, clusters=size.clusters), frozenset({"clusters"}), {"clusters": 1}
        ),
        LoadShape.COHORTS_1000: LoadGenerator(
            lambda size: cohorts_load(THOUSAND, clusters=size.clusters), frozenset({"clusters"}), {"clusters": 1}
        ),
        LoadShape.PHILLY: LoadGenerator(philly_load),
        LoadShape.HELIOS: LoadGenerator(helios_load),
        LoadShape.ALIBABA: LoadGenerator(alibaba_load),
    }
)


def generate_load(shape: LoadShape, seed: int, **sizes: int | None) -> Load:
    """Return a load of *shape*; sizes that are ``None`` have the shape's defaults. Raise `SizeError`."""
    generator = GENERATORS[shape]
    asked = {name: size for name, size in sizes.items() if size is not None}
    for name, size in asked.items():
        if name not in generator.accepts:
            raise SizeError(f"{shape} does not accept {name}; it accepts {' and '.join(sorted(generator.accepts))}")
        if size < 1:
            raise SizeError(f"{name} is {size}; write 1 or more")
    return generator.generate(LoadSize(seed=seed, **{**generator.defaults, **asked}))
