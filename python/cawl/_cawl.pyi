"""The Rust part: tables and the models of libcawl."""

from os import PathLike
from typing import Callable, Dict, List, Optional, Tuple

__version__: str

class Error(Exception):
    """What went wrong, and what to do about it."""

class Table:
    """A table that pyarrow, polars, pandas and DuckDB take as it lies in memory (Arrow PyCapsule interface).

    ``pyarrow.table(t)``, ``polars.DataFrame(t)``, ``pandas.DataFrame.from_arrow(t)`` (pandas 3).
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...
    def __len__(self) -> int: ...
    @property
    def columns(self) -> List[str]:
        """Names of the columns; docs/reference/PYTHON.md has units and meaning."""

    def floats(self, name: str) -> bytes:
        """A numeric column as 64-bit floats in native order, NaN where there is none, for numpy.frombuffer;
        of a column of texts the number of each text in ``texts(name)``."""

    def texts(self, name: str) -> List[str]:
        """The different texts of a column of texts."""

class Cost:
    """What a call costs, by the model."""

    @property
    def cost_ns(self) -> float:
        """The whole cost, in ns."""

    @property
    def seconds(self) -> float:
        """The whole cost, in seconds."""

    @property
    def low_ns(self) -> float:
        """10th percentile of the cost, in ns, where the profile tells; else the cost."""

    @property
    def high_ns(self) -> float:
        """90th percentile, likewise."""

    @property
    def end_ns(self) -> int:
        """When the call ends, in ns on the machine's clock."""

    @property
    def bytes(self) -> int:
        """Bytes that the call moved."""

    @property
    def dirty_bytes(self) -> int:
        """Dirty bytes of the machine when the call ends."""

    @property
    def state(self) -> Optional[str]:
        """free, flush, throttle, sync, read or buffered; None if the model has no opinion on such calls."""

    @property
    def parts_ns(self) -> Dict[str, float]:
        """The parts of the cost by cause, in ns; they add up to it."""

_By = Tuple[int, int, Optional[int]]

class Machine:
    _open_bits: List[Tuple[str, int]]
    def __new__(cls, profile: str, model: str) -> "Machine": ...
    def _fork(self) -> "Machine": ...
    def _advance(self, now: int) -> None: ...
    def _level(self) -> Tuple[str, int, int, int, int, float, float]: ...
    def _add_file(self, device: int, inode: int, size: int, cached: bool) -> None: ...
    def _open(self, by: _By, device: int, inode: int, opened: int) -> Tuple[int, Cost]: ...
    def _close(self, by: _By, fd: int) -> Cost: ...
    def _write(self, by: _By, op: str, fd: int, bytes: int, at: Optional[int] = None) -> Cost: ...
    def _read(self, by: _By, fd: int, bytes: int, at: Optional[int] = None) -> Cost: ...
    def _flush(self, by: _By, op: str, fd: int) -> Cost: ...
    def _seek(self, fd: int, offset: int) -> None: ...
    def _truncate(self, by: _By, device: int, inode: int, size: int) -> Cost: ...
    def _unlink(self, by: _By, device: int, inode: int) -> Cost: ...

def read(
    path: "str | PathLike[str]", progress: Optional[Callable[[int], object]] = None
) -> Tuple[Table, Table, Table, Optional[str], Optional[str]]: ...
def causes(path: "str | PathLike[str]", progress: Optional[Callable[[int], object]] = None) -> Table: ...
def profile(
    profile: Optional[str] = None,
    ram: Optional[int] = None,
    ratios: Optional[List[float]] = None,
    changes: str = "",
) -> str: ...
