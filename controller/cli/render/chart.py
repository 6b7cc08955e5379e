"""Draws bar charts as SVG."""

from collections.abc import Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

_WIDTH, _LABEL, _ROW, _TITLE, _VALUE = 640, 120, 22, 30, 110


class Bar(NamedTuple):
    """One bar with its value as text."""

    label: str
    value: float
    text: str


class Panel(NamedTuple):
    """Bars of one measure, on a scale of their own."""

    title: str
    bars: Sequence[Bar]


def bar_chart(title: str, panels: Sequence[Panel]) -> str:
    """Return an SVG image with *panels* one below the other."""
    lines, top = list[str](), _TITLE + _ROW
    for panel in panels:
        lines.append(_text(0, top, panel.title, "bold"))
        top += _ROW
        largest = max((bar.value for bar in panel.bars), default=0) or 1
        for bar in panel.bars:
            width = (_WIDTH - _LABEL - _VALUE) * bar.value / largest
            lines.append(_text(0, top, bar.label))
            lines.append(f'<rect x="{_LABEL}" y="{top - 13}" width="{width:.1f}" height="16" fill="#4477aa"/>')
            lines.append(_text(_LABEL + width + 6, top, bar.text))
            top += _ROW
        top += _ROW // 2
    body = "\n".join([f"<title>{escape(title)}</title>", _text(0, _TITLE - 10, title, "bold"), *lines])
    size = f'width="{_WIDTH}" height="{top}" viewBox="-10 0 {_WIDTH + 20} {top}"'
    style = 'font-family="sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{body}\n</svg>\n'


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}">{escape(text)}</text>'
