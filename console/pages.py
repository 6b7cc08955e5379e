"""Renders the pages from their data with templates; everything in them is escaped."""

import hashlib
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2

from console import drawing
from console.views.listing import Query
from controller.api.quantity import QuantityError, parse_quantity
from controller.cli.render.amounts import format_age, format_short
from controller.cli.render.explain import DIMENSIONS

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"

#: The pages of the navigation.
PAGES = (
    ("/", "Overview"),
    ("/queues", "Queues"),
    ("/workloads", "Workloads"),
    ("/hyperjobs", "HyperJobs"),
    ("/clusters", "Clusters"),
    ("/decisions", "Decisions"),
    ("/what-if", "What if"),
)

_SHORTENED = 160


@lru_cache(maxsize=1)
def _assets() -> str:
    """Return a digest of the static files, which are cached by browsers until it changes."""
    digest = hashlib.sha256()
    for path in sorted(STATIC.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def clock(at: str | None) -> str:
    """Format a time in UTC, with the date where it is not today."""
    if not at:
        return "-"
    moment = datetime.fromisoformat(at)
    return f"{_date(moment)}{moment:%H:%M} UTC"


def exact(at: str) -> str:
    """Format a time in UTC with seconds and milliseconds, with the date where it is not today."""
    moment = datetime.fromisoformat(at)
    return f"{_date(moment)}{moment:%H:%M:%S}.{moment.microsecond // 1000:03d} UTC"


def _date(moment: datetime) -> str:
    """Return what precedes the time of day: nothing today, the date without its year in this one."""
    today = datetime.now(UTC).date()
    if moment.date() == today:
        return ""
    return f"{moment:%d %b} " if moment.year == today.year else f"{moment:%d %b %Y} "


def _age(at: str, now: int) -> str:
    return format_age(int(datetime.fromisoformat(at).timestamp() * 1000), now) or "0s"


def _short(amount: str, resource: str) -> str:
    try:
        return format_short(resource, parse_quantity(resource, amount))
    except QuantityError:
        return amount


def _short_resource(name: str) -> str:
    return name.rpartition("/")[2]


def _shorten(text: str) -> str:
    return text if len(text) <= _SHORTENED else f"{text[: _SHORTENED - 1]}…"


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        clock=clock,
        exact=exact,
        age=_age,
        short=_short,
        short_resource=_short_resource,
        shorten=_shorten,
        dimension=lambda name: DIMENSIONS.get(name, name),
        bar=drawing.bar,
        band=drawing.band,
        series=drawing.series,
        tree=drawing.tree,
    )
    environment.globals["assets"] = _assets()
    return environment


def render(template: str, data: object, query: Query, *, path: str, title: str, **more: Any) -> str:
    """Return a page as HTML; *more* are further variables of the template."""
    of = "/decisions" if path == "/moment" else path
    section = next((known for known, _ in reversed(PAGES) if known != "/" and of.startswith(known)), "/")

    def link(**values: object) -> str:
        return f"{path}?{urlencode({**query.values, **values})}"

    context: dict[str, Any] = {
        "data": data,
        "link": link,
        "section": section,
        "title": title,
        "pages": PAGES,
        "time": None,
        "notice": "",
        "minute": 0,
        "username": "",
        "can_leave": False,
        "reload_seconds": 0,
        **more,
    }
    return _environment().get_template(template).render(context)


def main_of(page: str) -> str:
    """Return the content of ``<main>`` of a page, which live updates replace."""
    start = page.index('<main id="main" tabindex="-1">') + len('<main id="main" tabindex="-1">')
    return page[start : page.rindex("</main>")]
