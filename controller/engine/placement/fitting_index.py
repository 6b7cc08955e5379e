"""Finds which pending requirements fit the clusters and the queue limits, for all of them at once.

A cycle visits only requirements for which a result differs from before; the
others cost a few operations on sets of slots. Requirements have slots in the
order of ``PendingWorkloads.by_requirements``.
"""

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

from controller.engine.placement.feasibility_cache import Feasibility, FeasibilityCache, ReservedCapacity
from controller.engine.state.clusters import ClusterName
from controller.engine.state.hierarchy import Node, QueueName
from controller.engine.state.pending import PendingWorkloads
from controller.engine.state.quota import Quota
from controller.engine.state.request_index import ExceedingRequests, RequestIndex, Slots, SlotUnion, slots_in
from controller.engine.state.resources import Resources, fits, subtract
from controller.engine.state.workloads import SchedulingRequirements
from controller.engine.steps import Steps, finish

_MAX_UNUSED_SLOTS = 1024


class _PassedFilters(NamedTuple):
    """The requirements that pass each filter."""

    known: Slots = 0
    """The requirements for which the others are known."""
    free: Slots = 0
    """The root has enough quota."""
    unreserved: Slots = 0
    """The root has enough quota beyond guarantees."""
    fitting: Slots = 0
    """Some cluster fits."""


class FittingIndex:
    """The pending requirements, and which of them fit now."""

    def __init__(self, pending: PendingWorkloads, feasibility_cache: FeasibilityCache) -> None:
        self._pending = pending
        self._cache = feasibility_cache
        self._cluster_usage = feasibility_cache.cluster_usage
        self._cluster_version = 0
        self._generation = 0
        """The generation of the feasibility cache that the members are from."""
        self._passed = _PassedFilters()
        """The filters that requirements passed in the last cycle."""
        self._passed_at: tuple[Quota | None, int, int, int] = (None, 0, 0, 0)
        """The quota, its version, that of the cluster usage and the generation for which they were found."""
        self._passed_by_removed: dict[int, _PassedFilters] = {}
        """Filters passed by requirements that were removed since the last cycle; they may be added again."""
        self._clear()

    def _clear(self) -> None:
        self._charges = RequestIndex()
        self._gangs = RequestIndex()
        """The gang minimums of requirements that need one cluster, unless even empty clusters do not suffice."""
        self._slots: dict[int, int] = {}
        """The slots of the pending requirements, by their ids."""
        self._members: dict[int, Feasibility] = {}
        """The requirements by slot, including those that are no longer pending."""
        self._all: Slots = 0
        self._refused: Slots = 0
        """Requirements that no cluster satisfies even while it is empty."""
        self.single: Slots = 0
        """Requirements that need one cluster."""
        self._not_monotone: Slots = 0
        """Requirements that may fit because an admission has taken capacity."""
        self._candidates: dict[ClusterName, Slots] = {}
        """Requirements that need one cluster, by candidate cluster."""
        self._fits_on = SlotUnion()
        """Those of them that fit, for clusters of which all headroom is available."""
        self._others: set[ClusterName] = set()
        """The other clusters, on which requirements are checked one by one."""
        self._exceeding_root = ExceedingRequests()
        self._within: tuple[Quota, int, dict[QueueName, Slots]] | None = None
        """Results of ``within_limits``, with the quota and the version for which they are valid."""

    # -- members ---------------------------------------------------------

    def update(self) -> Steps[None]:
        """Follow the changes of the pending workloads and of the clusters."""
        closed, opened = self._pending.pop_requirement_changes()
        if self._generation != self._cache.generation:
            closed, opened = [*self._slots], [*self._pending.by_requirements]
        for key in closed:
            self._remove(key)
        if not self._slots:
            self._clear()
            self._generation, self._passed = self._cache.generation, _PassedFilters()
        for key in opened:
            self._add(key)
            yield 1
        if self._cluster_version != self._cluster_usage.version:
            changed = self._cluster_usage.changed_since(self._cluster_version)
            self._cluster_version = self._cluster_usage.version
            for name in [*self._candidates] if changed is None else changed & self._candidates.keys():
                self._update_cluster(name)

    def renumber(self) -> None:
        """Number the slots again where most are unused; no set of slots from before may be used."""
        if self._pending.slot_count > 2 * len(self._pending.by_requirements) + _MAX_UNUSED_SLOTS:
            self._pending.renumber()
            self._generation = -1

    def _add(self, key: int) -> None:
        workload_class = next(iter(self._pending.by_requirements[key]))
        member, slot = self._cache.get(workload_class.requirements), workload_class.slot
        bit = 1 << slot
        self._members[slot] = member
        self._slots[key] = slot
        self._all |= bit
        self._charges.add(slot, member.charge)
        self._within = None
        if member.candidates.refusal is not None:
            self._refused |= bit
        if member.needs_one_cluster:
            self.single |= bit
        if not member.is_monotone and member.candidates.refusal is None:
            self._not_monotone |= bit
        if _is_placeable(member):
            self._gangs.add(slot, member.requirements.gang_requests)
            for name in member.candidates.names:
                self._add_candidate(name, member, bit)
        if key in self._passed_by_removed:
            passed = self._passed_by_removed.pop(key)
            self._passed = _PassedFilters(
                *(before | of_key << slot for before, of_key in zip(self._passed, passed, strict=True))
            )

    def _add_candidate(self, name: ClusterName, member: Feasibility, bit: Slots) -> None:
        is_new = name not in self._candidates
        self._candidates[name] = self._candidates.get(name, 0) | bit
        if is_new:
            self._update_cluster(name)
        elif name in self._fits_on and fits(
            member.requirements.gang_requests, self._cluster_usage.cluster_state(name).headroom
        ):
            self._fits_on.set(name, self._fits_on.sets[name] | bit)

    def _remove_candidate(self, name: ClusterName, others: Slots) -> None:
        self._candidates[name] &= others
        if name in self._fits_on:
            self._fits_on.set(name, self._fits_on.sets[name] & others)

    def _remove(self, key: int) -> None:
        slot = self._slots.pop(key, None)
        if slot is None:
            return
        member, others = self._members[slot], ~(1 << slot)
        self._all &= others
        self._not_monotone &= others
        self._charges.remove(slot, member.charge)
        if _is_placeable(member):
            self._gangs.remove(slot, member.requirements.gang_requests)
            for name in member.candidates.names:
                self._remove_candidate(name, others)
        self._within = None
        if self._passed.known >> slot & 1:
            self._passed_by_removed[key] = _PassedFilters(*(slots >> slot & 1 for slots in self._passed))
            self._passed = _PassedFilters(*(slots & others for slots in self._passed))

    def _update_cluster(self, name: ClusterName) -> None:
        cluster_state = self._cluster_usage.cluster_state(name)
        if cluster_state.is_headroom_available:
            self._others.discard(name)
            self._fits_on.set(name, self._candidates[name] & ~self._gangs.not_fitting(cluster_state.headroom))
        else:
            self._others.add(name)
            self._fits_on.remove(name)

    def __contains__(self, key: int) -> bool:
        return key in self._slots

    def slots_of(self, keys: Iterable[int]) -> Slots:
        """Return the slots of those of the requirements *keys* that are pending."""
        slots = 0
        for key in keys:
            slot = self._slots.get(key)
            if slot is not None:
                slots |= 1 << slot
        return slots

    def key(self, slot: int) -> int:
        """Return the id of the requirements of a slot."""
        return id(self._members[slot].requirements)

    def keys_of(self, slots: Slots) -> list[int]:
        """Return the ids of the requirements of *slots*, in order."""
        return [id(self._members[slot].requirements) for slot in slots_in(slots)]

    def contains(self, slots: Slots, requirements: SchedulingRequirements) -> bool:
        """Return whether *requirements*, which are pending, are among *slots*."""
        return bool(slots >> self._slots[id(requirements)] & 1)

    def member(self, slot: int) -> Feasibility:
        """Return the requirements of a slot."""
        return self._members[slot]

    # -- queries ---------------------------------------------------------

    @property
    def charges(self) -> RequestIndex:
        """Return the charges of one admission."""
        self._synchronize()
        return self._charges

    def feasible(self, quota: Quota) -> Slots:
        """Return the requirements for which the root quota, without guarantees, and the clusters have enough."""
        self._synchronize()
        return self._fitting(self._with_free_root(quota))

    def fits(self, requirements: SchedulingRequirements) -> bool:
        """Return whether one more workload with *requirements*, which are pending, fits the clusters."""
        self._synchronize()
        slot = self._slots[id(requirements)]
        if self._fits_on.union() >> slot & 1:
            return True
        return bool(self._others or not self.single >> slot & 1) and self._cache.fits(self._members[slot])

    def within_limits(self, quota: Quota, leaf: Node) -> Slots:
        """Return the requirements that are within the limits of *leaf* and its ancestors, if none are reserved yet."""
        self._synchronize()
        if self._within is None or self._within[0] is not quota or self._within[1] != quota.version:
            self._within = quota, quota.version, {}
        known = self._within[2].get(leaf.name)
        if known is None:
            above = self.within_limits(quota, leaf.parent) if leaf.parent is not None else self._all
            if quota.limiting(leaf)[0] is leaf:
                above &= ~self._exceeding_limit(quota, leaf)
            known = self._within[2][leaf.name] = above
        return known

    def fitting_next_to(self, reserved: ReservedCapacity) -> Slots:
        """Return the requirements that need one cluster, and fit one next to *reserved* capacity (O6)."""
        self._synchronize()
        fitting: Slots = 0
        for name, slots in self._fits_on.sets.items():
            amounts = reserved.by_cluster.get(name)
            if amounts is not None:
                remaining = subtract(self._cluster_usage.cluster_state(name).headroom, amounts)
                slots &= ~(self._charges.not_fitting(remaining) | self._gangs.not_fitting(remaining))  # noqa: PLW2901
            fitting |= slots
        for name in sorted(self._others):
            fitting |= self._fitting_on(name, self.single & ~fitting, reserved.by_cluster.get(name))
        return fitting

    def without_one_cluster(self, slots: Slots) -> Slots:
        """Return those of *slots* that need several clusters, or all of them."""
        return slots & ~self.single

    def with_changed_filters(self, quota: Quota) -> list[int]:
        """Return the requirements that pass more or fewer filters than at the last call.

        The filters are the root's limit, its unreserved quota, and the clusters.
        """
        self._synchronize()
        at = quota, quota.version, self._cluster_version, self._generation
        before, valid = self._passed, self._passed.known if at == self._passed_at else 0
        free = self._with_free_root(quota)
        unreserved = (
            free & ~self._charges.exceeding(quota.unreserved_amounts(quota.tree.root, self._charges.resources))
            if quota.guaranteed
            else free
        )
        now = _PassedFilters(self._all, free, unreserved, self._fitting(self._all & ~self._refused))
        self._passed = _PassedFilters(*(old & valid | new & ~valid for old, new in zip(before, now, strict=True)))
        self._passed = self._passed._replace(known=self._all)
        self._passed_at = at
        self._passed_by_removed.clear()
        return self.keys_of(
            before.known & reduce(or_, (old ^ new for old, new in zip(before[1:], self._passed[1:], strict=True)))
        )

    def passing_all_filters(self) -> Slots:
        """Return the requirements that passed all filters at the last call of ``with_changed_filters``."""
        return self._passed.free & self._passed.unreserved & self._passed.fitting

    def may_fit_after_admissions(self) -> bool:
        """Return whether requirements fit that may not have fit before the last admissions."""
        self._synchronize()
        return any(self._cache.fits(self._members[slot]) for slot in slots_in(self._not_monotone))

    def _synchronize(self) -> None:
        if (
            self._pending.has_requirement_changes
            or self._generation != self._cache.generation
            or self._cluster_version != self._cluster_usage.version
        ):
            finish(self.update())

    def _with_free_root(self, quota: Quota) -> Slots:
        return self._all & ~self._refused & ~quota.exceeding(quota.tree.root, self._charges, self._exceeding_root)

    def _exceeding_limit(self, quota: Quota, node: Node) -> Slots:
        exceeding = self._charges.exceeding(quota.free_amounts(node, self._charges.resources))
        if quota.guaranteed:
            exceeding |= self._charges.exceeding(quota.unreserved_amounts(node, self._charges.resources))
        return exceeding

    def _fitting(self, among: Slots) -> Slots:
        """Return those of *among* that fit the clusters."""
        fitting = among & self._fits_on.union()
        for name in sorted(self._others):
            fitting |= self._fitting_on(name, among & ~fitting)
        for slot in slots_in(among & ~self.single):
            if self._cache.fits(self._members[slot]):
                fitting |= 1 << slot
        return fitting

    def _fitting_on(self, name: ClusterName, among: Slots, reserved: Resources | None = None) -> Slots:
        """Return those of *among* that fit a cluster of which not all headroom is available to them."""
        possible = among & self._candidates[name]
        possible &= ~self._gangs.not_fitting(self._cluster_usage.cluster_state(name).headroom)
        fitting: Slots = 0
        for slot in slots_in(possible):
            if self._cache.fits_on(self._members[slot], name, reserved):
                fitting |= 1 << slot
        return fitting


def _is_placeable(member: Feasibility) -> bool:
    """Return whether one cluster may have the gang minimum, so that it is compared with all candidates.

    Others request resources that no cluster has: comparing these with every cluster would cost much and change nothing.
    """
    return member.needs_one_cluster and member.candidates.refusal is None
