import sys
from fractions import Fraction

import pytest

from controller.simulator.simulation import Simulation
from tests.simulator.traces import job, queue, trace
from tests.traces.__main__ import main
from tests.traces.plot import PlotError, TimeSeries, check_plot, values_at, write_plot


def drawn(path):
    pytest.importorskip("matplotlib")
    series = TimeSeries()
    found = trace(
        *(job(f"j{n}", 4, queue="q" if n % 2 else "r", at=n) for n in range(6)), queues=[queue("q"), queue("r")]
    )
    result = Simulation(found, observe=series.observe).run()
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
    with pytest.raises(PlotError, match=r"pip install matplotlib"):
        check_plot(tmp_path / "a.png")


def test_time_series_records_usage_and_pending_jobs():
    series = TimeSeries()
    Simulation(trace(job("a", 4), job("b", 8)), observe=series.observe).run()
    assert series.usage["cpu"]["q"] == [(0, Fraction(1, 2)), (10_000, Fraction(1)), (20_000, Fraction(0))]
    assert series.waiting == [(0, 1), (10_000, 0)]


def test_value_holds_until_the_next_step():
    assert values_at([(2, Fraction(1)), (4, Fraction(3))], [0, 2, 3, 4, 9]) == [0, 1, 1, 3, 3]


def test_plot_command_writes_the_file(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    main(["generate", "gang"])
    (tmp_path / "gang.yaml").write_text(capsys.readouterr().out)
    main(["plot", str(tmp_path / "gang.yaml"), str(tmp_path / "a.svg")])
    assert "training" in (tmp_path / "a.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        pytest.param(("gang", "--clusters", "2"), "gang does not accept clusters", id="size-not-taken"),
        pytest.param(("heap",), "invalid choice: 'heap'", id="shape"),
    ],
)
def test_invalid_size_or_shape_is_rejected(capsys, arguments, why):
    with pytest.raises(SystemExit, match="2"):
        main(["generate", *arguments])
    assert why in capsys.readouterr().err
