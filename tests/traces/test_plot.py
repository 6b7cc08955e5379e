import sys
from fractions import Fraction

import pytest

from controller.simulator.simulation import Simulation
from tests.simulator.traces import job, trace
from tests.traces.__main__ import main
from tests.traces.plot import PlotError, TimeSeries, check_plot, values_at


@pytest.mark.parametrize("name", ["a.png", "a.svg"])
def test_plot_command_writes_the_format_of_the_name(tmp_path, capsys, name):
    pytest.importorskip("matplotlib")
    main(["generate", "gang"])
    (tmp_path / "gang.yaml").write_text(capsys.readouterr().out)
    main(["plot", str(tmp_path / "gang.yaml"), str(tmp_path / name)])
    found = (tmp_path / name).read_bytes()
    assert found.startswith(b"\x89PNG") or all(text in found for text in (b"<svg", b"pending jobs", b"training"))


@pytest.mark.parametrize(
    ("name", "why"), [("a.jpeg", "must end in .png or .svg"), ("nowhere/a.png", "the folder .*nowhere does not exist")]
)
def test_invalid_plot_file_is_rejected_before_the_simulation(tmp_path, name, why):
    pytest.importorskip("matplotlib")
    with pytest.raises(PlotError, match=why):
        check_plot(tmp_path / name)


def test_missing_matplotlib_is_reported_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlotError, match=r"pip install matplotlib"):
        check_plot(tmp_path / "a.png")


def test_time_series_records_usage_and_pending_jobs():
    series = TimeSeries()
    Simulation(trace(job("a", 4), job("b", 8)), observe=series.observe).run()
    assert series.usage["cpu"]["q"] == [(0, Fraction(1, 2)), (10_000, Fraction(1)), (20_000, Fraction(0))]
    assert series.waiting == [(0, 1), (10_000, 0)]
    assert values_at(series.usage["cpu"]["q"], [0, 9_000, 10_000, 30_000]) == [Fraction(1, 2), Fraction(1, 2), 1, 0]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param(("gang", "--clusters", "2"), "gang does not accept clusters", id="size-not-taken"),
        pytest.param(("philly", "--jobs", "0"), "jobs is 0; write 1 or more", id="none-at-all"),
        pytest.param(("heap",), "invalid choice: 'heap'", id="shape"),
    ],
)
def test_invalid_size_or_shape_is_rejected(capsys, arguments, why):
    with pytest.raises(SystemExit, match="2"):
        main(["generate", *arguments])
    assert why in capsys.readouterr().err
