"""Tests the webhook configurations of the chart: narrow rules for the paths that the webhook serves."""

import pytest

from tests.webhook.installation import registration
from webhook.app import Configuration, admission_handlers
from webhook.queue_cache import QueueCache

URL = "https://webhook.example"
REGISTERED = [webhook for configuration in registration(URL) for webhook in configuration["webhooks"]]


@pytest.mark.parametrize("webhook", REGISTERED)
def test_webhook_rules_are_narrow(webhook):
    assert (webhook["sideEffects"], webhook["matchPolicy"]) == ("None", "Equivalent")
    assert webhook["admissionReviewVersions"] == ["v1"]
    assert 3 <= webhook["timeoutSeconds"] <= 5
    (rule,) = webhook["rules"]
    assert "*" not in "".join((*rule["apiGroups"], *rule["resources"], *rule["operations"]))
    assert rule["apiVersions"] == ["*"]


def test_registered_paths_match_the_routes():
    judged = admission_handlers(Configuration(None), QueueCache())
    registered = {webhook["clientConfig"]["url"].removeprefix(URL) for webhook in REGISTERED}
    assert registered <= set(judged)
    assert {path for path in judged if not path.startswith("/hyperjobs")} <= registered
