"""The stand-in on a real API server."""

import signal

LONG = {"volcano-global.io/runtime": "1h"}
PLACED = {"Scheduled": "Success", "FullyApplied": "FullyAppliedSuccess"}


def test_a_failing_job_fails(harness):
    harness.propagate()
    harness.submit("train", annotations={"volcano-global.io/outcome": "Failed", "volcano-global.io/runtime": "100ms"})
    harness.wait_for_phase("Failed")
    assert harness.binding()["status"]["aggregatedStatus"][0]["health"] == "Unhealthy"


def test_stand_in_continues_after_a_restart(harness, stand_in):
    harness.propagate()
    harness.submit("train", annotations=LONG)
    harness.wait_for_phase("Running")
    harness.wait_for_conditions(**PLACED)
    status, work = harness.job()["status"], harness.works("member1")[0]
    process = stand_in.service._process
    stand_in.service.signal(signal.SIGTERM)
    assert process.wait(5) == 0
    stand_in.start()
    harness.submit("after")
    harness.wait_for_phase("Completed", "after")
    assert harness.job()["status"] == status
    assert work in harness.works("member1")
