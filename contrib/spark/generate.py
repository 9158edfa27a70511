"""Tables of many machines, made of those of one: real calls, repeated and disturbed; deterministic."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Collection, List, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

#: Columns of texts, which are dictionaries in the daemon's files, too.
TEXTS = ["op", "program", "path", "kind", "flags", "state", "cause", "stack"]
#: The seed's calls begin here, in ns of CLOCK_MONOTONIC; a file has an hour at most.
HOUR_NS = 3_600_000_000_000


def causes(table: pa.Table) -> List[str]:
    """Columns that are the time of a cause."""
    others = {"start_ns", "duration_ns", "low_ns", "high_ns"}
    times = [name for name in table.column_names if name.endswith("_ns") and name not in others]
    return [name for name in times if not name.startswith("predicted")]


def read(folder: Path) -> pa.Table:
    """The calls of one daemon, in the order of time, with the columns and types that it wrote."""
    files = sorted(folder.glob("node=*/date=*/hour=*/*.parquet"), key=lambda path: path.name)
    # Not by folder: node, date and hour are no columns of the files.
    tables = [pq.ParquetFile(path).read() for path in files]
    return pa.concat_tables(tables).sort_by([("start_ns", "ascending"), ("call", "ascending")])


def machine(seed: pa.Table, node: int, count: int, slow: float) -> pa.Table:
    """So many calls of a machine whose calls take `slow` times as long as the seed's, and each up to a fifth
    more or less. Each repetition has its own processes and files."""
    random = np.random.default_rng(node)
    rounds = -(-count // seed.num_rows)
    table = pa.concat_tables([seed] * rounds).slice(0, count)
    at = np.repeat(np.arange(rounds), seed.num_rows)[:count]
    factor = slow * random.uniform(0.8, 1.2, count)

    def set_to(table: pa.Table, name: str, values: object) -> pa.Table:
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        return table.set_column(place, field, pa.array(values, field.type))

    def ints(name: str) -> Any:
        return table[name].combine_chunks().to_numpy(zero_copy_only=False)

    timed = pc.is_valid(table["cause"]).to_numpy(zero_copy_only=False)
    took = (ints("duration_ns") * factor).astype(np.int64)
    parts = np.zeros(count, np.int64)
    for name in causes(table):
        # Rounded down, so that parts still add up to the duration.
        part = (np.nan_to_num(ints(name).astype(float)) * factor).astype(np.int64)
        parts += part
        table = set_to(table, name, pa.array(part, mask=~timed))
    table = set_to(table, "duration_ns", np.where(timed, parts, took))
    start = ints("start_ns") - ints("start_ns")[0]
    span = int(start[: seed.num_rows].max() + 1e9)
    # Time goes by as much slower, so that no call of a thread begins in the one before.
    table = set_to(table, "start_ns", ((start + at * span) * (slow * 1.25)).astype(np.int64) + 10**12 + node)
    table = set_to(table, "call", np.arange(1, count + 1))
    for name in ("pid", "tid"):
        table = set_to(table, name, ints(name) + at * 100_000)
    path = pc.binary_join_element_wise(table["path"], pa.array(at.astype(str)), ".")
    return set_to(table, "path", path.combine_chunks())


def write(
    seed: pa.Table, root: Path, nodes: Sequence[int], count: int, drifting: Collection[int] = ()
) -> int:
    """Tables of machines `nodeNNNN` below a folder, in the daemon's partitions; bytes of all files. The calls
    of the drifting ones take three times as long as those of others."""
    total = 0
    for node in nodes:
        table = machine(seed, node, count, 3.0 if node in drifting else 1.0)
        hours = (pc.cast(table["start_ns"], pa.int64()).to_numpy() - 10**12) // HOUR_NS
        for number, hour in enumerate(np.unique(hours)):
            name = f"node{node:04}"
            folder = root / f"node={name}" / "date=2026-11-21" / f"hour={hour % 24:02}"
            folder.mkdir(parents=True)
            file = folder / f"{name}-20261121T000000Z-{node:08x}-{number + 1:06}.parquet"
            rows = table.filter(pa.array(hours == hour))
            pq.write_table(rows, file, row_group_size=32_768, use_dictionary=TEXTS)
            total += file.stat().st_size
    return total
