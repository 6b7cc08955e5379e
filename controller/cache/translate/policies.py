"""The operator's configuration as the engine's policy."""

from datetime import timedelta

from controller.api.configuration import AdmissionConfiguration
from controller.engine.policy import Growth, Policy, Tenant

_MILLISECOND = timedelta(milliseconds=1)


def policy(configuration: AdmissionConfiguration) -> Policy:
    """Return what of *configuration* decisions depend on."""
    growth = configuration.growth
    return Policy(
        queue_order=configuration.queue_order,
        tenant_fairness=configuration.tenant_fairness,
        growth=Growth(evict=growth.action == "Evict", grace_ms=growth.grace_period // _MILLISECOND),
        settle_ms=configuration.settle_period // _MILLISECOND,
        tenants=tuple(
            Tenant(tenant.namespaces, queues=tenant.queues, priority_classes=tenant.priority_classes)
            for tenant in configuration.tenants
        ),
    )
