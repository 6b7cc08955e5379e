"""End-to-end tests of admission with real API server, webhook and controller; Karmada is the stand-in or real."""

import pytest


@pytest.mark.smoke
async def test_binding_is_suspended_and_keeps_dispatching_settings(environment):
    await environment.policy(dispatching=True)
    await environment.job("held", "nowhere")
    await environment.until(lambda seen: "held" in seen, "binding of the job")
    first = next(environment.binding_states())
    assert (first.suspended, first.dispatch_suspended, first.clusters) == (True, True, ())


@pytest.mark.smoke
async def test_job_is_admitted_runs_and_completes(environment):
    await environment.member("c1", cpu="4")
    await environment.queue("all-the-way")
    await environment.policy()
    await environment.job("train", "all-the-way", replicas=2)
    await environment.until(lambda _: environment.finished() == ["train"], "job finished")
    record = environment.bindings()["train"].record
    assert record["queue"] == "all-the-way"
    assert record["clusters"] == ["c1"]
    assert record["charge"] == {"cpu": "2", "memory": "2Gi", "pods": "2"}
    assert record["uid"] == await environment.uid("train")


@pytest.mark.smoke
async def test_gangs_are_never_admitted_partially(environment):
    await environment.member("c1", cpu="9")
    await environment.queue("gangs")
    await environment.policy()
    for number in range(5):
        await environment.job(f"gang-{number}", "gangs", replicas=6)
    await environment.until(lambda _: len(environment.finished()) == 5, "five gangs of six on room for nine pods")
    charged: set[str] = set()
    for seen in environment.binding_states():
        (charged.add if seen.holds else charged.discard)(seen.uid)
        assert len(charged) <= 1


@pytest.mark.smoke
async def test_weights_one_and_three_divide_usage_one_to_three(environment):
    await environment.queue("tenant-a", weight=1)
    await environment.queue("tenant-b", weight=3)
    await environment.policy()
    for number in range(8):
        await environment.job(f"a-{number}", "tenant-a", runtime="60s")
        await environment.job(f"b-{number}", "tenant-b", runtime="60s")
    await environment.until(lambda seen: len(seen) == 16, "all bindings there")
    await environment.member("c1", cpu="8")
    await environment.until(lambda _: len(environment.admitted()) == 8, "as many as fit")
    tenants = [name[0] for name in environment.admitted()]
    assert (tenants.count("a"), tenants.count("b")) == (2, 6)
