"""Many claims on few data sets: one request for each data set, and few writes of its source."""

import asyncio

import pytest

from tests.controllers.data_sources.harness import Harness, run


@pytest.mark.parametrize(("claims", "data_sets"), [(1_000, 10), pytest.param(10_000, 100, marks=pytest.mark.long)])
def test_each_data_set_is_requested_once(claims, data_sets):
    async def story(harness: Harness) -> None:
        for number in range(claims):
            workload = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": f"j{number}"}
            harness.claim(f"c{number}", f"prod.db.t{number % data_sets}", workload=workload)
        await asyncio.sleep(60)
        assert len(harness.plugin.asked) == len(set(harness.plugin.asked)) == data_sets
        assert harness.controller.phases() == {"Pending": 0, "Bound": claims}
        assert {each["status"]["boundClaims"] for each in harness.sources.values()} == {claims // data_sets}
        statuses = [write for write in harness.api.writes if "/datasourceclaims/" in write]
        assert len(statuses) <= 2 * claims
        assert len(harness.api.writes) - len(statuses) <= 12 * data_sets

    run(story)
