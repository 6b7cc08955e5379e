"""End-to-end tests of admission with real API server, webhook and controller; Karmada is the stand-in or real."""

import pytest


@pytest.mark.smoke
async def test_binding_is_suspended_and_keeps_dispatching_settings(environment):
    await environment.policy(dispatching=True)
    await environment.job("held", "nowhere")
    await environment.observer.until(lambda seen: "held" in seen.now, "binding of the job")
    first = environment.observer.moments[0]
    assert (first.suspended, first.dispatching, first.clusters) == (True, True, ())


@pytest.mark.smoke
async def test_job_is_admitted_runs_and_completes(environment):
    await environment.cluster("c1", cpu="4")
    await environment.queue("all-the-way")
    await environment.policy()
    await environment.job("train", "all-the-way", replicas=2)
    await environment.observer.until(lambda seen: seen.finished() == ["train"], "job finished")
    record = environment.observer.now["train"].record
    assert record["queue"] == "all-the-way"
    assert record["clusters"] == ["c1"]
    assert record["charge"] == {"cpu": "2", "memory": "2Gi", "pods": "2"}
    assert record["uid"] == await environment.uid("train")


@pytest.mark.smoke
async def test_gangs_are_never_admitted_partially(environment):
    await environment.cluster("c1", cpu="9")
    await environment.queue("gangs")
    await environment.policy()
    for number in range(5):
        await environment.job(f"gang-{number}", "gangs", replicas=6)
    await environment.observer.until(lambda seen: len(seen.finished()) == 5, "five gangs of six on room for nine pods")
    charged: set[str] = set()
    for moment in environment.observer.moments:
        (charged.add if moment.holds else charged.discard)(moment.job)
        assert len(charged) <= 1


@pytest.mark.smoke
async def test_weights_one_and_three_divide_usage_one_to_three(environment):
    await environment.queue("tenant-a", weight=1)
    await environment.queue("tenant-b", weight=3)
    await environment.policy()
    for number in range(8):
        await environment.job(f"a-{number}", "tenant-a", runtime="60s")
        await environment.job(f"b-{number}", "tenant-b", runtime="60s")
    await environment.observer.until(lambda seen: len(seen.now) == 16, "all bindings there")
    await environment.cluster("c1", cpu="8")
    await environment.observer.until(lambda seen: len(seen.admitted()) == 8, "as many as fit")
    tenants = [name[0] for name in environment.observer.admitted()]
    assert (tenants.count("a"), tenants.count("b")) == (2, 6)
