"""Measures the work of a call as a number that is the same on every machine, whatever else it does."""

import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

#: An operation on so many bytes of new memory counts as much as a line.
_BYTES_PER_LINE = 64


def work_of(call: Callable[[], Any]) -> int:
    """Return the lines of Python that *call* executes, plus the memory that it allocates in units of 64 bytes.

    Allocations show what a single line costs, such as a copy of a long text; freed memory counts, too. A search by the
    interpreter, such as ``name in names``, is one line, whatever its length: `make bench` measures its CPU time.
    """
    lines = allocated = size = 0

    def count(_frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal lines, allocated, size
        now, peak = tracemalloc.get_traced_memory()
        allocated += max(peak - size, 0)
        lines += 1
        tracemalloc.reset_peak()
        size = now
        return count

    before = sys.gettrace()
    tracemalloc.start()
    try:
        sys.settrace(count)
        call()
        sys.settrace(before)
        count(sys._getframe(), "", None)
    finally:
        sys.settrace(before)
        tracemalloc.stop()
    return lines + allocated // _BYTES_PER_LINE
