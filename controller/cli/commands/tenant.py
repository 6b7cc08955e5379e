"""Lets commands fall back to the visibility endpoint for users that may not list clusters, queues and bindings."""

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from controller.cli.commands.options import CommonOptions, LiveReadError
from controller.cli.render.output import escape

if TYPE_CHECKING:
    from controller.api.visibility import VisibleWorkloads


def with_tenant_fallback(command: Callable[..., None]) -> Callable[..., None]:
    """Answer *command* for one namespace, or for its Job, where the control plane forbids reading all of it."""

    @functools.wraps(command)
    def run(options: CommonOptions, *arguments: Any, **named: Any) -> None:
        try:
            command(options, *arguments, **named)
        except LiveReadError as error:
            if not _is_forbidden(error):
                raise
            within, _, name = str(named.get("name") or "").rpartition("/")
            _answer(options, within or named.get("namespace") or "default", name, error)

    return run


def _is_forbidden(error: LiveReadError) -> bool:
    from controller.kube.errors import Forbidden  # noqa: PLC0415 -- importing the client takes long

    return isinstance(error.__cause__, Forbidden)


def _answer(options: CommonOptions, namespace: str, name: str, error: LiveReadError) -> None:
    import asyncio  # noqa: PLC0415 -- `--help` of every command imports this module

    from controller.cli.input.visibility import VisibilityError  # noqa: PLC0415 -- importing the client takes long
    from controller.cli.render.visibility import pending_text, workload_text  # noqa: PLC0415

    try:
        report = asyncio.run(_read(options, namespace, name))
    except VisibilityError as problem:
        raise LiveReadError(f"{error}\nthe visibility endpoint: {problem}") from problem
    if name and not report.items:
        raise LiveReadError(
            f"Job {namespace}/{name} is not known: no policy selects it, or it does not exist"
        ) from error
    sys.stderr.write(f"note: {escape(f'only namespace {namespace} is shown, as the controller answers it')}\n")
    options.print_report(report, workload_text if name else pending_text)


async def _read(options: CommonOptions, namespace: str, name: str) -> "VisibleWorkloads":
    from controller.cli.input.visibility import visible_workloads  # noqa: PLC0415 -- importing the client takes long
    from controller.kube.client import Api  # noqa: PLC0415

    async with Api.connect(options.kubeconfig, context=options.context, user_agent="volcano-global-cli") as api:
        return await visible_workloads(api, namespace, name, karmada_namespace=options.karmada_namespace)
