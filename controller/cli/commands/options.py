"""The options that most commands share: input from files or the live control plane, and the output.

What reads and formats is imported when a command runs, so that `--help` and completion are fast.
"""

import functools
import inspect
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, ParamSpec, TypeVar

import typer

from controller.cli.errors import InputError
from controller.cli.render.output import (
    Format,
    Listing,
    OutputStyle,
    escape,
    output_style,
    print_text,
    progress_bar,
    serialize,
)

if TYPE_CHECKING:
    import msgspec

    from controller.api.events import Event
    from controller.api.hyperjobs import HyperJob
    from controller.cli.input.labels import Selector
    from controller.cli.input.objects import InputNote
    from controller.cli.input.snapshot import ActiveConfiguration, Snapshot, TemplateNames
    from controller.cli.input.what_if import Changes, WhatIf
    from controller.controllers.hyperjob.preview import Preview
    from controller.engine.state.workloads import Workload
    from controller.kube.client import Api

A = TypeVar("A")
P = ParamSpec("P")
E = TypeVar("E", bound=StrEnum)
R = TypeVar("R", bound="msgspec.Struct")

_WATCH_SECONDS = 2.0
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
"""The times that are read in objects: later ones leave no margin for sums of times."""
_LARGE_FILES = 1_000_000
"""Bytes that take about a second to read."""
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


class LiveReadError(Exception):
    """The live control plane cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """Values of the shared options."""

    files: tuple[str, ...]
    output: Format
    time: int | None
    """The time of the plan; ``None`` for the present."""
    kubeconfig: Path | None
    context: str | None
    configuration: Path | None
    karmada_namespace: str
    watch: bool
    strict: bool
    verbose: bool
    _printed: set[str] = field(default_factory=set)
    """Notes that were printed already."""

    @property
    def now(self) -> int:
        """Return the time of the plan."""
        return time.time_ns() // 1_000_000 if self.time is None else self.time

    def snapshot(self, what_if: "tuple[WhatIf, ...]" = ()) -> "Snapshot":
        """Return the state and plan from the files or the live control plane, after changes; print notes to stderr."""
        from controller.cli.input.what_if import Changes  # noqa: PLC0415 -- see the module

        changes = Changes(what_if, self.now)
        if not self.files:
            self._configuration_of_file()
            snapshot = self._read_live(lambda api: self._live_snapshot(api, changes))
            for note in changes.notes:
                self._print_note(note)
            return snapshot
        from controller.cli.input.manifests import no_progress  # noqa: PLC0415 -- see the module
        from controller.cli.input.offline import read_offline_state  # noqa: PLC0415

        shows = sys.stderr.isatty() and self._is_large()
        began = time.monotonic()
        state = read_offline_state(
            self.files,
            self.now,
            strict=self.strict,
            changes=changes,
            progress=progress_bar if shows else no_progress,
        )
        self.print_notes(state.notes)
        if shows or self.verbose:
            self._print_note(f"{state.summary}, read in {time.monotonic() - began:.1f} s")
        return state.snapshot(self.now)

    def hyperjob_snapshot(self, namespace: str, name: str) -> "tuple[Snapshot, HyperJob, Preview]":
        """Return the state and plan, and a HyperJob with its actual or expected parts; raise `NotFoundError`."""
        from controller.cli.input.offline import read_offline_state  # noqa: PLC0415 -- see the module

        if not self.files:
            return self._read_live(lambda api: self._live_hyperjob(api, namespace, name))
        state = read_offline_state(self.files, self.now, strict=self.strict)
        self.print_notes(state.notes)
        split = state.hyperjob(namespace, name)
        return state.snapshot(self.now), split.hyperjob, split.preview

    def recorded_events(self, workload: "Workload") -> "tuple[Event, ...] | None":
        """Return the events of *workload* that the live control plane still stores; ``None`` for files."""
        if self.files:
            return None
        from controller.cli.input.live import events_of  # noqa: PLC0415 -- see the module

        return self._read_live(lambda api: events_of(api, workload))

    def selected(self, selector: "Selector", snapshot: "Snapshot") -> "TemplateNames":
        """Return the queues and objects of workloads with labels that *selector* selects."""
        if snapshot.selected is not None:
            return snapshot.selected(selector)
        from controller.cli.input.live import selected_templates  # noqa: PLC0415 -- see the module

        return self._read_live(lambda api: selected_templates(api, selector, snapshot.configuration.values))

    def _is_large(self) -> bool:
        """Return whether reading the files takes long enough for progress and a summary on a terminal."""
        files = (entry for path in map(Path, self.files) for entry in (path.rglob("*") if path.is_dir() else (path,)))
        return sum(entry.stat().st_size for entry in files if entry.is_file()) > _LARGE_FILES

    def print_notes(self, notes: "Iterable[InputNote]") -> None:
        """Print *notes* to stderr, minor ones with ``--verbose`` only."""
        for note in notes:
            if self.verbose or not note.is_minor:
                self._print_note(note.text)

    def _print_note(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            sys.stderr.write(f"note: {escape(text)}\n")

    def show(
        self,
        build: "Callable[[Snapshot], R]",
        to_text: Callable[[R, OutputStyle], str] | Callable[[R], Listing],
    ) -> None:
        """Print the report that *build* makes of a snapshot, once or repeatedly."""

        def report() -> "tuple[Snapshot, R]":
            snapshot = self.snapshot()
            return snapshot, build(snapshot)

        self.show_report(report, to_text)

    def show_report(
        self,
        build: "Callable[[], tuple[Snapshot, R]]",
        to_text: Callable[[R, OutputStyle], str] | Callable[[R], Listing],
    ) -> None:
        """Print the report of *build*, once or, with ``--watch``, whenever it changes."""
        is_listing = len(inspect.signature(to_text).parameters) == 1
        if not is_listing:
            refuse_list_format(self.output)
        if not self.watch:
            print_text(self._format(*build(), to_text, is_listing=is_listing))
            return
        last = ""
        is_terminal = sys.stdout.isatty()
        while True:
            text = self._format(*build(), to_text, is_listing=is_listing)
            if text != last:
                if not print_text(f"{_CLEAR if is_terminal else ''}{text}"):
                    return
                last = text
            time.sleep(_WATCH_SECONDS)

    def _format(self, snapshot: "Snapshot", report: R, to_text: Callable[..., Any], *, is_listing: bool) -> str:
        configuration = snapshot.configuration
        head = {"configuration": {"revision": configuration.revision, "source": str(configuration.source)}}
        if (serialized := serialize(report, self.output, head)) is not None:
            return serialized
        style = output_style(sys.stdout)
        if not is_listing:
            return str(to_text(report, style))
        listing: Listing = to_text(report)
        return listing.format(self.output, style)

    def print_report(self, report: R, to_text: Callable[[R, OutputStyle], str]) -> None:
        """Print a report that is not of a snapshot."""
        print_report(report, self.output, to_text)

    def print_list(self, report: R, to_listing: Callable[[R], Listing]) -> None:
        """Print a list of objects that is not of a snapshot."""
        print_text(serialize(report, self.output) or to_listing(report).format(self.output, output_style(sys.stdout)))

    async def _live_snapshot(self, api: "Api", changes: "Changes | None" = None) -> "Snapshot":
        from controller.cli.input.live import live_snapshot  # noqa: PLC0415 -- see the module
        from controller.kube.errors import Forbidden  # noqa: PLC0415

        configuration, note = await self._configuration(api)
        namespace = self.karmada_namespace
        try:
            return await live_snapshot(api, configuration, namespace=namespace, now=self.now, changes=changes)
        except Forbidden:
            # Nothing is planned with this configuration; the visibility endpoint may answer instead.
            note = ""
            raise
        finally:
            if note:
                self._print_note(note)

    async def _live_hyperjob(self, api: "Api", namespace: str, name: str) -> "tuple[Snapshot, HyperJob, Preview]":
        from controller.cli.input.live import find_hyperjob  # noqa: PLC0415 -- see the module
        from controller.controllers.hyperjob.preview import preview  # noqa: PLC0415
        from controller.controllers.hyperjob.split import capacity_snapshot  # noqa: PLC0415

        hyperjob = await find_hyperjob(api, namespace, name)
        snapshot = await self._live_snapshot(api)
        capacity = capacity_snapshot(snapshot.engine, snapshot.configuration.values, snapshot.store.hyperjob_data)
        if capacity is None:
            raise AssertionError("a snapshot contains a plan")
        return snapshot, hyperjob, preview(hyperjob, capacity)

    async def _configuration(self, api: "Api") -> "tuple[ActiveConfiguration, str]":
        """Return the configuration of the option, or that of the controller; and a note which one it is."""
        from controller.cli.input.live import active_configuration  # noqa: PLC0415 -- see the module

        configuration = self._configuration_of_file()
        if configuration is not None:
            return configuration, f"configuration revision {configuration.revision}, of {self.configuration}"
        configuration, problem = await active_configuration(api, self.karmada_namespace)
        if problem:
            remedy = "name the controller's configuration with --configuration"
            return configuration, f"the default configuration is used, because {problem}; {remedy}"
        return configuration, f"configuration revision {configuration.revision}, published by the controller"

    def _configuration_of_file(self) -> "ActiveConfiguration | None":
        """Return the configuration that ``--configuration`` names; raise `InputError`."""
        from controller.cli.input.live import configuration_of_file  # noqa: PLC0415 -- see the module

        return None if self.configuration is None else configuration_of_file(self.configuration)

    def _read_live(self, read: "Callable[[Api], Awaitable[A]]") -> A:
        """Return the result of *read*, called with a client of the live control plane."""
        import asyncio  # noqa: PLC0415 -- see the module

        from controller.cli.input.live import KindNotServedError  # noqa: PLC0415 -- see the module
        from controller.kube.client import Api  # noqa: PLC0415
        from controller.kube.errors import ApiError, Unauthorized  # noqa: PLC0415
        from controller.kube.kubeconfig import KubeconfigError  # noqa: PLC0415

        async def read_and_close() -> A:
            async with Api.connect(self.kubeconfig, context=self.context, user_agent="volcano-global-cli") as api:
                return await read(api)

        try:
            return asyncio.run(read_and_close())
        except KubeconfigError as error:
            raise LiveReadError(f"{error}; to plan without a control plane, name files with -f") from error
        except Unauthorized as error:
            remedy = "sign in again, or use a kubeconfig with a valid token or client certificate"
            raise LiveReadError(f"{error}: the credentials are wrong or have expired; {remedy}") from error
        except (ApiError, KindNotServedError) as error:
            raise LiveReadError(str(error)) from error


def with_common_options(command: Callable[Concatenate[CommonOptions, P], None]) -> Callable[..., None]:
    """Add the shared options after those of *command*, and pass them as its first argument."""
    shared = dict(inspect.signature(_parse_options).parameters)
    own = list(inspect.signature(command).parameters.values())[1:]
    takes_names = any(parameter.name == "names" for parameter in own)
    shared = {name: parameter for name, parameter in shared.items() if name != "more" or not takes_names}

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        common = {name: arguments.pop(name) for name in shared}
        if takes_names:
            arguments["names"], common["more"] = _split_names(arguments["names"] or [], has_files=bool(common["file"]))
        command(_parse_options(**common), **arguments)  # type: ignore[call-arg] # the remaining arguments are those of the command

    parameters = [*(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own), *shared.values()]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # typer reads the signature
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _split_names(arguments: list[str], *, has_files: bool) -> tuple[list[str], list[str]]:
    """Return names, and files: the shell expands ``-f *.yaml`` to ``-f a.yaml b.yaml``."""
    files = [argument for argument in arguments if has_files and argument.endswith((".yaml", ".yml", ".json"))]
    return [argument for argument in arguments if argument not in files], files


def parse_job(name: str, namespace: str | None) -> tuple[str, str]:
    """Return namespace and name of ``NAME`` or ``NAMESPACE/NAME``; raise `InputError`."""
    from controller.cli.input.names import split_name  # noqa: PLC0415 -- see the module

    within, short = split_name(name)
    if within and namespace and within != namespace:
        raise InputError(f"{name!r} is not in namespace {namespace!r}; remove -n or the prefix")
    return within or namespace or "default", short


def choice_parser(kind: type[E]) -> Callable[[str], E]:
    """Return a parser of the values of *kind*, with a message in plain words."""

    def parse(text: str) -> E:
        try:
            return kind(text)
        except ValueError as error:
            *others, last = kind
            raise typer.BadParameter(f"{text!r} is unknown; write {', '.join(others)} or {last}") from error

    return parse


Output = Annotated[
    Format,
    typer.Option(
        "-o",
        "--output",
        parser=choice_parser(Format),
        metavar="FORMAT",
        autocompletion=lambda: list(Format),
        help="Output format: table, wide, name, csv, json or yaml; wide, name and csv are for lists of objects.",
    ),
]


def refuse_list_format(output: Format) -> None:
    """Raise `typer.BadParameter` for a format of lists, before the work for a report that is none."""
    if output in {Format.CSV, Format.NAME}:
        raise typer.BadParameter(f"-o {output} is for lists of objects; use table, json or yaml")


def refuse_empty_names(files: Iterable[str]) -> None:
    """Raise `typer.BadParameter` for a file without a name: it would be the current folder."""
    if "" in files:
        raise typer.BadParameter("the name of a file is empty; is a variable not set?")


def print_report(report: R, output: Format, to_text: Callable[[R, OutputStyle], str]) -> None:
    """Print a report that is not a list of objects."""
    refuse_list_format(output)
    print_text(serialize(report, output) or to_text(report, output_style(sys.stdout)))


def _parse_time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a time; write it like 2006-01-02T15:04:05Z") from error
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    if not _EARLIEST <= at <= _LATEST:
        raise typer.BadParameter(f"{text!r} is not between {_EARLIEST.year} and {_LATEST.year}")
    return at


def _parse_options(  # noqa: PLR0913 -- the shared options are declared here only
    *,
    more: Annotated[list[str] | None, typer.Argument(metavar="FILE", hidden=True)] = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "-f", "--filename", metavar="FILE", help="File or folder to read, - for standard input; repeat it."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Make unknown fields and kinds in files errors instead of notes.")
    ] = False,
    output: Output = Format.TABLE,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Print again whenever the result changes.")] = False,
    now: Annotated[
        datetime | None,
        typer.Option(
            "--now",
            "--at",
            parser=_parse_time,
            metavar="TIME",
            help="Time of the plan, like 2006-01-02T15:04:05Z; by default now.",
        ),
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Kubeconfig of the live control plane.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="NAME", help="Kubeconfig context; by default the current one.")
    ] = None,
    configuration: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="VolcanoGlobalConfiguration for the live control plane; by default the one that its controller "
            "has published.",
        ),
    ] = None,
    karmada_namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Namespace in which the controller publishes its configuration.")
    ] = "karmada-system",
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="List ignored objects on stderr.")] = False,
) -> CommonOptions:
    files = (*(file or ()), *(more or ()))
    refuse_empty_names(files)
    of_live = {"--kubeconfig": kubeconfig, "--context": context, "--configuration": configuration}
    if files and (live := [option for option, value in of_live.items() if value]):
        remedy = "; a VolcanoGlobalConfiguration is read with -f, too" if configuration else ""
        raise typer.BadParameter(
            f"-f reads files; remove the options for the live control plane: {', '.join(live)}{remedy}"
        )
    if watch and "-" in files:
        raise typer.BadParameter("standard input can be read once only; remove --watch")
    at = None if now is None else int(now.timestamp() * 1000)
    return CommonOptions(
        files, output, at, kubeconfig, context, configuration, karmada_namespace, watch, strict, verbose
    )
