from dataclasses import replace

import pytest

from controller.engine.reasons import Reason
from localup.demo.result import evaluate
from localup.demo.timeline import PendingReason, Timeline


def judged(story, broken=(), families=()):
    return evaluate(story.ways.values(), families, broken)


@pytest.fixture
def story(role):
    story = Timeline()
    story.submitted(role, 0.0)
    return story


def test_what_has_run_is_no_trouble(story, admitted):
    story.saw(admitted(phase="Completed", pods=2), 1.0)
    verdict = judged(story)
    assert verdict.troubles == []
    assert verdict.ran == 1


def test_what_waits_for_ever_as_it_should_is_no_trouble(role, sighting):
    story = Timeline()
    story.submitted(replace(role, forever=Reason.QUEUE_CLOSED), 0.0)
    story.saw(sighting(), 1.0)
    story.heard(PendingReason(role.name, "QueueClosed", ""), 1.0)
    verdict = judged(story)
    assert verdict.troubles == []
    assert [way.role.name for way in verdict.forever] == [role.name]


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        pytest.param("submitted", ("has no binding", "karmada"), id="no-binding"),
        pytest.param("paused", ("is paused, and the controller says nothing of it", "controller"), id="silence"),
        pytest.param("waiting", ("waits as InsufficientCapacity: full", "controller"), id="starved"),
        pytest.param("admitted", ("was admitted to member1 and does not start", "karmada"), id="not-started"),
        pytest.param("running", ("runs on member1 and does not end", "karmada"), id="not-ended"),
    ],
)
def test_where_a_job_is_stuck_says_whose_log_to_read(story, sighting, admitted, stage, told):
    seen = {
        "paused": [sighting()],
        "waiting": [sighting()],
        "admitted": [admitted()],
        "running": [admitted(phase="Running", pods=2)],
    }
    for each in seen.get(stage, ()):
        story.saw(each, 1.0)
    if stage == "waiting":
        story.heard(PendingReason("team-a/train", "InsufficientCapacity", "full"), 1.0)
    verdict = judged(story)
    text, suspect = told
    assert [(trouble.text, trouble.suspect) for trouble in verdict.troubles] == [(f"team-a/train {text}", suspect)]
    assert verdict.suspects == [suspect]


def test_who_should_wait_and_has_run_is_trouble(role, admitted):
    story = Timeline()
    story.submitted(replace(role, forever=Reason.EXCEEDS_EVERY_CLUSTER), 0.0)
    story.saw(admitted(phase="Completed", pods=2), 1.0)
    assert [trouble.text for trouble in judged(story).troubles] == [
        "team-a/train has run, although it should wait as ExceedsEveryCluster"
    ]


def test_who_waits_for_another_reason_than_he_should_is_trouble(role, sighting):
    story = Timeline()
    story.submitted(replace(role, forever=Reason.QUEUE_CLOSED), 0.0)
    story.saw(sighting(), 1.0)
    story.heard(PendingReason(role.name, "InsufficientCapacity", "full"), 1.0)
    assert [trouble.text for trouble in judged(story).troubles] == [
        "team-a/train waits as InsufficientCapacity instead of QueueClosed: full"
    ]


def test_what_was_seen_broken_is_trouble_once(story, admitted):
    story.saw(admitted(phase="Completed", pods=2), 1.0)
    verdict = judged(story, ["a was stored unpaused", "queue q held 5 cpu of 4", "queue q held 5 cpu of 4"])
    assert [trouble.suspect for trouble in verdict.troubles] == ["webhook", "controller"]
