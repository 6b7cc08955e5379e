"""Reads DataSourceClaims and DataSources, and lets the workloads of a store wait for their data."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from controller.api.configuration import VolcanoGlobalConfiguration
from controller.api.data_sources import BOUND, DataSourceClaimStatus
from controller.api.keys import DATA_SOURCE_CLAIMS, DATA_SOURCES
from controller.cache.store import Store
from controller.controllers.data_sources.claims import ClaimIndex, observe_claim, observe_source
from controller.kube.errors import Forbidden, Gone, NotFound
from controller.kube.watch_events import DECODE_ERRORS

if TYPE_CHECKING:
    from controller.kube.client import Api


async def read_claims(api: "Api") -> ClaimIndex | None:
    """Return the claims and sources of the control plane; ``None`` if there are none, or not all may be listed."""
    index = ClaimIndex()
    try:
        async for raw in api.list_items(DATA_SOURCES.path):
            _add(index, raw, is_claim=False)
        async for raw in api.list_items(DATA_SOURCE_CLAIMS.path):
            _add(index, raw, is_claim=True)
    except (Forbidden, NotFound, Gone):
        return None
    return index


def claims_of_files(claims: Iterable[bytes], sources: Iterable[bytes]) -> ClaimIndex:
    """Return the claims and sources of files; a claim that is not bound is bound to a source of its data."""
    index = ClaimIndex()
    for raw in sources:
        _add(index, raw, is_claim=False)
    for raw in claims:
        claim = observe_claim(raw)
        source = index.source_of(claim.data_set)
        if claim.status.phase != BOUND and source is not None:
            claim = claim._replace(status=DataSourceClaimStatus(BOUND, source.key))
        index.claim_changed(None, claim)
    return index


def apply_claims(store: Store, index: ClaimIndex, configuration: VolcanoGlobalConfiguration) -> None:
    """Let the workloads of *store* require what their claims in *index* require."""
    for workload in tuple(index.workloads):
        store.data_changed(workload, index.requirement(workload, configuration.data_sources.on_move))


def _add(index: ClaimIndex, raw: bytes, *, is_claim: bool) -> None:
    """Add an object to *index*; one that cannot be read is skipped, as the controller does."""
    try:
        if is_claim:
            index.claim_changed(None, observe_claim(raw))
        else:
            index.source_changed(None, observe_source(raw))
    except DECODE_ERRORS:
        return
