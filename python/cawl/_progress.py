"""Progress by tqdm's protocol."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional


@contextmanager
def bar(
    progress: Optional[Callable[..., Any]], what: str, total: Optional[int]
) -> Iterator[Optional[Callable[[int], Any]]]:
    """A function that is told how many more calls are done. ``progress`` is called as tqdm is:
    ``progress(total=…, desc=…, unit=…)``, and gives an object with ``update(n)`` and ``close()``."""
    if progress is None and sys.stderr is not None and sys.stderr.isatty():
        try:
            from tqdm import tqdm as progress
        except ImportError:
            pass
    if progress is None:
        yield None
        return
    shown = progress(total=total, desc=what, unit=" calls", unit_scale=True)
    try:
        yield shown.update
    finally:
        shown.close()
