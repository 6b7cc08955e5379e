"""Which waiting shapes have room on the clusters just now, each tried once per change of room.

A shape that has no room is looked at again only for the clusters that were
given some since; one that has room is asked again at the cluster where it was
last seen to fit.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain

from controller.engine.cluster_usage import ClusterUsage
from controller.engine.clusters import ClusterName
from controller.engine.feasibility import Feasibility, feasibility
from controller.engine.fit import choose_clusters, free_capacities, free_capacity
from controller.engine.quota import Quota
from controller.engine.reasons import Reason, Refusal
from controller.engine.resources import EMPTY, PODS, Resources, fits, subtract
from controller.engine.workloads import Choice, SchedulingRequirements

ReservedCapacity = tuple[tuple[ClusterName, tuple[tuple[str, int], ...]], ...]
"""The amounts reserved on each cluster, sorted by cluster."""

LastFit = tuple[int, ClusterName | None]
"""The count of frees at the last check, and a cluster that had room then."""


@dataclass(slots=True, eq=False)
class ClassFeasibility:
    """What one shape can hope for from the clusters as they are."""

    requirements: SchedulingRequirements
    """Kept so that its id stays its own."""
    candidates: Feasibility
    charge: Resources
    """What admitting one of it would be charged in all."""
    requested_resources: frozenset[str]
    """The resources that count for shares: all that is asked for but ``pods``."""
    cluster_names: frozenset[ClusterName]
    checked_generation: int = 0
    """How often clusters had been freed when it was last looked at."""
    last_fitting_cluster: ClusterName | None = None
    """A cluster that took it when it was last looked at."""
    cached_choice: tuple[int, Choice | Refusal] | None = None
    """Where one more would go, or why nowhere, and at which version of the ledger."""
    is_inadmissible: bool = False
    """There was no room for it when it was last looked at."""
    besides: "dict[ReservedCapacity, LastFit]" = field(default_factory=dict)
    """Where it last fitted next to reserved capacity, for a shape that needs one cluster only."""

    @property
    def needs_one_cluster(self) -> bool:
        """Say whether one cluster that takes it is all it needs."""
        is_divided = self.requirements.replicas > 0 and self.requirements.placement.divided
        return self.candidates.copies == 1 and not is_divided

    @property
    def is_monotone(self) -> bool:
        """Say whether it finds no room as long as no cluster is given some: a choice of regions may."""
        return not any(spread.by == "region" for spread in self.requirements.placement.spread)


_MAX_UNUSED = 1024
#: For each shape so many sets of reserved capacity are cached: those of queues, and all together.
_MAX_RESERVED_CAPACITIES = 4

Stage = tuple[bool, bool, bool]
"""Whether the root has enough, has enough that nobody is guaranteed, and some cluster has room."""


class FeasibilityCache:
    """The prospects of every shape that was asked for since the clusters last changed."""

    def __init__(self, ledger: ClusterUsage) -> None:
        self.stages: dict[int, Stage] = {}
        """How far each waiting shape came in the last cycle, by the shape's id."""
        self.steps = 0
        """How often a cluster was looked at for a shape."""
        self._ledger = ledger
        self._by_requirements: dict[int, ClassFeasibility] = {}
        self._infeasible: set[int] = set()
        """Shapes without room at the root or on the clusters until something is freed."""
        self._infeasible_at: tuple[Quota | None, int, int] = (None, 0, 0)
        """The quota, and the counts of its frees and of the clusters', at which they were found."""
        self.staged_at: tuple[Quota | None, int, int] = (None, 0, 0)
        """The quota, its version and the ledger's, at which *stages* were computed."""
        self._failures: list[Exception] = []

    def clear(self) -> None:
        """Begin anew: a cluster is another one than before."""
        self._by_requirements.clear()
        self._infeasible.clear()
        self.staged_at = (None, 0, 0)

    def get(self, shape: SchedulingRequirements) -> ClassFeasibility:
        """Return the prospect of *shape*."""
        known = self._by_requirements.get(id(shape))
        if known is None:
            try:
                known = self._evaluate(shape)
            except Exception as error:  # noqa: BLE001 -- tenants write what shapes are made of; one must not stop all
                self._failures.append(error)
                refusal = Refusal(Reason.INTERNAL_ERROR, subject=type(error).__name__)
                known = ClassFeasibility(shape, Feasibility((), 1, refusal), EMPTY, frozenset(), frozenset())
            self._by_requirements[id(shape)] = known
        return known

    def pop_failures(self) -> list[Exception]:
        """Return the errors that came out of judging shapes since this was last asked."""
        found, self._failures = self._failures, []
        return found

    def _evaluate(self, shape: SchedulingRequirements) -> ClassFeasibility:
        found = feasibility(shape, self._ledger)
        charge = found.charge(shape)
        asks = frozenset(name for name, amount in charge.items() if amount > 0 and name != PODS)
        known = ClassFeasibility(shape, found, charge, asks, frozenset(found.names))
        self.steps += len(found.names) + 1
        if known.needs_one_cluster:
            known.last_fitting_cluster = self._first_fitting_cluster(known)
            known.checked_generation = self._ledger.frees
        return known

    def prepare(self, shapes: Iterable[SchedulingRequirements], steps: int) -> bool:
        """Judge those of *shapes* that were not since a cluster changed, until *steps* are done; say whether all are.

        One more step than that is done for each cluster at most. Whether it was called changes no decision.
        """
        end = self.total_steps + steps
        for shape in shapes:
            if id(shape) in self._by_requirements:
                continue
            if self.total_steps >= end:
                return False
            self.get(shape)
        return True

    def prune(self, shapes: Container[int], count: int) -> None:
        """Forget shapes that wait no more, where they are more than the *count* of *shapes* that do."""
        if len(self._by_requirements) > 2 * count + _MAX_UNUSED:
            self._by_requirements = {key: known for key, known in self._by_requirements.items() if key in shapes}
            self._infeasible &= self._by_requirements.keys()

    @property
    def total_steps(self) -> int:
        """Return how many evaluations were made in all, those of affinities included."""
        return self.steps + self._ledger.candidates.steps

    def infeasible(self, quota: Quota) -> AbstractSet[int]:
        """Return the shapes that ``is_feasible`` refused, and that stay infeasible until something is freed."""
        root = quota.tree.root.name
        at = quota, quota.freed[root], self._ledger.frees
        if at != self._infeasible_at:
            self._infeasible.clear()
            self._infeasible_at = at
        return self._infeasible

    def is_feasible(self, quota: Quota, shape: SchedulingRequirements) -> bool:
        """Say whether there is room at the root and on the clusters, guarantees aside."""
        full = self.infeasible(quota)
        if id(shape) in full:
            return False
        prospect = self.get(shape)
        has_free = prospect.candidates.refusal is None and quota.has_free(quota.tree.root, prospect.charge)
        if has_free and self.fits(prospect):
            return True
        if not has_free or prospect.is_monotone:
            self._infeasible.add(id(shape))
        return False

    def fits(self, prospect: ClassFeasibility) -> bool:
        """Say whether the clusters have room for one more of the shape."""
        if not prospect.needs_one_cluster:
            return self._fits_several(prospect)
        if prospect.last_fitting_cluster is not None and self._fits_on(prospect, prospect.last_fitting_cluster):
            return True
        if prospect.last_fitting_cluster is None and prospect.checked_generation == self._ledger.frees:
            return False
        others = self._clusters_to_check(prospect, prospect.checked_generation, prospect.last_fitting_cluster)
        prospect.last_fitting_cluster = next((name for name in others if self._fits_on(prospect, name)), None)
        prospect.checked_generation = self._ledger.frees
        return prospect.last_fitting_cluster is not None

    def _clusters_to_check(
        self, prospect: ClassFeasibility, looked: int, last: ClusterName | None
    ) -> Iterable[ClusterName]:
        """Return the clusters that may take a shape which the cluster *last*, found at *looked*, no longer takes.

        Clusters before *last* refused it then; of these only the ones that were freed since are checked again.
        """
        freed = self._ledger.freed_since(looked)
        names = prospect.candidates.names
        if freed is None:
            return names
        return chain(
            sorted(freed & prospect.cluster_names), names[bisect_right(names, last) :] if last is not None else ()
        )

    def fits_excluding_reserved(self, prospect: ClassFeasibility, reserved: ReservedCapacity) -> bool:
        """Say whether a cluster has room for one more of a simple shape next to the *reserved* capacity (O6)."""
        known = prospect.besides.get(reserved)
        if known is not None:
            looked, witness = known
            if witness is not None and self._fits_excluding_reserved(prospect, witness, reserved):
                return True
            if witness is None and looked == self._ledger.frees:
                return False
            names = self._clusters_to_check(prospect, looked, witness)
        else:
            if len(prospect.besides) >= _MAX_RESERVED_CAPACITIES:
                prospect.besides.clear()
            names = prospect.candidates.names
        witness = next((name for name in names if self._fits_excluding_reserved(prospect, name, reserved)), None)
        prospect.besides[reserved] = self._ledger.frees, witness
        return witness is not None

    def _fits_excluding_reserved(
        self, prospect: ClassFeasibility, name: ClusterName, reserved: ReservedCapacity
    ) -> bool:
        site, shape = self._ledger.site(name), prospect.requirements
        self.steps += 1
        if not fits(shape.gang, site.headroom):
            return False
        room = free_capacity(site)
        amounts = next((dict(amounts) for cluster, amounts in reserved if cluster == name), None)
        if amounts is not None:
            beside = subtract(
                room.headroom if room.headroom_for_all_pods is None else room.headroom_for_all_pods, amounts
            )
            if not fits(shape.demand, beside):
                return False
            room = replace(room, headroom=subtract(room.headroom, amounts), headroom_for_all_pods=beside)
        return room.fits(shape)

    def _fits_several(self, prospect: ClassFeasibility) -> bool:
        """Say the same of a shape that needs several clusters; one that was refused waits for one of them."""
        if prospect.is_monotone and prospect.is_inadmissible:
            freed = self._ledger.freed_since(prospect.checked_generation)
            if freed is not None and freed.isdisjoint(prospect.cluster_names):
                return False
        prospect.checked_generation = self._ledger.frees
        shape = prospect.requirements
        if prospect.is_monotone and not (shape.replicas and shape.placement.divided):
            prospect.is_inadmissible = not self._fits_copies(prospect)
        else:
            prospect.is_inadmissible = not isinstance(self.choose(prospect), Choice)
        return not prospect.is_inadmissible

    def _fits_copies(self, prospect: ClassFeasibility) -> bool:
        """Say whether as many clusters take the shape as it needs, no further than that is known."""
        needed, spare = prospect.candidates.copies, len(prospect.candidates.names) - prospect.candidates.copies
        for name in prospect.candidates.names:
            if needed == 0 or spare < 0:
                break
            if self._fits_on(prospect, name):
                needed -= 1
            else:
                spare -= 1
        return needed <= 0 <= spare

    def choose(self, prospect: ClassFeasibility) -> Choice | Refusal:
        """Return where one more of the shape goes, or why nowhere."""
        if not prospect.candidates.names and prospect.requirements.excluded_clusters:
            names = ", ".join(sorted(prospect.requirements.excluded_clusters))
            why = f"it or an equal workload did not start on {names}, which has not changed since"
            return Refusal(Reason.INSUFFICIENT_CAPACITY, subject=why)
        if prospect.cached_choice is None or prospect.cached_choice[0] != self._ledger.version:
            candidates = free_capacities(self._ledger.site(name) for name in prospect.candidates.names)
            verdict = choose_clusters(prospect.requirements, candidates, prospect.candidates.copies)
            prospect.cached_choice = self._ledger.version, verdict
            self.steps += len(candidates)
        return prospect.cached_choice[1]

    def refusal(self, prospect: ClassFeasibility) -> Refusal | None:
        """Return why there is no room for the shape, ``None`` where there is."""
        verdict = self.choose(prospect)
        return verdict if isinstance(verdict, Refusal) else None

    def _first_fitting_cluster(self, prospect: ClassFeasibility) -> ClusterName | None:
        return next((name for name in prospect.candidates.names if self._fits_on(prospect, name)), None)

    def _fits_on(self, prospect: ClassFeasibility, name: ClusterName) -> bool:
        site, shape = self._ledger.site(name), prospect.requirements
        self.steps += 1
        # Most clusters are too full in any case, which is seen without asking what is held there for whom.
        return fits(shape.gang, site.headroom) and free_capacity(site).fits(shape)
