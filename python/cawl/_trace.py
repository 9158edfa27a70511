"""Traces as tables, and their pictures."""

from __future__ import annotations

import os
import warnings
from functools import cached_property
from html import escape
from typing import Any, Callable, ContextManager, Optional, Union

from . import _cawl
from ._cawl import Error, Table
from ._progress import bar

Path = Union[str, "os.PathLike[str]"]


class DamageWarning(UserWarning):
    """A trace has a part that cannot be read; its tables have the rest."""


def read(path: Path, *, progress: Optional[Callable[..., Any]] = None) -> "Trace":
    """Reads a trace of ``cawl-cli run --trace FILE`` or ``import``.

    ``progress`` is ``tqdm.tqdm`` or what has its protocol; by default a bar of tqdm is shown on a terminal,
    if tqdm is installed. Raises OSError if the file cannot be read, Error if it is no trace; warns
    (DamageWarning) of one that is damaged, truncated or was not closed.
    """
    return Trace(path, progress=progress)


class Trace:
    """A trace. ``calls``, ``samples`` and ``files`` are what was recorded; ``causes`` is what the models say,
    and is made when it is first asked for, since they run over all calls."""

    path: str
    #: A row a call: docs/reference/EXPORT.md has the columns up to ``estimated``.
    calls: Table
    #: The kernel's counters: time_ns, and dirty, writeback, background, hard, written, dirtied in bytes.
    samples: Table
    #: A row a file: path, device, inode, first_size, and the calls, bytes, duration_ns that were on it.
    files: Table
    #: What is wrong with the trace, or None.
    damage: Optional[str]
    #: The profile of the traced machine as text (TOML), or None.
    profile: Optional[str]

    def __init__(self, path: Path, *, progress: Optional[Callable[..., Any]] = None) -> None:
        self.path = os.fspath(path)
        self._progress = progress
        with bar(progress, "reading", None) as update:
            self.calls, self.samples, self.files, self.damage, self.profile = _cawl.read(self.path, update)
        if self.damage:
            warnings.warn(f"{self.path}: {self.damage}", DamageWarning, stacklevel=3)

    @cached_property
    def causes(self) -> Table:
        """A row a call, in the order of ``calls``: call, state, predicted_ns, low_ns, high_ns, dirty, cause,
        and the observed time by cause (docs/reference/EXPORT.md)."""
        with bar(self._progress, "predicting", len(self.calls)) as update:
            return _cawl.causes(self.path, update)

    def by_cause(self) -> dict[str, float]:
        """Observed seconds by cause, the largest first."""
        np = _numpy()
        first = self.causes.columns.index("cause") + 1
        sums = {
            name[: -len("_ns")].replace("_", " "): float(np.nansum(_column(self.causes, name))) / 1e9
            for name in self.causes.columns[first:]
        }
        return dict(sorted(((name, s) for name, s in sums.items() if s > 0), key=lambda item: -item[1]))

    def plot(self, kind: str = "dirty", ax: Any = None) -> Any:
        """Draws the ``dirty`` level against the kernel's limits, seconds by ``causes``, or the ``densities``
        of the calls' durations by operation. Returns matplotlib's axes."""
        draw = {
            "dirty": self._plot_dirty,
            "causes": self._plot_causes,
            "densities": self._plot_densities,
        }.get(kind)
        if draw is None:
            raise ValueError(f"there is no picture `{kind}`; the pictures are dirty, causes, densities")
        if ax is None:
            ax = _pyplot().subplots(figsize=(8, 3.5), layout="constrained")[1]
        draw(ax)
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def _start(self) -> float:
        np = _numpy()
        times = [_column(self.calls, "start_ns"), _column(self.samples, "time_ns")]
        return float(np.min(np.concatenate(times), initial=np.inf))

    def _plot_dirty(self, ax: Any) -> None:
        np = _numpy()
        start = self._start()
        if len(self.calls):
            time = (_column(self.calls, "start_ns") + _column(self.calls, "duration_ns") - start) / 1e9
            dirty = _column(self.causes, "dirty") / 2**20
            known = ~np.isnan(dirty)
            ax.plot(time[known], dirty[known], lw=1.2, label="modelled", color="C0")
        if len(self.samples):
            time = (_column(self.samples, "time_ns") - start) / 1e9
            level = (_column(self.samples, "dirty") + _column(self.samples, "writeback")) / 2**20
            ax.plot(time, level, lw=1.2, label="sampled", color="C1")
            limits = {"background limit": "background", "hard limit": "hard"}
            for (label, name), style in zip(limits.items(), (":", "--")):
                limit = _column(self.samples, name) / 2**20
                if np.nanmin(limit) < 4 * np.nanmax(level, initial=1.0):
                    ax.plot(time, limit, lw=1, ls=style, color="0.4", label=label)
        ax.set(xlabel="time, s", ylabel="dirty, MiB", ylim=(0, None), title="Dirty level")
        if ax.lines:
            ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))

    def _plot_causes(self, ax: Any) -> None:
        sums = self.by_cause()
        total = sum(sums.values()) or 1.0
        shown = {name: s for name, s in sums.items() if s >= total / 1000}
        ax.barh(list(shown), list(shown.values()), color="C0")
        for at, seconds in enumerate(shown.values()):
            ax.text(seconds, at, f" {seconds:.3g} s, {100 * seconds / total:.1f} %", va="center", fontsize=9)
        ax.invert_yaxis()
        ax.margins(x=0.2)
        ax.set(xlabel="observed time, s", title="Time by cause")

    def _plot_densities(self, ax: Any) -> None:
        np = _numpy()
        ops, names = _column(self.calls, "op"), self.calls.texts("op")
        took = _column(self.calls, "duration_ns")
        timed, counts = np.unique(ops[took > 0], return_counts=True)
        # Few calls have no density; they would hide those of others.
        timed = timed[counts >= min(20, counts.max(initial=0))]
        ranked = sorted(timed, key=lambda op: -took[ops == op].sum())[:5]
        for op in ranked:
            us = np.log10(took[(ops == op) & (took > 0)] / 1e3)
            # The rule of Freedman and Diaconis; no narrower than the clock's steps, nor wider than a fifth of
            # a decade.
            spread = float(np.subtract(*np.percentile(us, [75, 25])))
            width = min(max(2 * spread * len(us) ** (-1 / 3), 0.02), 0.2)
            bins = np.arange(us.min() - width, us.max() + 2 * width, width)
            counts, edges = np.histogram(us, bins)
            share = counts / counts.sum() / width
            label = f"{names[int(op)]} ({len(us):,})"
            ax.stairs(share, 10**edges, label=label, fill=False, lw=1.2)
        ax.set(
            xscale="log", xlabel="duration, µs", ylabel="density per decade", title="Durations by operation"
        )
        if ranked:
            ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))

    def __repr__(self) -> str:
        return f"<cawl.Trace {self.path}: {len(self.calls):,} calls, {len(self.files):,} files>"

    def _repr_html_(self) -> str:
        rows = [
            ("calls", f"{len(self.calls):,}"),
            ("files", f"{len(self.files):,}"),
            ("samples of the kernel's counters", f"{len(self.samples):,}"),
        ]
        if self.damage:
            rows.append(("damage", self.damage))
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in rows
        )
        return f"<table><caption>{escape(self.path)}</caption>{cells}</table>"


def _numpy() -> Any:
    try:
        import numpy
    except ImportError as error:
        raise Error("numpy is not installed: pip install numpy") from error
    return numpy


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise Error("matplotlib is not installed: pip install matplotlib") from error
    return pyplot


def _column(table: Table, name: str) -> Any:
    return _numpy().frombuffer(table.floats(name))
