"""Builds pages for readers and shares them between all readers with the same rights until the state changes."""

import zlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import thread_time
from typing import Any, TypeVar

import msgspec

from console.analysis import Analyses
from console.history import MomentAnswer
from console.model import Model
from console.pages import clock, main_of, render
from console.reader import Reader, Rights
from console.views import clusters, decisions, hyperjobs, moments, queues, what_if, workloads
from console.views.forecasts import Forecasts, Start, forecast_heads, new_forecasts
from console.views.listing import ForbiddenError, NotVisibleError, Query, shown_snapshot
from controller.cli.input.snapshot import Snapshot
from controller.cli.render.amounts import format_time
from controller.engine.state.workloads import Workload
from controller.kube.access_reviews import User
from controller.kube.errors import NotFound

A = TypeVar("A", bound=msgspec.Struct)

#: Builds of one page while namespaces are reviewed: one for each step from queues to the rows of a page.
_ATTEMPTS = 4
_MAX_SHARED = 512
#: Seconds after which a page without script reloads itself, and while an analysis is running.
_RELOAD_SECONDS, _RELOAD_SOON_SECONDS = 30, 3
_MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Page:
    """One page: the route, its template, and what its data come from."""

    route: str
    template: str
    build: Callable[["Renders", Query, Reader], msgspec.Struct]
    title: str = ""
    """Empty: the name in the path."""


@dataclass(slots=True)
class Shared:
    """One rendered page, without the name of the user."""

    data: Any
    main: str
    _event: bytes | None = None
    _json: bytes | None = None

    @property
    def event(self) -> bytes:
        """Return it as an event of a stream."""
        if self._event is None:
            self._event = event("page", self.main)
        return self._event

    @property
    def json(self) -> bytes:
        """Return its data as JSON."""
        if self._json is None:
            self._json = msgspec.json.encode(self.data)
        return self._json


def event(name: str, text: str) -> bytes:
    """Return one event of a stream, compressed so that any stream of compressed events can contain it."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    compressor = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(f"event: {name}\n{lines}\n".encode()) + compressor.flush(zlib.Z_FULL_FLUSH)


@dataclass(slots=True)
class Renders:
    """The pages of the newest snapshot."""

    model: Model
    rights: Rights
    analyses: Analyses
    forecasts: Forecasts = field(default_factory=Forecasts)
    version: int = 0
    """Increases when a page may have changed."""
    time_event: bytes = b""
    """The time of the newest snapshot, as an event of a stream."""
    _shared: OrderedDict[object, Shared] = field(default_factory=OrderedDict)

    def invalidate(self) -> None:
        """Render again: the snapshot or an analysis has changed."""
        self.version += 1
        self._shared.clear()
        snapshot = self.model.snapshot
        self.time_event = event("time", clock(format_time(snapshot.now)) if snapshot is not None else "")

    async def page(self, page: Page, path: str, query: Query, user: User, reader: Reader) -> Shared:
        """Return the page for *reader*, with reviews of the namespaces on it; raise what its view raises."""
        shared = self._get(page, path, query, reader)
        for _ in range(_ATTEMPTS):
            if not reader.unknown:
                break
            await self.rights.review(user, reader)
            shared = self._get(page, path, query, reader)
        reader.unknown.clear()
        if isinstance(shared, Exception):
            raise shared
        if not shared.main:
            # Too many namespaces: the page has what is known, for this reader alone.
            return Shared(shared.data, main_of(self.html(page, path, query, shared.data)))
        return shared

    def _get(self, page: Page, path: str, query: Query, reader: Reader) -> Shared | Exception:
        """Return the page with what *reader* is known to see, or why it cannot see it."""
        # A page of which other namespaces were reviewed is not that of this reader, even where both may read the same.
        reviewed = frozenset(reader.namespaces)
        key = path, tuple(sorted(query.values.items())), reader.key, reviewed
        shared = self._shared.get(key)
        if shared is not None:
            return shared
        began = thread_time()
        try:
            data = page.build(self, query, reader)
            shared = Shared(data, main_of(self.html(page, path, query, data)) if not reader.unknown else "")
        except (NotVisibleError, ForbiddenError) as error:
            return error
        finally:
            reader.seconds += thread_time() - began
        if reader.unknown:
            return shared
        self._shared[key] = shared
        while len(self._shared) > _MAX_SHARED:
            self._shared.popitem(last=False)
        return shared

    def html(self, page: Page, path: str, query: Query, data: object, **more: Any) -> str:
        """Return the whole page."""
        snapshot = self.model.snapshot
        now = snapshot.now if snapshot is not None else 0
        is_running = getattr(data, "analysis", "") == "Running"
        return render(
            page.template,
            data,
            query,
            path=path,
            title=page.title or query.path.get("name", ""),
            time=getattr(data, "time", None),
            notice=self.model.notice,
            minute=now // _MINUTE_MS * _MINUTE_MS,
            reload_seconds=_RELOAD_SOON_SECONDS if is_running else _RELOAD_SECONDS,
            **more,
        )

    # -- analyses --------------------------------------------------------------

    def ask_forecasts(self) -> None:
        """Compute the forecasts of the first workloads of all queues again, if they are old."""
        snapshot = self.model.snapshot
        if snapshot is None or snapshot.run_times is None or not snapshot.engine.pending:
            return
        self.analyses.ask("forecasts", lambda: msgspec.json.encode(forecast_heads(snapshot)))

    def on_answer(self) -> None:
        """Use the newest forecasts."""
        known, snapshot = self.analyses.cached("forecasts"), self.model.snapshot
        if known is not None and known.answer is not None and snapshot is not None:
            self.forecasts = new_forecasts(snapshot, msgspec.json.decode(known.answer, type=dict[str, Start]))
        self.invalidate()

    def workload(self, query: Query, reader: Reader) -> workloads.WorkloadView:
        """Return one workload with its analysis, which is begun if there is none."""
        workload = workloads.find_workload(self.model, query, reader)
        analysis, status = self._analysis(shown_snapshot(self.model), workload, reader)
        insights = workloads.Insights(self.forecasts, analysis, status)
        return workloads.workload_view(self.model, workload, reader, insights)

    def _analysis(
        self, snapshot: Snapshot, workload: Workload, reader: Reader
    ) -> tuple[workloads.Analysis | None, str]:
        if workloads.refusal_of(snapshot, workload) is None:
            return None, ""
        key, uid = ("workload", workload.uid), workload.uid
        self.analyses.ask(key, lambda: msgspec.json.encode(workloads.analyse(snapshot, uid)), user=reader.username)
        return self._answer(key, workloads.Analysis)

    def _answer(self, key: Hashable, kind: type[A]) -> tuple[A | None, str]:
        """Return the last answer to *key*, or ``None`` and why there is none."""
        known = self.analyses.cached(key)
        if known is None:
            return None, "Running"
        if known.answer is None:
            return None, "Failed"
        return msgspec.json.decode(known.answer, type=kind), ""

    # -- what-if -----------------------------------------------------------------

    def what_if(self, query: Query, reader: Reader) -> what_if.WhatIfView:
        """Return the form with the result of its changes, which are planned in a child."""
        model = self.model
        changes = what_if.requested_changes(query)
        if not changes:
            return what_if.what_if_view(model, query, reader, None)
        what_if.check_rights(changes, model, reader)
        if reader.unknown:
            return what_if.what_if_view(model, query, reader, None, "Running")
        key = "what-if", tuple(change.text for change in changes)

        async def prepare() -> Callable[[], bytes]:
            paths = what_if.changed_objects(changes)
            objects = {}
            for path, kind in paths.items():
                with suppress(NotFound):  # the difference names it
                    objects[path] = kind, await model.read(path)
            return lambda: msgspec.json.encode(what_if.difference(shown_snapshot(model), changes, objects))

        self.analyses.ask_prepared(key, prepare, user=reader.username)
        return what_if.what_if_view(model, query, reader, *self._answer(key, what_if.Difference))

    # -- past decisions ----------------------------------------------------------

    def moment(self, query: Query, reader: Reader) -> moments.MomentView:
        """Return the plan at a past time, which a controller replays."""
        at, focus = moments.requested_moment(query)
        if at is None or not self.model.history.is_enabled:
            return moments.moment_view(self.model, query, reader, None)
        key = "moment", at, focus
        self.analyses.fetch(key, lambda: self.model.history.moment(at, focus), user=reader.username)
        return moments.moment_view(self.model, query, reader, *self._answer(key, MomentAnswer))


PAGES: Mapping[str, Page] = {
    page.route: page
    for page in (
        Page("/", "overview.html", lambda o, q, r: queues.overview(o.model, q, r, o.forecasts), "Overview"),
        Page("/queues", "tree.html", lambda o, q, r: queues.tree(o.model, q, r, o.forecasts), "Queues"),
        Page("/queues/{name}", "queue.html", lambda o, q, r: queues.queue_view(o.model, q, r, o.forecasts)),
        Page(
            "/workloads",
            "workloads.html",
            lambda o, q, r: workloads.workloads_view(o.model, q, r, o.forecasts),
            "Workloads",
        ),
        Page("/workloads/{namespace}/{kind}/{name}", "workload.html", Renders.workload),
        Page("/hyperjobs", "hyperjobs.html", lambda o, q, r: hyperjobs.hyperjobs_view(o.model, q, r), "HyperJobs"),
        Page(
            "/hyperjobs/{namespace}/{name}",
            "hyperjob.html",
            lambda o, q, r: hyperjobs.hyperjob_view(o.model, q, r, o.forecasts),
        ),
        Page("/clusters", "clusters.html", lambda o, q, r: clusters.clusters_view(o.model, q, r), "Clusters"),
        Page("/decisions", "decisions.html", lambda o, q, r: decisions.decisions_view(o.model, q, r), "Decisions"),
        Page("/moment", "moment.html", Renders.moment, "Past plan"),
        Page("/what-if", "what_if.html", Renders.what_if, "What if"),
        Page("/clusters/{name}", "cluster.html", lambda o, q, r: clusters.cluster_view(o.model, q, r)),
    )
}
