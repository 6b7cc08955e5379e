"""The HyperJob controller runs after each cycle, so that a HyperJob's status is current."""

from types import SimpleNamespace

from controller.controllers.hyperjob.controller import resync_after_cycle


def test_cycle_triggers_a_resync_after_its_reasons():
    heard = []
    stage = SimpleNamespace(wake=lambda: heard.append("looked"))
    resync_after_cycle(heard.append, stage)(("reason",))
    assert heard == [("reason",), "looked"], "looking first would find what was true before"
