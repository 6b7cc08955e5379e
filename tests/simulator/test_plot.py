import sys
from fractions import Fraction

import pytest

from controller.simulator.plot import PlotError, check_plot, write_plot
from controller.simulator.simulation import Simulation
from controller.simulator.time_series import TimeSeries, values_at
from tests.simulator.traces import job, queue, trace


def drawn(path):
    pytest.importorskip("matplotlib")
    series = TimeSeries()
    found = trace(
        *(job(f"j{n}", 4, queue="q" if n % 2 else "r", at=n) for n in range(6)), queues=[queue("q"), queue("r")]
    )
    result = Simulation(found, series=series).run()
    check_plot(path)
    write_plot(series, result, path)
    return path.read_bytes()


def test_plot_format_follows_the_file_name(tmp_path):
    assert drawn(tmp_path / "a.png").startswith(b"\x89PNG")
    svg = drawn(tmp_path / "a.svg").decode()
    assert all(text in svg for text in ("pending jobs", "<svg"))


@pytest.mark.parametrize(
    ("name", "why"), [("a.jpeg", "must end in .png or .svg"), ("nowhere/a.png", "the folder .*nowhere does not exist")]
)
def test_invalid_plot_file_is_rejected_before_the_simulation(tmp_path, name, why):
    pytest.importorskip("matplotlib")
    with pytest.raises(PlotError, match=why):
        check_plot(tmp_path / name)


def test_missing_matplotlib_is_reported_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match=r"pip install 'volcano-global\[plot\]'"):
        check_plot(tmp_path / "a.png")


def test_time_series_records_usage_and_pending_jobs():
    series = TimeSeries()
    Simulation(trace(job("a", 4), job("b", 8)), series=series).run()
    assert series.usage["cpu"]["q"] == [(0, Fraction(1, 2)), (10_000, Fraction(1)), (20_000, Fraction(0))]
    assert series.waiting == [(0, 1), (10_000, 0)]


def test_value_holds_until_the_next_step():
    assert values_at([(2, Fraction(1)), (4, Fraction(3))], [0, 2, 3, 4, 9]) == [0, 1, 1, 3, 3]
