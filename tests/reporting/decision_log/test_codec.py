"""Encoded entries are decoded unchanged."""

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from controller.engine.state.hierarchy import QueueName
from controller.engine.state.workloads import SchedulingRequirements, Workload, WorkloadUid
from controller.reporting.decision_log import codec
from controller.reporting.decision_log.codec import _TYPES, DecisionEntry, EntryDecoder, EntryEncoder, WorkloadChanged
from tests.draws import draws


def with_all_fields(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Return objects of a dataclass in which each field has any value of its type."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{field.name: st.from_type(hints[field.name]) for field in fields(kind)})


def register(kind: Any) -> None:
    """Let hypothesis draw all fields of the dataclasses in a type, as tenants may fill them."""
    if is_dataclass(kind):
        st.register_type_strategy(kind, with_all_fields)
    for part in (*get_args(kind), *(get_type_hints(kind).values() if is_dataclass(kind) else ())):
        register(part)


for entry_type in _TYPES.values():
    register(entry_type)


def every_field(entry: object) -> object:
    """Return an entry in a form that compares all fields of a workload: some are excluded from its equality."""
    if not isinstance(entry, WorkloadChanged):
        return entry
    return [getattr(entry.workload, field.name) for field in fields(Workload)], entry.now


@pytest.mark.parametrize("kind", [kind for kind in _TYPES.values() if kind is not DecisionEntry])
# Shrinking entries with all their fields takes minutes, and many draws of a workload are too large to be used.
@settings(
    draws(3),
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
@given(st.data())
def test_encoded_entries_are_decoded_unchanged(kind, data):
    pen, eye = EntryEncoder(), EntryDecoder()
    entry = data.draw(with_all_fields(kind))
    lines = list(pen.encode(entry))
    (read,) = [decoded for decoded in map(eye.decode, lines) if decoded is not None]
    assert read == entry
    assert every_field(read) == every_field(entry)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in lines)
    assert eye.is_intact


def test_shared_requirements_are_numbered_up_to_a_limit(monkeypatch):
    monkeypatch.setattr(codec, "_MAX_REQUIREMENTS", 2)
    pen, eye = EntryEncoder(), EntryDecoder()
    requirements = [SchedulingRequirements({"cpu": cpu}) for cpu in range(4)]
    told = [
        WorkloadChanged(Workload(WorkloadUid("u"), "ml", "j", "Job", QueueName("q"), requirements[index]), 1)
        for index in (0, 1, 0, 2, 0, 3, 1, 1)
    ]
    written = [line for entry in told for line in pen.encode(entry)]
    assert [entry for entry in map(eye.decode, written) if entry is not None] == told
    assert len(pen._requirements) <= 2
    assert len([*pen.encode(told[-1])]) == 1
