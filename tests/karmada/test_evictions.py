"""Evictions: what stops a running job, and what remains afterwards."""

GRACEFUL = {"fromCluster": "member1", "reason": "Preempted", "producer": "test"}


def test_one_patch_evicts_and_another_admits_elsewhere(harness, karmada):
    harness.propagate()
    harness.run()
    shown = "Running" if karmada >= (1, 16) else None
    harness.wait(lambda: harness.shown_phase() == shown, "its status")
    assert harness.allocated("member1") != "100"
    harness.evict()
    harness.wait(lambda: not harness.works_of("train"), "work gone")
    harness.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedFailed")
    harness.wait(lambda: not harness.binding()["status"].get("aggregatedStatus"), "nothing aggregated")
    harness.wait(lambda: harness.allocated("member1") == "0", "its room free in the summary")
    harness.run("after")
    assert harness.shown_phase() == shown
    harness.touch()
    harness.wait(lambda: harness.shown_phase() is None, "its status cleared when the template changes")
    harness.touch(value="2")
    harness.wait_for_detector()
    assert (harness.targets(), harness.works_of("train")) == ([], [])
    harness.resume("train", "member2")
    harness.wait_for_targets("member2")
    harness.wait_for_phase("Running")


def test_graceful_eviction_keeps_the_work_for_the_grace(harness):
    harness.propagate()
    harness.run()
    harness.evict(gracefulEvictionTasks=[GRACEFUL | {"gracePeriodSeconds": 4}])
    harness.wait(lambda: harness.tasks() and "creationTimestamp" in harness.tasks()[0], "task dated")
    work = harness.works_of("train")
    assert len(work) == 1
    assert (harness.targets(), harness.binding()["spec"]["suspension"]) == ([], {"scheduling": True})
    harness.wait(lambda: not harness.tasks(), "task gone")
    harness.wait(lambda: not harness.works_of("train"), "work gone")
    assert harness.targets() == []


def test_suspension_alone_stops_nothing(harness):
    harness.propagate()
    harness.run(replicas=2)
    harness.pause()
    tasks = harness.job()["spec"]["tasks"]
    harness.api.merge(f"{harness.jobs}/train", {"spec": {"tasks": [tasks[0] | {"replicas": 4}]}})
    harness.wait(lambda: harness.reported()[0]["status"].get("running") == 4, "more pods")
    assert harness.targets() == ["member1"]


def test_preserved_job_keeps_running_after_eviction(harness):
    harness.propagate(preserveResourcesOnDeletion=True)
    harness.run(cpu="1", replicas=1, annotations={"volcano-global.io/runtime": "6s"})
    harness.wait(lambda: harness.allocated("member1") == "1", "its use in the summary")
    harness.evict()
    harness.wait(lambda: not harness.works_of("train"), "work gone")
    harness.run("after", "member2", annotations={"volcano-global.io/runtime": "1s"})
    assert harness.allocated("member1") == "1"
    harness.wait(lambda: harness.allocated("member1") == "0", "over by itself")


def test_only_noexecute_taints_move_running_jobs(harness):
    harness.propagate()
    harness.run()
    taint = {"key": "repair", "value": "yes"}
    harness.taint("member1", taint | {"effect": "NoSchedule"})
    harness.touch()
    harness.wait_for_detector()
    harness.admit("after")
    harness.wait_for_targets("member2", name="after")
    assert harness.targets() == ["member1"]
    harness.taint("member1", taint | {"effect": "NoExecute"})
    harness.wait_for_targets("member2")
    harness.wait(lambda: not harness.tasks(), "task gone once it runs elsewhere")
    harness.wait(lambda: not harness.works_of("train") and harness.works_of("train", "member2"), "moved")
    assert harness.binding()["spec"]["suspension"] == {"scheduling": False}
