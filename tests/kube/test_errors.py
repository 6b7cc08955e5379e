"""Kinds of errors by status and message."""

import pytest

from controller.kube.errors import Forbidden, QuotaExceeded, error_for

DENIED = 'admission webhook "resourcebinding.karmada.io" denied the request: '
SINCE_1_15 = "FederatedResourceQuota(team/most) exceeded for resource cpu: requested sum 12, limit 8"
OF_1_14 = "Quota exceeded for FederatedResourceQuota team/most. ResourceBinding team/j1-job will be denied"


@pytest.mark.parametrize("quota", [pytest.param(SINCE_1_15, id="1.15"), pytest.param(OF_1_14, id="1.14")])
def test_exceeded_quota_is_named_as_karmada_names_it(quota):
    message = f"{DENIED}{quota}."
    error = error_for(403, message)("PATCH /binding", 403, message)
    assert isinstance(error, QuotaExceeded)
    assert error.quota == quota


def test_other_denials_are_no_exceeded_quota():
    assert error_for(403, "resourcequotas is forbidden") is Forbidden
