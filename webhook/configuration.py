"""The webhook's part of the operators' AdmissionConfiguration: which kinds are gated, and where nothing is.

The file is the controller's too, and it is the controller that refuses unknown keys in it.
"""

from pathlib import Path
from typing import Literal

import structlog
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from webhook.resourcebindings import VOLCANO_JOB, Gate, GroupKind

log = structlog.get_logger(__name__)


class ConfigurationError(Exception):
    """The file is no AdmissionConfiguration; the message names the field."""


class Workload(BaseModel):
    """A further kind to gate; the rest of the entry is the controller's."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    group: str = Field(description="API group, empty for the core one")
    kind: str = Field(min_length=1)


class AdmissionConfiguration(BaseModel):
    """The webhook's part of the operators' configuration; the controller refuses unknown keys, here they pass."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel)

    api_version: Literal["config.volcano-global.io/v1alpha1"]
    kind: Literal["AdmissionConfiguration"]
    workloads: tuple[Workload, ...] = ()
    exempt_namespaces: frozenset[str] = frozenset()


def parse_gate(text: str) -> Gate:
    """Return the gate that an AdmissionConfiguration document describes."""
    try:
        configuration = AdmissionConfiguration.model_validate(yaml.safe_load(text))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"the AdmissionConfiguration is no YAML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "document"
        raise ConfigurationError(f"the AdmissionConfiguration's {field}: {first['msg']}") from error
    further = (GroupKind(workload.group, workload.kind) for workload in configuration.workloads)
    return Gate(frozenset({VOLCANO_JOB, *further}), configuration.exempt_namespaces)


class Configuration:
    """The configuration in force, read again when its file changes; a bad file leaves the old one in force."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self._text: str | None = None
        self._trouble: str | None = None
        self.gate = Gate()
        if file:
            self._read(file)

    def refresh(self) -> None:
        """Take what is new in the file."""
        if self._file is None:
            return
        try:
            self._read(self._file)
            self._trouble = None
        except ConfigurationError as error:
            if str(error) != self._trouble:
                log.warning("configuration not loaded", file=str(self._file), reason=str(error))
            self._trouble = str(error)

    def _read(self, file: Path) -> None:
        try:
            text = file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"the AdmissionConfiguration cannot be read: {error}") from error
        if text != self._text:
            self.gate = parse_gate(text)
            self._text = text
            log.info("configuration loaded", file=str(file))
