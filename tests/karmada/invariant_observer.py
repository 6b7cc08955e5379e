"""Invariant checks for synchronous tests: reads the store on a thread."""

import asyncio
import threading

from localup.apply import wait_until
from tests.rig import audit
from tests.rig.history import followed, present
from tests.rig.invariants import Evidence, violations

#: Checked invariants; the order is only checked where status events arrive without delay.
INVARIANTS = ("I1", "I2", "I3", "I7")


class InvariantObserver:
    """Follows the store of a control plane and checks invariants."""

    def __init__(self, plane):
        self._plane = plane
        self._history = None
        self._reached = 0
        self._asked = threading.Event()
        self._told = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._follow()), name="judge", daemon=True)

    def __enter__(self):
        self._thread.start()
        wait_until(lambda: self._history, "history followed")
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join(30)

    async def _follow(self):
        url = self._plane.etcd.url
        async with followed(url, self._plane.prefix, since=await present(url)) as history:
            self._history = history
            while not self._ended.is_set():
                if self._asked.is_set():
                    await history.reached(await present(url))
                    self._asked.clear()
                    self._told.set()
                await asyncio.sleep(0.05)

    def violations(self):
        """Return all violations so far."""
        self._told.clear()
        self._asked.set()
        assert self._told.wait(30), "the observer lags behind"
        changes = sorted((change for change in self._history.changes if change.kind), key=lambda each: each.revision)
        evidence = Evidence(changes, audit.by_controller(self._plane.audit_log))
        return [violation for violation in violations(evidence) if violation.startswith(INVARIANTS)]
