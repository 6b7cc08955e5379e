"""The options that most commands share: input from files or the live control plane, and the output format."""

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

import msgspec
import typer

from controller.api.configuration import ConfigurationError, VolcanoGlobalConfiguration, load_configuration
from controller.api.events import Event
from controller.api.hyperjobs import HyperJob
from controller.cache.translate.units import to_milliseconds
from controller.cli.input.manifests import InputError
from controller.cli.input.objects import InputNote
from controller.cli.input.offline import capacity_of, read_offline_state
from controller.cli.input.snapshot import NotFoundError, Snapshot, take_snapshot
from controller.cli.render.output import Format, OutputStyle, escape, output_style, print_text, serialize
from controller.controllers.hyperjob.preview import Preview, preview
from controller.engine.state.workloads import Workload
from controller.kube.timing import wall_clock

if TYPE_CHECKING:
    from controller.kube.client import Api

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R", bound=msgspec.Struct)


class LiveReadError(Exception):
    """The live control plane cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """Values of the shared options."""

    files: tuple[str, ...]
    output: Format
    now: int
    kubeconfig: Path | None
    context: str | None
    configuration: Path | None
    verbose: bool

    def snapshot(self) -> Snapshot:
        """Return the state and plan from the files or the live control plane; print notes about files to stderr."""
        if not self.files:
            return self._live_snapshot()
        state = read_offline_state(self.files)
        self.print_notes(state.notes)
        return take_snapshot(state.store, self.now)

    def hyperjob_snapshot(self, namespace: str, name: str) -> tuple[Snapshot, HyperJob, Preview]:
        """Return the state and plan, and a HyperJob with its actual or expected parts; raise `NotFoundError`."""
        if self.files:
            state = read_offline_state(self.files)
            self.print_notes(state.notes)
            for split in state.splits:
                if (split.manifest.namespace, split.manifest.name) == (namespace, name):
                    return take_snapshot(state.store, self.now), split.hyperjob, split.preview
            raise NotFoundError(f"HyperJob {namespace}/{name} is not in the files")
        snapshot, hyperjob = self._live_hyperjob(namespace, name)
        return snapshot, hyperjob, preview(hyperjob, capacity_of(snapshot.state))

    def recorded_events(self, workload: Workload) -> tuple[Event, ...] | None:
        """Return the events of *workload* that the live control plane still stores; ``None`` for files."""
        if self.files:
            return None
        from controller.cli.input.live import events_of  # noqa: PLC0415 -- as in _read_live

        return self._read_live(lambda api: events_of(api, workload))

    def print_notes(self, notes: Iterable[InputNote]) -> None:
        """Print *notes* to stderr, minor ones with ``--verbose`` only."""
        for note in notes:
            if self.verbose or not note.is_minor:
                sys.stderr.write(f"note: {escape(note.text)}\n")

    def print_report(self, report: R, to_text: Callable[[R, OutputStyle], str]) -> None:
        """Print *report* in the requested format; *to_text* formats a table."""
        print_text(serialize(report, self.output) or to_text(report, output_style(sys.stdout)))

    def _live_snapshot(self) -> Snapshot:
        from controller.cli.input.live import live_snapshot  # noqa: PLC0415 -- as in _read_live

        configuration = _read_configuration(self.configuration)
        return self._read_live(lambda api: live_snapshot(api, configuration=configuration, now=self.now))

    def _live_hyperjob(self, namespace: str, name: str) -> tuple[Snapshot, HyperJob]:
        from controller.cli.input.live import find_hyperjob, live_snapshot  # noqa: PLC0415 -- as in _read_live

        configuration = _read_configuration(self.configuration)

        async def both(api: "Api") -> tuple[Snapshot, HyperJob]:
            hyperjob = await find_hyperjob(api, namespace, name)
            return await live_snapshot(api, configuration=configuration, now=self.now), hyperjob

        return self._read_live(both)

    def _read_live(self, read: "Callable[[Api], Awaitable[A]]") -> A:
        """Return the result of *read*, called with a client of the live control plane."""
        # Imported here, because importing the Kubernetes client takes longer than planning from files.
        from controller.cli.input.live import KindNotServedError  # noqa: PLC0415
        from controller.kube.client import Api  # noqa: PLC0415
        from controller.kube.errors import ApiError  # noqa: PLC0415
        from controller.kube.kubeconfig import KubeconfigError  # noqa: PLC0415

        async def read_and_close() -> A:
            async with Api.connect(self.kubeconfig, context=self.context, user_agent="volcano-global-cli") as api:
                return await read(api)

        try:
            return asyncio.run(read_and_close())
        except KubeconfigError as error:
            raise LiveReadError(f"{error}; to plan without a control plane, name files with -f") from error
        except (ApiError, KindNotServedError) as error:
            raise LiveReadError(str(error)) from error


def with_common_options(command: Callable[Concatenate[CommonOptions, P], None]) -> Callable[..., None]:
    """Add the shared options after those of *command*, and pass them as its first argument."""
    shared = inspect.signature(_parse_options).parameters
    own = list(inspect.signature(command).parameters.values())[1:]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        common = {name: arguments.pop(name) for name in shared}
        command(_parse_options(**common), **arguments)  # type: ignore[call-arg] # the remaining arguments are those of the command

    parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *shared.values()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads the signature
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _parse_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time; write it like 2006-01-02T15:04:05Z") from error
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _parse_options(  # noqa: PLR0913 -- the shared options are declared here only
    *,
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", hidden=True)] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "-f", "--filename", metavar="FILE", help="File or folder to read, - for standard input; repeat it."
        ),
    ] = None,
    output: Annotated[Format, typer.Option("-o", "--output", help="Output format.")] = Format.TABLE,
    now: Annotated[
        datetime | None,
        typer.Option(
            parser=_parse_time, metavar="TIME", help="Time of the plan, like 2006-01-02T15:04:05Z; by default now."
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Kubeconfig of the live control plane.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kubeconfig context; by default the current one.")
    ] = None,
    admission_configuration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="VolcanoGlobalConfiguration of the live control plane; by default the defaults."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="List ignored objects on stderr.")] = False,
) -> CommonOptions:
    files = (*(file or ()), *(more or ()))
    if files and (kubeconfig or context or admission_configuration):
        raise typer.BadParameter("-f reads files; remove the options for the live control plane")
    at = wall_clock() if now is None else to_milliseconds(now) or 0
    return CommonOptions(files, output, at, kubeconfig, context, admission_configuration, verbose)


def _read_configuration(path: Path | None) -> VolcanoGlobalConfiguration:
    if path is None:
        return VolcanoGlobalConfiguration()
    try:
        return load_configuration(path.read_text())
    except (OSError, ConfigurationError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}") from error
