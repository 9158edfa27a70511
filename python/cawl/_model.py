"""Modelled machines: what calls would cost."""

from __future__ import annotations

import operator
import os
import re
from typing import Any, NamedTuple, Optional, Tuple, Union

from . import _cawl
from ._cawl import Cost

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


def size_of(size: Union[int, str]) -> int:
    """Bytes of a size as cawl-cli takes it: 384G and 384GiB are 1024-fold, 100MB is 1000-fold."""
    if isinstance(size, int):
        return size
    found = re.fullmatch(r"\s*([0-9.]+)\s*([KMGTP]?)(i?B)?\s*", size, re.IGNORECASE)
    try:
        if found is None:
            raise ValueError
        unit = found[2].upper()
        base = 1000 if unit and (found[3] or "").upper() == "B" else 1024
        return int(float(found[1]) * base ** "KMGTP".find(unit) * base if unit else float(found[1]))
    except ValueError:
        raise ValueError(f"`{size}` is no size; write bytes, or 512M, 384G, 100MB") from None


def _by(process: int, thread: int, now_ns: Optional[int]) -> Tuple[int, int, Optional[int]]:
    """Who makes a call, and when."""
    given = {"process": (process, 32), "thread": (thread, 32), "now_ns": (now_ns, 64)}
    for name, (value, bits) in given.items():
        if value is None and name == "now_ns":
            continue
        try:
            is_one = 0 <= operator.index(value) < 1 << bits
        except TypeError:
            raise TypeError(f"{name} is a whole number, not {value!r}") from None
        if not is_one:
            raise ValueError(f"{name} is a number from 0 to 2^{bits} - 1, not {value!r}")
    return process, thread, now_ns


class Machine:
    """Constants of a machine: those of a profile, or an ordinary machine that was not measured; changed.

    ``profile`` is a file of ``cawl-cli calibrate`` or the text of one. ``ram`` sets the dirty limits that the
    kernel derives on an idle machine with so much memory, as ``cawl-cli predict --ram`` does, with
    ``dirty_ratio`` (background and hard, in percent). ``changes`` has constants that differ, as TOML:
    ``"device.writeback.value = 1e8"`` (docs/reference/CONSTANTS.md). ``toml`` is the result.
    """

    def __init__(
        self,
        profile: Union[None, str, "os.PathLike[str]"] = None,
        *,
        ram: Union[None, int, str] = None,
        dirty_ratio: Tuple[float, float] = (10, 20),
        changes: str = "",
    ) -> None:
        text = None if profile is None else os.fspath(profile)
        ratios = [ratio / 100 for ratio in dirty_ratio]
        self.toml: str = _cawl.profile(text, None if ram is None else size_of(ram), ratios, changes)

    def model(self, model: str = "kernel") -> "Model":
        """A modelled machine with these constants and an empty page cache."""
        return Model(self, model)


class Level(NamedTuple):
    """Where a modelled machine stands."""

    #: free, flush or throttle.
    regime: str
    #: The moment that this is true of, in ns.
    time_ns: int
    #: Dirty bytes, those under writeback included.
    dirty_bytes: int
    #: From here on the flusher works.
    background_bytes: int
    #: Writers are held below this.
    hard_bytes: int
    #: Bytes per second that are being cleaned; 0 if none are.
    writeback_bytes_per_s: float
    #: Bytes per second at which writers are let through; 0 if they are not throttled.
    throttled_bytes_per_s: float


class Model:
    """A modelled machine, as libcawl has it (docs/reference/LIBRARY.md): it is told calls, and answers what they
    cost.

    Each call takes ``now_ns``, when it begins, in ns; by default when the thread's last one ended, and not
    before the latest call of another. Calls come in the order of their begins. ``process`` and ``thread`` are
    numbers of the caller's. A file is a path and a number of its device. All sizes are in bytes. What cannot
    be done raises Error. ``model`` is "kernel", the laws of Linux; "cawl", the paper's; or "naive", bytes
    over a rate.
    """

    def __init__(
        self, profile: Union[None, str, "os.PathLike[str]", Machine] = None, model: str = "kernel"
    ) -> None:
        machine = profile if isinstance(profile, Machine) else Machine(profile)
        self._machine = _cawl.Machine(machine.toml, model)
        self._inodes: dict[Tuple[int, str], int] = {}

    def _file(self, path: str, device: int) -> Tuple[int, int]:
        return device, self._inodes.setdefault((device, path), len(self._inodes) + 1)

    def add_file(self, path: str, size: int, *, cached: bool = False, device: int = 1) -> None:
        """A file that was there before the first call, and is cached or not."""
        self._machine._add_file(*self._file(path, device), size, cached)

    def open(
        self,
        path: str,
        mode: str = "r",
        *,
        sync: bool = False,
        dsync: bool = False,
        direct: bool = False,
        stream: bool = False,
        device: int = 1,
        now_ns: Optional[int] = None,
        process: int = 1,
        thread: int = 1,
    ) -> Tuple[int, Cost]:
        """Opens a file; ``mode`` is r, r+, w, w+, a or a+ as of open(). O_SYNC, O_DSYNC, O_DIRECT by their
        names; a ``stream`` is for fwrite. Returns a descriptor and the cost."""
        modes = {
            "r": "read",
            "r+": "read write",
            "w": "write create truncate",
            "w+": "read write create truncate",
            "a": "write create append",
            "a+": "read write create append",
        }
        if mode not in modes:
            raise ValueError(f"there is no mode `{mode}`; the modes are {', '.join(modes)}")
        bits = dict(self._machine._open_bits)
        flags = [("sync", sync), ("dsync", dsync), ("direct", direct), ("stream", stream)]
        names = modes[mode].split() + [name for name, is_set in flags if is_set]
        opened = sum(bits[name] for name in names)
        return self._machine._open(_by(process, thread, now_ns), *self._file(path, device), opened)

    def write(
        self, fd: int, size: int, *, now_ns: Optional[int] = None, process: int = 1, thread: int = 1
    ) -> Cost:
        """Writes at the descriptor's position, and moves it."""
        return self._machine._write(_by(process, thread, now_ns), "write", fd, size)

    def pwrite(
        self,
        fd: int,
        size: int,
        offset: int,
        *,
        now_ns: Optional[int] = None,
        process: int = 1,
        thread: int = 1,
    ) -> Cost:
        """Writes at a place of the file."""
        return self._machine._write(_by(process, thread, now_ns), "pwrite", fd, size, offset)

    def fwrite(
        self, fd: int, size: int, *, now_ns: Optional[int] = None, process: int = 1, thread: int = 1
    ) -> Cost:
        """Writes to a stream, whose buffer is the model's."""
        return self._machine._write(_by(process, thread, now_ns), "fwrite", fd, size)

    def read(
        self, fd: int, size: int, *, now_ns: Optional[int] = None, process: int = 1, thread: int = 1
    ) -> Cost:
        """Reads at the descriptor's position up to the end of the file, and moves it."""
        return self._machine._read(_by(process, thread, now_ns), fd, size)

    def pread(
        self,
        fd: int,
        size: int,
        offset: int,
        *,
        now_ns: Optional[int] = None,
        process: int = 1,
        thread: int = 1,
    ) -> Cost:
        """Reads at a place of the file."""
        return self._machine._read(_by(process, thread, now_ns), fd, size, offset)

    def fsync(self, fd: int, *, now_ns: Optional[int] = None, process: int = 1, thread: int = 1) -> Cost:
        """Data and metadata of the file go to the device."""
        return self._machine._flush(_by(process, thread, now_ns), "fsync", fd)

    def fdatasync(self, fd: int, *, now_ns: Optional[int] = None, process: int = 1, thread: int = 1) -> Cost:
        """Data of the file go to the device."""
        return self._machine._flush(_by(process, thread, now_ns), "fdatasync", fd)

    def fflush(self, fd: int, *, now_ns: Optional[int] = None, process: int = 1, thread: int = 1) -> Cost:
        """What is in a stream's buffer goes to the page cache."""
        return self._machine._flush(_by(process, thread, now_ns), "fflush", fd)

    def seek(self, fd: int, offset: int) -> None:
        """Moves the descriptor's position. It costs nothing."""
        self._machine._seek(fd, offset)

    def close(self, fd: int, *, now_ns: Optional[int] = None, process: int = 1, thread: int = 1) -> Cost:
        """Closes a descriptor."""
        return self._machine._close(_by(process, thread, now_ns), fd)

    def truncate(
        self,
        path: str,
        size: int,
        *,
        device: int = 1,
        now_ns: Optional[int] = None,
        process: int = 1,
        thread: int = 1,
    ) -> Cost:
        """Cuts a file off, or makes it longer."""
        return self._machine._truncate(_by(process, thread, now_ns), *self._file(path, device), size)

    def unlink(
        self, path: str, *, device: int = 1, now_ns: Optional[int] = None, process: int = 1, thread: int = 1
    ) -> Cost:
        """Removes a file's name; the file goes with its last descriptor."""
        return self._machine._unlink(_by(process, thread, now_ns), *self._file(path, device))

    def advance(self, now_ns: int) -> None:
        """Lets time pass up to a moment, in ns: the flusher works."""
        self._machine._advance(now_ns)

    def level(self) -> Level:
        """The dirty level, its limits, and the rates."""
        return Level(*self._machine._level())

    def fork(self) -> "Model":
        """An independent copy, to look ahead with; descriptors have the same numbers."""
        copy: Any = Model.__new__(Model)
        copy._machine, copy._inodes = self._machine._fork(), dict(self._inodes)
        return copy

    def __repr__(self) -> str:
        level = self.level()
        return f"<cawl.Model at {level.time_ns / 1e9:.6f} s: {level.dirty_bytes / 2**20:.1f} MiB dirty, {level.regime}>"
