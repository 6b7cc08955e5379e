"""Keep the webhook's certificates: `python -m certs --help`."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import structlog
import typer

from certs.authority import AuthorityError
from certs.directory import Directory
from certs.injection import InjectionError, publish
from certs.store import ConflictError, Store
from certs.upkeep import AUTHORITY, SERVING, Lives, Part, ensure_authority, ensure_leaf, examine_authority, examine_leaf
from controller.kube import Api, ApiError, KubeconfigError

# Others that write at the same time are rare, and each of their writes brings the goal nearer.
_ATTEMPTS = 3

app = typer.Typer(
    help="The webhook's certificates: a CA of its own and the serving certificate.",
    no_args_is_help=True,
    add_completion=False,
)

DirectoryOption = Annotated[Path, typer.Option(help="Folder to keep them in; the webhook reads its part `serving`.")]
DnsOption = Annotated[list[str] | None, typer.Option(help="DNS name the webhook is called by; may be repeated.")]
IpOption = Annotated[list[str] | None, typer.Option(help="Address the webhook is called by; may be repeated.")]


@app.command()
def ensure(
    *,
    directory: DirectoryOption,
    dns: DnsOption = None,
    ip: IpOption = None,
    webhook_configuration: Annotated[
        list[str] | None, typer.Option(help="Webhook configuration to publish the CA bundle in; may be repeated.")
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Way to the API server that has it.")] = None,
) -> None:
    """Renew what is due and publish the CA bundle; with nothing due, nothing is written.

    The serving certificate is renewed only once the bundle is published: what is served can always be verified.
    """
    names = [*(dns or ()), *(ip or ())]
    if not names:
        raise typer.BadParameter("name at least one --dns or --ip that the API server calls the webhook by")
    lives = Lives()
    store = Directory(directory)
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            bundle = ensure_authority(store, utc_now(), lives)
            asyncio.run(publish_all(kubeconfig, webhook_configuration or (), bundle))
            ensure_leaf(store, names, now=utc_now(), lives=lives)
        except ConflictError:
            if attempt == _ATTEMPTS:
                raise
        else:
            return


@app.command()
def status(*, directory: DirectoryOption, dns: DnsOption = None, ip: IpOption = None) -> None:
    """Print what is there and when it must be renewed."""
    store: Store = Directory(directory)
    now = utc_now()
    authority = examine_authority(store, now)
    leaf = examine_leaf(store, authority, wanted=frozenset((*(dns or ()), *(ip or ()))), now=now)
    for name, part in ((AUTHORITY, authority), (SERVING, leaf)):
        typer.echo(describe(name, part))


def describe(name: str, part: Part) -> str:
    """Return a line about a kept certificate."""
    if part.pair is None:
        return f"{name}: must be renewed now: {part.reason}"
    life = part.pair.lifetime
    made_out = f", made out to {', '.join(sorted(part.pair.names))}" if part.pair.names else ""
    due = (
        f"must be renewed now: {part.reason}" if part.reason else f"to be renewed from {life.due():%Y-%m-%d %H:%M} UTC"
    )
    return f"{name}: valid until {life.ends:%Y-%m-%d %H:%M} UTC{made_out}; {due}"


async def publish_all(kubeconfig: Path | None, configurations: Sequence[str], bundle: bytes) -> None:
    """Publish *bundle* in every one of *configurations*; without any, nothing is asked of an API server."""
    if not configurations:
        return
    async with Api.connect(kubeconfig, user_agent="volcano-global-certs") as api:
        for configuration in configurations:
            await publish(api, configuration, bundle)


def utc_now() -> datetime:
    """Return the time by which certificates are judged."""
    return datetime.now(UTC)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command, the process's own by default; a failure is a sentence and exit code 1."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
    )
    try:
        app(args=arguments, prog_name="python -m certs")
    except (AuthorityError, ConflictError, InjectionError, ApiError, KubeconfigError, OSError) as error:
        sys.exit(f"certs: {error}")


if __name__ == "__main__":
    main()
