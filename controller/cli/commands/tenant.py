"""Lets commands ask the visibility endpoint, on request or where the user may not list clusters and bindings."""

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.cli.commands.options import CommonOptions, LiveReadError, parse_job
from controller.cli.render.output import escape

if TYPE_CHECKING:
    from controller.api.visibility import VisibleWorkloads
    from controller.cli.input.visibility import ServerAddress

#: Options of the commands that the endpoint does not know.
_NOT_APPLIED = {
    "names": "names",
    "queue": "--queue",
    "all_namespaces": "--all-namespaces",
    "selector": "--selector",
    "sort_by": "--sort-by",
}


def _server_options(
    *,
    server_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Ask the visibility endpoint at this address about one namespace; the control plane is not read.",
        ),
    ] = None,
    server_ca: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CA certificates of that endpoint; by default those of the system."),
    ] = None,
) -> "ServerAddress | None":
    """Return the address of the options."""
    from controller.cli.input.visibility import address_of  # noqa: PLC0415 -- importing the client takes long

    if server_ca is not None and server_url is None:
        raise typer.BadParameter("--server-ca needs --server-url")
    return None if server_url is None else address_of(server_url, server_ca)


def with_tenant_fallback(command: Callable[..., None]) -> Callable[..., None]:
    """Answer *command* for one namespace, or for its Job, where the control plane forbids reading all of it."""
    own = inspect.signature(command)
    added = dict(inspect.signature(_server_options).parameters)

    @functools.wraps(command)
    def run(options: CommonOptions, *arguments: Any, **named: Any) -> None:
        server = {name: named.pop(name, None) for name in added}
        namespace, name = named.get("namespace") or "default", ""
        if "name" in named:
            namespace, name = parse_job(named["name"], named["namespace"])
        ignored = [flag for option, flag in _NOT_APPLIED.items() if named.get(option)]
        ignored += ["--watch"] * options.watch
        if any(server.values()):
            if options.files:
                raise typer.BadParameter("-f reads files; remove the options for the visibility endpoint")
            _answer(options, namespace, name, address=_server_options(**server))
            _note_ignored(ignored)
            return
        try:
            command(options, *arguments, **named)
        except LiveReadError as error:
            if not _is_forbidden(error):
                raise
            _answer(options, namespace, name, error=error)
            _note_ignored(ignored)

    run.__signature__ = own.replace(parameters=[*own.parameters.values(), *added.values()])  # type: ignore[attr-defined] # read by with_common_options
    return run


def _note_ignored(flags: list[str]) -> None:
    if flags:
        sys.stderr.write(f"note: the endpoint does not apply {', '.join(flags)}\n")


def _is_forbidden(error: LiveReadError) -> bool:
    from controller.kube.errors import Forbidden  # noqa: PLC0415 -- importing the client takes long

    return isinstance(error.__cause__, Forbidden)


def _answer(
    options: CommonOptions,
    namespace: str,
    name: str,
    *,
    address: "ServerAddress | None" = None,
    error: LiveReadError | None = None,
) -> None:
    import asyncio  # noqa: PLC0415 -- `--help` of every command imports this module

    from controller.cli.input.visibility import VisibilityError  # noqa: PLC0415 -- importing the client takes long
    from controller.cli.render.visibility import pending_listing, workload_text  # noqa: PLC0415
    from controller.kube.kubeconfig import KubeconfigError  # noqa: PLC0415

    try:
        report = asyncio.run(_read(options, namespace, name, address))
    except (VisibilityError, KubeconfigError) as problem:
        before = f"{error}\n" if error else ""
        raise LiveReadError(f"{before}the visibility endpoint: {problem}") from problem
    if name and not report.items:
        raise LiveReadError(
            f"Job {namespace}/{name} is not known: no policy selects it, or it does not exist"
        ) from error
    sys.stderr.write(f"note: {escape(f'only namespace {namespace} is shown, as the controller answers it')}\n")
    if name:
        options.print_report(report, workload_text)
    else:
        options.print_list(report, pending_listing)


async def _read(
    options: CommonOptions, namespace: str, name: str, address: "ServerAddress | None"
) -> "VisibleWorkloads":
    from controller.cli.input.visibility import published_address, visible_workloads  # noqa: PLC0415 -- as above
    from controller.kube.client import Api  # noqa: PLC0415

    async with Api.connect(options.kubeconfig, context=options.context, user_agent="volcano-global-cli") as api:
        server = address or await published_address(api, options.karmada_namespace)
        return await visible_workloads(api, server, namespace, name)
