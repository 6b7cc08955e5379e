"""TC7: the decision log of a controller on a real API server agrees with its log and with the written records.

The harness replays the decision logs of all scenarios, also of killed controllers.
"""

import json
from datetime import datetime

from controller.reporting.decision_log.replay import replay
from tests.rig.binding_state import BindingState
from tests.rig.harness import Harness, open_harness


def admissions(harness: Harness) -> list[BindingState]:
    """Return the states of all bindings with an admission."""
    return [binding for binding in harness.karmada.binding_states() if binding.admitted]


async def test_decision_log_agrees_with_records_and_log(plane, tmp_path):
    async with open_harness(plane, tmp_path) as harness:
        names = [f"j{number}" for number in range(5)]
        await harness.start(*names, cpu="9", capability={"cpu": "2"})
        await harness.done(*names)
        assert await harness.controller.metric("volcano_global_decision_log_losses_total") == 0
        await harness.controller.stop()
        with harness.controller.decision_log.open("rb") as file:
            findings, passages = replay(file)
        assert findings.is_identical
        assert findings.plans

        decisions = [passage.fields for passage in passages]
        by_uid = {fields["uid"]: fields for fields in decisions if fields["action"] == "Admit"}
        assert {binding.uid for binding in admissions(harness)} == by_uid.keys()
        assert len(by_uid) == len(names)
        for binding in admissions(harness):
            record, decided = binding.record, by_uid[binding.uid]
            admitted_at = datetime.fromisoformat(record["admittedAt"]).timestamp()
            assert decided["admittedAt"] == round(admitted_at * 1000)
            assert (decided["queue"], decided["request"]) == (record["queue"], record["charge"])
            assert [cluster["name"] for cluster in decided["clusters"]] == record["clusters"]

        refused = next(fields for fields in decisions if fields.get("reason") == "QueueLimitReached")
        assert (refused["rule"], refused["of"]) == ("Q2", "queue q")
        assert (refused["request"]["cpu"], refused["used"]["cpu"], refused["limit"]["cpu"]) == ("1", "2", "2")

        lines = [json.loads(line) for line in harness.controller.part.output.splitlines() if line.startswith("{")]
        logged = [line for line in lines if line["event"] in {"decision made", "workload pending"}]
        assert len(logged) == len(decisions) > len(names)
        for fields, line in zip(decisions, logged, strict=True):
            assert fields.items() <= line.items()
