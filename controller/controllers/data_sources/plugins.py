"""Plugins that locate data sets, with their settings from the ConfigMap, and the static locations.

A plugin serves one data system. Its settings are read as upstream's controller writes them; what it answers is not
trusted: it can only select among the clusters of its settings. Messages of `LocateError` reach tenants, so they contain
no addresses, locations or clusters.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol

import msgspec
import structlog

from controller.api.configuration import StaticLocation
from controller.api.data_sources import DataSet

#: Limits of the settings of a plugin.
_MAX_LOCATIONS = 10_000
_MAX_RETRIES = 10
_MAX_SECONDS = 300.0

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}

log: structlog.typing.FilteringBoundLogger = structlog.get_logger()

Text = Annotated[str, msgspec.Meta(max_length=2048)]


class LocateError(Exception):
    """A data set could not be located; the message is for the tenant.

    *is_final*: the system answered that it does not have the data, or not where a cluster is; otherwise it could not be
    asked.
    """

    def __init__(self, message: str, *, reason: str, is_final: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        """Reason of the condition of the claim, and label of the metric."""
        self.is_final = is_final


class Plugin(Protocol):
    """Locates data sets of one system."""

    async def locate(self, data_set: DataSet) -> tuple[str, ...]:
        """Return the clusters that hold *data_set*; raise `LocateError`."""


class Authentication(msgspec.Struct, rename="camel", frozen=True):
    """How a plugin authenticates: ``basic``, ``bearer`` or ``token``, ``apikey``, or not."""

    type: Text = ""
    username: Text = ""
    password: Text = ""
    token: Text = ""
    extra: dict[str, Text] = msgspec.field(default_factory=dict)


class Tls(msgspec.Struct, rename="camel", frozen=True):
    """Verification of the server; without a CA file, by the CAs of the image."""

    enabled: bool = False
    insecure_skip_verify: bool = False
    ca_file: Text = ""
    cert_file: Text = ""
    key_file: Text = ""


class Endpoint(msgspec.Struct, rename="camel", frozen=True):
    """Address of the data system."""

    url: Text = ""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    auth: Authentication = Authentication()
    tls: Tls = Tls()


class RetryOptions(msgspec.Struct, rename="camel", frozen=True):
    """Retries of one request; durations are written as in Go."""

    max_retries: Annotated[int, msgspec.Meta(ge=0)] = 3
    initial_backoff: str = "1s"
    max_backoff: str = "30s"
    backoff_multiplier: Annotated[float, msgspec.Meta(ge=1, le=100)] = 2.0
    timeout: str = "30s"


class PluginOptions(msgspec.Struct, rename="camel", frozen=True):
    """Settings of one plugin: the value of its key in the ConfigMap."""

    system: Text = ""
    endpoint: Endpoint = Endpoint()
    location_mapping: dict[str, list[str]] = msgspec.field(default_factory=dict)
    retry_config: RetryOptions = RetryOptions()

    @property
    def retries(self) -> int:
        """How often a request is repeated."""
        return min(self.retry_config.max_retries, _MAX_RETRIES)

    @property
    def timeout_seconds(self) -> float:
        """Limit of one request; it is never unlimited."""
        return duration_seconds(self.retry_config.timeout) or _MAX_SECONDS

    def backoff_seconds(self, attempt: int) -> float:
        """Return the time before repetition *attempt*, the first of which is 0."""
        retry = self.retry_config
        delay = duration_seconds(retry.initial_backoff) * retry.backoff_multiplier ** min(attempt, 32)
        return min(delay, duration_seconds(retry.max_backoff), _MAX_SECONDS)


def duration_seconds(text: str) -> float:
    """Return a duration as Go writes it, such as ``1m30s``, in seconds, at most five minutes; raise `ValueError`."""
    if not text:
        return 0.0
    if _DURATION.sub("", text):
        raise ValueError(f"{text[:40]!r} is not a duration; write for example 500ms, 30s or 1m30s")
    return min(sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text)), _MAX_SECONDS)


_OPTIONS = msgspec.json.Decoder(PluginOptions)


def read_options(text: str) -> PluginOptions:
    """Return the settings in *text*; raise `ValueError`, without their values."""
    try:
        options = _OPTIONS.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if len(options.location_mapping) > _MAX_LOCATIONS:
        raise ValueError(f"locationMapping has more than {_MAX_LOCATIONS} entries")
    if not options.endpoint.url.startswith(("http://", "https://")):
        raise ValueError("endpoint.url must begin with http:// or https://")
    retry = options.retry_config
    for duration in (retry.initial_backoff, retry.max_backoff, retry.timeout):
        duration_seconds(duration)
    return options


def map_location(mapping: Mapping[str, Sequence[str]], location: str) -> tuple[str, ...]:
    """Return the clusters of the longest prefix of *location* in *mapping*, empty if there is none."""
    prefix = max((prefix for prefix in mapping if location.startswith(prefix)), key=len, default=None)
    return tuple(sorted(set(mapping[prefix]))) if prefix is not None else ()


CreatePlugin = Callable[[PluginOptions], Plugin]
"""Returns the plugin with these settings."""


class Plugins:
    """The static locations, and the configured plugins by system."""

    def __init__(self, create: Mapping[str, CreatePlugin]) -> None:
        self._create = create
        """Known plugins by name, which is the key of their settings."""
        self._static: tuple[StaticLocation, ...] = ()
        self._texts: dict[str, str] = {}
        self._plugins: dict[str, Plugin | None] = {}
        """Plugins by system; ``None`` where the settings are invalid."""

    @property
    def systems(self) -> frozenset[str]:
        """Systems with settings."""
        return frozenset(self._plugins)

    def set_static(self, locations: tuple[StaticLocation, ...]) -> frozenset[str]:
        """Set the static locations; return the systems that this concerns."""
        before, self._static = self._static, locations
        return frozenset() if before == locations else frozenset(location.system for location in (*before, *locations))

    def configure(self, texts: Mapping[str, str]) -> frozenset[str]:
        """Set the settings of the plugins, by name; return the systems with changed settings."""
        changed = {name for name in {*self._texts, *texts} if self._texts.get(name) != texts.get(name)}
        self._texts = dict(texts)
        for name in sorted(changed):
            self._plugins.pop(name, None)
            if name in texts:
                self._plugins[name] = self._read(name, texts[name])
        return frozenset(changed)

    def _read(self, name: str, text: str) -> Plugin | None:
        create = self._create.get(name)
        try:
            if create is None:
                raise ValueError(f"there is no such plugin; known are {', '.join(sorted(self._create))}")
            return create(read_options(text))
        except (ValueError, OSError) as error:
            log.error("plugin settings rejected", plugin=name, error=str(error))  # noqa: TRY400 -- the message suffices
            return None

    def serves(self, data_set: DataSet) -> bool:
        """Return whether a plugin or a static location is responsible for *data_set*."""
        return data_set.system in self._plugins or self.static_clusters(data_set) is not None

    async def locate(self, data_set: DataSet) -> tuple[str, ...]:
        """Return the clusters that hold *data_set*, sorted; raise `LocateError`."""
        static = self.static_clusters(data_set)
        if static is not None:
            return static
        if data_set.system not in self._plugins:
            remedy = "name its data in dataSources of the configuration, or create a DataSource"
            raise LocateError(f"no plugin serves system {data_set.system!r}; {remedy}", reason="PluginMissing")
        plugin = self._plugins[data_set.system]
        if plugin is None:
            raise LocateError(f"the plugin {data_set.system!r} is not configured correctly", reason="PluginInvalid")
        return await plugin.locate(data_set)

    def static_clusters(self, data_set: DataSet) -> tuple[str, ...] | None:
        """Return the configured clusters of *data_set*, sorted; ``None`` if there are none."""
        match = next((location for location in self._static if _is_at(location, data_set)), None)
        return None if match is None else tuple(sorted(set(match.clusters)))


def _is_at(location: StaticLocation, data_set: DataSet) -> bool:
    if location.system != data_set.system or location.type not in {"", data_set.type}:
        return False
    if location.name.endswith("*"):
        return data_set.name.startswith(location.name[:-1])
    return data_set.name == location.name
