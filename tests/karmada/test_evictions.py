"""What stops a job that runs, what does not, and what is left behind."""

from tests.karmada.harness import LONG

GRACEFUL = {"fromCluster": "member1", "purgeMode": "Gracefully", "reason": "Preempted", "producer": "test"}


def test_one_patch_evicts_and_what_the_template_says_stays_as_it_was(desk):
    desk.propagate()
    desk.run()
    assert desk.allocated("member1") != "100"
    desk.evict()
    desk.wait(lambda: not desk.works_of("train"), "work gone")
    desk.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedFailed")
    desk.wait(lambda: not desk.binding()["status"].get("aggregatedStatus"), "nothing aggregated")
    desk.wait(lambda: desk.allocated("member1") == "0", "its room free in the summary")
    desk.run("after")
    assert desk.phase() == "Running"
    desk.touch()
    desk.wait(lambda: desk.phase() is None, "its status cleared when the template changes")
    desk.touch(value="2")
    desk.wait_for_detector()
    assert (desk.targets(), desk.works_of("train")) == ([], [])


def test_an_evicted_job_runs_again_when_it_is_resumed_elsewhere(desk):
    desk.propagate()
    desk.run()
    desk.evict()
    desk.wait(lambda: not desk.works_of("train"), "work gone")
    desk.resume("train", "member2")
    desk.wait_for_targets("member2")
    desk.wait_for_conditions(Scheduled="Success", FullyApplied="FullyAppliedSuccess")
    desk.wait(lambda: desk.works_of("train", "member2"), "work there")
    desk.wait_for_phase("Running")


def test_an_eviction_with_grace_keeps_the_work_until_the_grace_is_over(desk):
    desk.propagate()
    desk.run()
    desk.evict(gracefulEvictionTasks=[GRACEFUL | {"gracePeriodSeconds": 4}])
    desk.wait(lambda: desk.tasks() and "creationTimestamp" in desk.tasks()[0], "task dated")
    work = desk.works_of("train")
    assert len(work) == 1
    assert (desk.targets(), desk.binding()["spec"]["suspension"]) == ([], {"scheduling": True})
    desk.wait(lambda: not desk.tasks(), "task gone")
    desk.wait(lambda: not desk.works_of("train"), "work gone")
    assert desk.targets() == []


def test_a_task_that_purges_directly_takes_the_work_at_once_and_stays(desk):
    desk.propagate()
    desk.run()
    desk.evict(gracefulEvictionTasks=[GRACEFUL | {"purgeMode": "Directly", "gracePeriodSeconds": 600}])
    desk.wait(lambda: not desk.works_of("train"), "work gone")
    assert len(desk.tasks()) == 1
    desk.resume()
    desk.wait_for_targets("member2")


def test_pausing_alone_stops_nothing_and_changes_of_the_template_go_through(desk):
    desk.propagate()
    desk.run(replicas=2)
    desk.pause()
    tasks = desk.job()["spec"]["tasks"]
    desk.api.merge(f"{desk.jobs}/train", {"spec": {"tasks": [tasks[0] | {"replicas": 4}]}})
    desk.wait(lambda: desk.job()["status"].get("running") == 4, "more pods")
    assert desk.targets() == ["member1"]


def test_what_is_to_be_preserved_runs_on_in_its_cluster_after_its_eviction(desk):
    desk.propagate(preserveResourcesOnDeletion=True)
    desk.run(cpu="1", replicas=1, annotations={"volcano-global.io/runtime": "6s"})
    desk.wait(lambda: desk.allocated("member1") == "1", "its use in the summary")
    desk.evict()
    desk.wait(lambda: not desk.works_of("train"), "work gone")
    desk.run("after", "member2", annotations={"volcano-global.io/runtime": "1s"})
    assert desk.allocated("member1") == "1"
    desk.wait(lambda: desk.allocated("member1") == "0", "over by itself")


def test_a_noexecute_taint_moves_what_runs_and_a_noschedule_taint_does_not(desk):
    desk.propagate()
    desk.run()
    taint = {"key": "repair", "value": "yes"}
    desk.taint("member1", taint | {"effect": "NoSchedule"})
    desk.touch()
    desk.wait_for_detector()
    desk.submit("after", annotations=LONG)
    desk.wait_for_binding("after")
    desk.resume("after")
    desk.wait_for_targets("member2", name="after")
    assert desk.targets() == ["member1"]
    desk.taint("member1", taint | {"effect": "NoExecute"})
    desk.wait_for_targets("member2")
    desk.wait(lambda: not desk.tasks(), "task gone once it runs elsewhere")
    desk.wait(lambda: not desk.works_of("train") and desk.works_of("train", "member2"), "moved")
    assert desk.binding()["spec"]["suspension"] == {"scheduling": False}


def test_a_noexecute_taint_takes_a_paused_job_out_and_nobody_places_it(desk):
    desk.propagate()
    desk.run()
    desk.pause()
    desk.taint("member1", {"key": "repair", "value": "yes", "effect": "NoExecute"})
    desk.wait(lambda: desk.targets() == [] and desk.tasks(), "taken out")
    task = desk.tasks()[0]
    assert (task["fromCluster"], task["producer"], task["reason"]) == ("member1", "TaintManager", "TaintUntolerated")
    assert desk.works_of("train")
