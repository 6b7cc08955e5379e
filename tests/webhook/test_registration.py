"""Tests the webhook configurations of the chart: narrow rules for the paths that the webhook serves."""

import pytest

from tests.webhook.installation import registration
from webhook.app import Configuration, admission_handlers
from webhook.queue_cache import QueueCache

REGISTERED = [
    (each["kind"], webhook) for each in registration("https://webhook.example") for webhook in each["webhooks"]
]


def test_binding_webhook_fails_closed_for_gated_kinds_only():
    webhook = REGISTERED[0][1]
    assert webhook["clientConfig"] == {"url": "https://webhook.example/resourcebindings/mutate"}
    assert (webhook["failurePolicy"], webhook["reinvocationPolicy"]) == ("Fail", "IfNeeded")
    (rule,) = webhook["rules"]
    assert (rule["apiVersions"], rule["operations"]) == (["*"], ["CREATE"])
    (condition,) = webhook["matchConditions"]
    assert condition["expression"].endswith("in ['batch.volcano.sh/Job']")


@pytest.mark.parametrize(("kind", "webhook"), REGISTERED)
def test_webhook_rules_are_narrow(kind, webhook):
    assert webhook["clientConfig"]["url"].startswith("https://webhook.example/")
    assert "service" not in webhook["clientConfig"]
    assert (webhook["sideEffects"], webhook["matchPolicy"]) == ("None", "Equivalent")
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert 3 <= webhook["timeoutSeconds"] <= 5
    (rule,) = webhook["rules"]
    assert "*" not in "".join((*rule["apiGroups"], *rule["resources"], *rule["operations"]))
    assert rule["apiVersions"] == ["*"]


def test_registered_paths_match_the_routes():
    judged = admission_handlers(Configuration(None), QueueCache())
    registered = {webhook["clientConfig"]["url"].removeprefix("https://webhook.example") for _, webhook in REGISTERED}
    assert registered <= set(judged)
    assert {path for path in judged if not path.startswith("/hyperjobs")} <= registered
