"""Lets the play begin, looks on until it is over, and notices at once when somebody in it dies."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Final, NoReturn, Self

from localup.api import Api, ApiError
from localup.demo import setup, table
from localup.demo.console import DemoConsole
from localup.demo.log_reader import PendingReasonReader
from localup.demo.result import DemoResult, evaluate
from localup.demo.scenario import ScenarioStep, StartCondition, hyperjobs_by_name, jobs_by_name
from localup.demo.view import PATHS, View
from localup.processes import ProcessError, tail
from localup.stack import Stack
from localup.watch import Event, Watch

_TICK_SECONDS: Final = 0.1
_USAGE_SECONDS: Final = 0.3
_TABLE_SECONDS: Final = 3.0
_HEALTH_CHECK_SECONDS: Final = 1.0
#: No job runs for so long, so that something happens in between while all is well.
_STALLED_SECONDS: Final = 30.0


class DemoRunner:
    """One performance on a stack that is at work.

    Args:
        stack: The processes, all started.
        play: The acts, in order of time.
        narrator: Prints.
        seconds: When to give up.
    """

    def __init__(self, stack: Stack, play: Sequence[ScenarioStep], narrator: DemoConsole, *, seconds: float) -> None:
        self.view = View((jobs_by_name(play), hyperjobs_by_name(play)), setup.limits(), setup.queues())
        self._stack = stack
        self._coming = list(play)
        self._joined: list[str] = []
        self._before: list[str] = []
        self._open = ExitStack()
        self._tenant: Api
        self._narrator = narrator
        self._seconds = seconds
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._gossip = PendingReasonReader(stack.log("controller"))
        self._began = time.monotonic()
        self._stirred_at = 0.0
        self._reckoned_at = self._shown_at = self._asked_at = 0.0
        self._is_news = False

    def __enter__(self) -> Self:
        """Open the watches; they see everything from before the first job on."""
        try:
            for path in PATHS:
                self._open.enter_context(Watch(self._stack.plane, path, self._events))
            self._tenant = self._open.enter_context(self._stack.plane.client("tenant"))
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def perform(self) -> DemoResult:
        """Play all acts and return how it went; raise when a process dies."""
        self._began = time.monotonic()
        with self._narrator.drawing():
            while not self._is_over():
                self._cue()
                self._go_on()
            self._reckon()
        return evaluate(self.view.story.ways.values(), self.view.families.all.values(), self.view.broken)

    def attend(self) -> NoReturn:
        """Go on telling what happens to jobs of whoever is at the keyboard; it ends when he interrupts it."""
        with self._narrator.drawing():
            while True:
                self._go_on()

    def _go_on(self) -> None:
        self._look()
        self._reckon()
        self._check()

    @property
    def _now(self) -> float:
        return time.monotonic() - self._began

    def _is_over(self) -> bool:
        if not self._coming and self.view.is_over and self._events.empty():
            return True
        if self._now > self._seconds:
            self._narrator.say(f"giving up after {self._seconds:.0f} s", style="red")
            return True
        if self._now - self._stirred_at > _STALLED_SECONDS:
            self._narrator.say(f"giving up: nothing has happened for {_STALLED_SECONDS:.0f} s", style="red")
            return True
        return False

    def _cue(self) -> None:
        """Let the next act begin when its time has come."""
        if not self._coming or not self._is_time(self._coming[0]):
            return
        act = self._coming.pop(0)
        self._narrator.say()
        self._narrator.step(self._now, act.title, style="bold")
        if act.reclaim:
            setup.write_configuration(self._stack.plane.folder, reclaim=True)
            self._stack.start_controller()
        for role in act.roles:
            self.view.story.submitted(role, self._now)
        setup.submit_jobs(self._tenant, act.roles)
        setup.submit_hyperjobs(self._tenant, act.hyperjobs)
        setup.join_clusters(self._stack.plane.admin, act.clusters)
        self._joined += act.clusters
        self._before = [role.name for role in act.roles]

    def _is_time(self, act: ScenarioStep) -> bool:
        """Say whether *act* may begin: those before it must have come to where they were to come."""
        if act.begins > self._now or not self.view.have_told(self._joined):
            return False
        match act.cue:
            case StartCondition.RUNNING:
                return self.view.story.is_running(self._before)
            case StartCondition.QUIET:
                return self.view.is_quiet
            case StartCondition.TIME:
                return True

    def _look(self) -> None:
        """Take what has happened, waiting a moment for it."""
        try:
            event = self._events.get(timeout=_TICK_SECONDS)
            while True:
                self._narrator.tell(self.view.take(event, self._now))
                self._is_news = True
                self._stirred_at = self._now
                event = self._events.get_nowait()
        except Empty:
            pass
        for complaint in self._gossip.news():
            self._narrator.tell(self.view.story.heard(complaint, self._now))

    def _check(self) -> None:
        """Raise when somebody has died."""
        self._stack.check()
        if self._now - self._asked_at < _HEALTH_CHECK_SECONDS:
            return
        self._asked_at = self._now
        try:
            self._stack.plane.admin.get("/readyz")
        except (ApiError, OSError) as error:
            log = tail(self._stack.plane.folder / "kube-apiserver.log")
            raise ProcessError(f"the API server is not ready: {error}; its last lines:\n{log}") from error

    def _reckon(self) -> None:
        """Reckon how the queues stand after news, and show it now and then."""
        if not self._is_news or self._now - self._reckoned_at < _USAGE_SECONDS:
            return
        self._is_news = False
        self._reckoned_at = self._now
        standings = self.view.reckon(self._now)
        lines = self._narrator.lines
        if lines is not None:
            queues = table.queue_table(self._now, standings)
            story, families = self.view.story.ways.values(), self.view.families.all.values()
            self._narrator.draw(table.live_view(queues, story, families, lines=lines))
        elif self._now - self._shown_at >= _TABLE_SECONDS:
            self._shown_at = self._now
            self._narrator.show(table.queue_table(self._now, standings))
