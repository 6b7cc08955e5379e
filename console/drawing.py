"""Draws bars, series, the tree of queues and forecasts as SVG, so that pages need no script and no inline style."""

from collections.abc import Iterator
from datetime import datetime

from markupsafe import Markup, escape

from console.views.listing import Bar
from console.views.queues import Series, TreeNode
from controller.cli.render.plan import StartReport

_BAR_WIDTH, _BAR_HEIGHT = 240, 14
_SERIES_WIDTH, _SERIES_HEIGHT = 560, 120
_NODE_WIDTH, _NODE_HEIGHT, _NODE_GAP, _LEVEL_GAP = 190, 46, 10, 46
_BAND_HOURS = 24


def bar(shown: Bar) -> Markup:
    """Draw one bar: usage, the borrowed or external part, what is set aside, and a mark at the fair share."""
    parts, at = [], 0.0
    for part, name in (
        (shown.used_part, "used"),
        (shown.borrowed_part, "borrowed"),
        (shown.external_part, "external"),
        (shown.reserved_part, "reserved"),
    ):
        if part > 0:
            x, width = round(at * _BAR_WIDTH, 1), round(part * _BAR_WIDTH, 1)
            parts.append(f'<rect class="{name}" x="{x:g}" width="{width:g}" height="{_BAR_HEIGHT}"/>')
            at += part
    if shown.fair_part > 0:
        x = min(round(shown.fair_part * _BAR_WIDTH, 1), _BAR_WIDTH - 1)
        parts.append(f'<rect class="fair" x="{x - 1:g}" y="-2" width="2" height="{_BAR_HEIGHT + 4}"/>')
    return Markup(  # noqa: S704 -- numbers, and escaped names
        f'<svg class="bar" viewBox="0 -2 {_BAR_WIDTH} {_BAR_HEIGHT + 4}" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}"/>{"".join(parts)}</svg>'
    )


def series(shown: Series) -> Markup:
    """Draw the usage of a resource over time, with a line at the fair share."""
    count = max(len(shown.points) - 1, 1)
    points = [
        (round(number * _SERIES_WIDTH / count, 1), round((1 - point.used) * _SERIES_HEIGHT, 1))
        for number, point in enumerate(shown.points)
    ]
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    last = points[-1][0] if points else 0
    fair = round((1 - min(shown.fair_part, 1)) * _SERIES_HEIGHT, 1)
    area = f'<polygon class="area" points="0,{_SERIES_HEIGHT} {line} {last:g},{_SERIES_HEIGHT}"/>' if points else ""
    return Markup(  # noqa: S704 -- numbers, and escaped names
        f'<svg class="series" viewBox="0 0 {_SERIES_WIDTH} {_SERIES_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="usage of {escape(shown.resource)} over time">{area}<polyline class="line" points="{line}"/>'
        f'<line class="fair" x1="0" x2="{_SERIES_WIDTH}" y1="{fair:g}" y2="{fair:g}"/></svg>'
    )


def band(start: StartReport, now: str | None) -> Markup:
    """Draw when a workload starts in the next 24 hours: from the 10th to the 90th percentile, a mark at the median."""
    began = _seconds(now)
    low, middle, high = (_part(_seconds(at) - began) if at else 1.0 for at in (start.p10, start.p50, start.p90))
    x, width = round(low * _BAR_WIDTH, 1), max(round((high - low) * _BAR_WIDTH, 1), 2)
    mark = min(round(middle * _BAR_WIDTH, 1), _BAR_WIDTH - 2)
    hours = "".join(
        f'<line class="hour" x1="{hour * _BAR_WIDTH // _BAND_HOURS}" x2="{hour * _BAR_WIDTH // _BAND_HOURS}" '
        f'y1="0" y2="{_BAR_HEIGHT}"/>'
        for hour in range(6, _BAND_HOURS, 6)
    )
    return Markup(  # noqa: S704 -- numbers, and escaped names
        f'<svg class="bar band" viewBox="0 -2 {_BAR_WIDTH} {_BAR_HEIGHT + 4}" preserveAspectRatio="none" '
        f'aria-hidden="true"><rect class="track" width="{_BAR_WIDTH}" height="{_BAR_HEIGHT}"/>{hours}'
        f'<rect class="interval" x="{x:g}" width="{width:g}" height="{_BAR_HEIGHT}"/>'
        f'<rect class="median" x="{mark:g}" y="-2" width="2" height="{_BAR_HEIGHT + 4}"/></svg>'
    )


def _seconds(at: str | None) -> float:
    return datetime.fromisoformat(at).timestamp() if at else 0.0


def _part(seconds: float) -> float:
    return min(max(seconds / (_BAND_HOURS * 3600), 0.0), 1.0)


def tree(root: TreeNode) -> Markup:
    """Draw the tree of queues from left to right; each queue is a link to its page, and each title to its subtree."""
    rows = list(_layout(root, 0, [0]))
    height = max(y for _, _, y, _ in rows) + _NODE_HEIGHT + 8
    width = (max(depth for _, depth, _, _ in rows) + 1) * (_NODE_WIDTH + _LEVEL_GAP)
    parts = [_edge(depth, y, of) for _, depth, y, of in rows if of is not None]
    parts += [_node(node, depth, y) for node, depth, y, _ in rows]
    return Markup(  # noqa: S704 -- numbers, and escaped names
        f'<svg class="tree" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="group" '
        f'aria-label="tree of queues">{"".join(parts)}</svg>'
    )


def _layout(
    node: TreeNode, depth: int, free: list[int], of: int | None = None
) -> Iterator[tuple[TreeNode, int, int, int | None]]:
    """Yield each queue with its depth, its top and the top of its parent; *free* is the next free row."""
    y = 4 + free[0] * (_NODE_HEIGHT + _NODE_GAP)
    yield node, depth, y, of
    for number, child in enumerate(node.children):
        if number:
            free[0] += 1
        yield from _layout(child, depth + 1, free, y)


def _edge(depth: int, y: int, of: int) -> str:
    x = depth * (_NODE_WIDTH + _LEVEL_GAP)
    left, middle, half = x - _LEVEL_GAP, x - _LEVEL_GAP // 2, _NODE_HEIGHT // 2
    return f'<path class="edge" d="M{left} {of + half}H{middle}V{y + half}H{x}"/>'


def _node(node: TreeNode, depth: int, y: int) -> str:
    row, x = node.row, depth * (_NODE_WIDTH + _LEVEL_GAP)
    shown = row.bars[0] if row.bars else None
    inner = _NODE_WIDTH - 20
    used = round(inner * (shown.used_part if shown else 0), 1)
    borrowed = round(inner * (shown.borrowed_part if shown else 0), 1)
    fair = round(inner * (shown.fair_part if shown else 0), 1)
    name = str(escape(row.name if len(row.name) < 21 else f"{row.name[:19]}…"))  # noqa: PLR2004 -- characters that fit
    full = str(escape(row.name))
    label = f"{full}: {row.pending} pending, {row.admitted} admitted"
    count = f'<text class="more" x="{x + _NODE_WIDTH + 6}" y="{y + 28}">+{node.hidden}</text>'
    more = f'<a href="/queues?below={full}">{count}</a>' if node.hidden else ""
    return (
        f'<a href="/queues/{full}" aria-label="{label}"><rect class="node" x="{x}" y="{y}" width="{_NODE_WIDTH}" '
        f'height="{_NODE_HEIGHT}" rx="6"/><text x="{x + 10}" y="{y + 18}">{name}</text>'
        f'<text class="count" x="{x + _NODE_WIDTH - 10}" y="{y + 18}">{row.pending or ""}</text>'
        f'<rect class="track" x="{x + 10}" y="{y + 28}" width="{inner}" height="8"/>'
        f'<rect class="used" x="{x + 10}" y="{y + 28}" width="{used:g}" height="8"/>'
        f'<rect class="borrowed" x="{x + 10 + used:g}" y="{y + 28}" width="{borrowed:g}" height="8"/>'
        f'<rect class="fair" x="{x + 10 + max(fair - 1, 0):g}" y="{y + 26}" width="2" height="12"/></a>{more}'
    )
