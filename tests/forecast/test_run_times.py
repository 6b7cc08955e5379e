from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.forecast import run_times as learned
from controller.forecast.codec import MAX_BYTES, RunTimesError, decode_run_times, encode_run_times
from controller.forecast.distribution import Distribution, WeightedTime, with_censored
from controller.forecast.run_times import MAX_RUNS, JobProfile, Level, Outcome, Run, RunHistory, RunTimes, keys_of
from tests.draws import draws

TRAIN = JobProfile("a", "ml", "train", "nvidia.com/gpu=8")

TIMES = st.lists(
    st.tuples(st.floats(1, 1e7), st.floats(0.01, 100)),
    min_size=1,
    max_size=30,
    unique_by=lambda pair: round(pair[0], 3),
).map(lambda pairs: Distribution(WeightedTime(*pair) for pair in pairs))


def trained(*seconds: int, profile: JobProfile = TRAIN, estimate: int = 0) -> RunTimes:
    run_times = RunTimes()
    for run_time in seconds:
        run_times.record(profile, Run(run_time, estimate=estimate))
    return run_times


def history(run_times: RunTimes, profile: JobProfile) -> RunHistory:
    """Return the runs of equal jobs; empty where there are none."""
    return dict(run_times).get(keys_of(profile)[0], RunHistory())


@draws(200)
@given(TIMES, st.floats(0.01, 0.99))
def test_fraction_of_a_quantile_is_its_probability(distribution, probability):
    assert distribution.fraction(distribution.quantile(probability)) == pytest.approx(probability, abs=1e-6)


@draws(200)
@given(TIMES, st.floats(0, 1e8))
def test_job_that_runs_takes_at_least_the_time_so_far(distribution, ran):
    times = [distribution.total_time(probability / 10, ran) for probability in range(1, 10)]
    assert min(times) >= ran
    assert all(first <= second * (1 + 1e-9) for first, second in pairwise(times))
    longest = Distribution([WeightedTime(100, 1.0)])
    assert longest.total_time(0.5, 1000) == pytest.approx(2000), "a longer run than all others may double"


def test_stopped_run_counts_as_longer_ones():
    known = with_censored([WeightedTime(10, 1.0), WeightedTime(100, 1.0)], [WeightedTime(50, 1.0)])
    assert known == [(10, 1.0), (100, 2.0)]
    assert with_censored([], [WeightedTime(50, 1.0)]) == [(100, 1.0)]


def test_template_with_many_runs_decides():
    run_times = trained(*[1000] * 24)
    for _ in range(24):
        run_times.record(TRAIN._replace(template="other"), Run(10))
    assert 900 < run_times.distribution(TRAIN).quantile(0.5) <= 1000


def test_unknown_template_uses_runs_of_its_namespace():
    run_times = trained(*[1000] * 24)
    for _ in range(24):
        run_times.record(JobProfile("b", "web", "serve"), Run(10))
    assert run_times.distribution(TRAIN._replace(template="new")).quantile(0.5) > 500


def test_newer_runs_count_more():
    assert trained(*[100] * 12, *[1000] * 12).distribution(TRAIN).quantile(0.5) > 900


def test_evictions_make_run_times_longer():
    plain, evicted = trained(*[100, 1000] * 6), trained(*[100, 1000] * 6)
    for _ in range(6):
        evicted.record(TRAIN, Run(500, Outcome.EVICTED))
    assert evicted.distribution(TRAIN).fraction(500) < plain.distribution(TRAIN).fraction(500)
    assert len(history(evicted, TRAIN).runs) == 12


def test_accurate_estimates_decide():
    run_times = trained()
    for seconds in (100, 1000, 10_000, 100_000) * 6:
        run_times.record(TRAIN._replace(estimate=2 * seconds), Run(seconds, estimate=2 * seconds))
    distribution = run_times.distribution(TRAIN._replace(estimate=600))
    assert 200 < distribution.quantile(0.5) < 450


def test_random_estimates_decide_little():
    run_times = RunTimes()
    for number in range(24):
        estimate = 10 ** (number % 6)
        run_times.record(TRAIN._replace(estimate=estimate), Run(1000, estimate=estimate))
    assert 500 < run_times.distribution(TRAIN._replace(estimate=100_000)).quantile(0.5) < 2000


def test_calibration_shows_runs_that_come_in_groups():
    grouped, single = RunTimes(), RunTimes()
    for number in range(24):
        grouped.record(TRAIN, Run(100 * 4 ** (number // 4 % 2)))
        single.record(TRAIN, Run(100 * 4 ** (number * 7 % 5 % 2)))
    for run_times in (grouped, single):
        for template in range(4):
            for run in history(run_times, TRAIN).runs:
                run_times.record(TRAIN._replace(template=f"t{template}"), run)
    assert grouped.calibration().correlation > single.calibration().correlation


def test_keys_are_bounded_and_the_namespace_with_most_loses_one(monkeypatch):
    monkeypatch.setattr(learned, "MAX_KEYS", 20)
    run_times = trained(1000)
    for number in range(100):
        run_times.record(JobProfile("a", "noisy", f"t{number}"), Run(5))
    assert len(run_times) == 20
    assert history(run_times, TRAIN).runs
    assert not history(run_times, JobProfile("a", "noisy", "t0")).runs
    assert history(run_times, JobProfile("a", "noisy", "t99")).runs


def test_runs_of_one_namespace_do_not_displace_others():
    """Jobs of a new namespace are compared with all of them."""
    run_times = RunTimes()
    for number in range(12):
        run_times.record(JobProfile("q", "other"), Run(3600 + number))
    for number in range(100):
        run_times.record(JobProfile("q", "hostile", f"t{number}"), Run(1))
    again, _ = decode_run_times(encode_run_times(run_times, 0))
    again.record(JobProfile("q", "hostile"), Run(2))
    for key in keys_of(JobProfile("q", "new"))[2:]:
        assert [run.seconds for run in dict(again)[key].runs] == [*range(3600, 3612), *[1] * 11, 2]


def test_runs_without_a_namespace_are_displaced_first():
    """An earlier version stored none."""
    key = keys_of(JobProfile("q", "new"))[2]
    run_times = RunTimes({key: RunHistory(deque([Run(86_400)] * MAX_RUNS, MAX_RUNS))})
    for _ in range(MAX_RUNS):
        run_times.record(JobProfile("q", "new"), Run(10))
    assert {run.seconds for run in dict(run_times)[key].runs} == {10}


def test_forgotten_runs_no_longer_count_for_their_template():
    run_times = trained(100, 110, 120, 130, 140)
    learned_before = run_times.distribution(TRAIN).times
    while len(run_times) > 1:
        run_times.drop_one()
    assert run_times.distribution(TRAIN).times == RunTimes(dict(run_times)).distribution(TRAIN).times != learned_before


@draws(100)
@given(
    st.lists(
        st.tuples(
            st.builds(JobProfile, st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from("123")),
            st.builds(Run, st.integers(-5, 10**9), st.sampled_from(Outcome), st.integers(0, 10**7)),
        )
    )
)
def test_stored_run_times_are_read_back(ends):
    run_times = RunTimes()
    for profile, run in ends:
        run_times.record(profile, run._replace(estimate=0) if run.outcome is Outcome.EVICTED else run)
    document = encode_run_times(run_times, 123)
    assert [*map(int, Level)] == [0, 1, 2, 3], "stored documents name levels by number"
    again, until = decode_run_times(document)
    assert until == 123
    assert encode_run_times(again, until) == document
    for profile, _ in ends:
        assert again.distribution(profile).times == run_times.distribution(profile).times


def test_largest_document_is_within_its_bound():
    run_times = RunTimes()
    for number in range(3 * learned.MAX_KEYS):
        profile = JobProfile(f"q{number % 50}", f"n{number % 400}", f"t{number}", estimate=10**7)
        for _ in range(learned.MAX_RUNS):
            run_times.record(profile, Run(10**7, Outcome.FAILED, 10**7))
    assert len(run_times) == learned.MAX_KEYS
    assert len(encode_run_times(run_times, 10**13)) <= MAX_BYTES


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("", "truncated", id="empty"),
        pytest.param('{"version": 2, "until": 0, "histories": []}', "its version is 2", id="version"),
        pytest.param('{"version": 1, "until": 0, "histories": [[0, "a", "b", "x", ""]]}', "'x' is not a run", id="run"),
        pytest.param('{"version": 1, "until": 0, "histories": [[9, "a", "b", "", ""]]}', "is not a key", id="level"),
        pytest.param('{"version": 1, "until": 0, "histories": [[0, "a", "b", "0", ""]]}', "not a run", id="zero"),
        pytest.param("x" * 5 * MAX_BYTES, "more than", id="length"),
    ],
)
def test_unreadable_document_is_refused(text, sentence):
    with pytest.raises(RunTimesError, match=sentence):
        decode_run_times(text)


@pytest.mark.parametrize(
    ("runs", "estimate", "is_known"),
    [
        pytest.param(3, 0, False, id="few-runs"),
        pytest.param(4, 0, True, id="enough-runs"),
        pytest.param(0, 600, True, id="estimate"),
    ],
)
def test_expected_run_time_needs_runs_or_an_estimate(runs, estimate, is_known):
    assert bool(trained(*[100] * runs).quantiles(TRAIN._replace(estimate=estimate), [0.9])) is is_known
