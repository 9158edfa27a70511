#!/usr/bin/env python3
"""Questions over the calls of many machines, as `cawld --calls-to` wrote them.

    spark-submit contrib/spark/cawl_fleet.py QUESTION PATH…
    python3 contrib/spark/cawl_fleet.py --engine duckdb QUESTION PATH…

where: where is time lost? drift: which machines drift from their profile?
gain: which change gains most over the fleet? docs/guide/FLEET.md has examples.
`where`, `drift` and `gain` are functions of a Spark DataFrame, too; the
queries of DuckDB are in the folder duckdb beside this file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import sys
from functools import reduce
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple
from urllib.parse import quote, unquote

KEYS = ["node", "program", "path", "op", "cause", "date", "hour"]
#: What `gain` tries if nothing is named.
CHANGES = ["buffer 1M", "merge 1M", "fdatasync", "sort", "limits 1G,2G"]
#: The columns that models need, and those that tell a machine's calls from others.
MODELLED = "start_ns op offset size duration_ns pid tid path flags kind program".split()
MACHINE = ["node", "run"]
#: What `drift` tells of each node.
SUMS = ["calls", "observed_ns", "predicted_ns", "ratio", "fleet", "off", "beyond_ns"]
RUN = r"-(\d{8}T\d{6}Z-[0-9a-f]{8})-\d+\.parquet$"
ANSWER = "node string, run string, change string, calls long, before_ns long, after_ns long, failure string"

#: What to do where a package is missing.
REMEDIES = {
    "pyspark": "pip install pyspark, or --engine duckdb",
    "cawl": "pip install ./python",
    **{name: "pip install duckdb numpy pyarrow" for name in ("duckdb", "numpy", "pyarrow")},
}


class Failure(Exception):
    """What is told in the place of an answer, with the exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


def told(error: Exception) -> str:
    """An error of an engine, of the system, or of a missing package, in one line; any other is raised."""
    if isinstance(error, ModuleNotFoundError) and error.name in REMEDIES:
        return f"the package {error.name} is not installed: {REMEDIES[error.name]}"
    engines = ("duckdb", "_duckdb", "pyspark", "py4j")
    if not isinstance(error, (Failure, OSError)) and type(error).__module__.split(".")[0] not in engines:
        raise error
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def calls(spark: Any, paths: Sequence[str]) -> Any:
    """The calls below these folders. `bytes` are those of reads, too; `run` is the daemon's start, as
    start_ns begins anew with each boot."""
    from pyspark.sql import functions as f

    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    frames = [spark.read.parquet(path) for path in paths]
    frame = reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), frames)
    for name, value in (("weight", f.lit(1).cast("long")), ("node", f.lit(""))):
        if name not in frame.columns:
            frame = frame.withColumn(name, value)
    reads = f.col("op").isin("read", "pread", "fread") & (f.col("kind") == "regular")
    frame = frame.withColumn("bytes", f.when(reads, f.col("size")).otherwise(f.col("bytes")))
    return frame.withColumn("run", f.regexp_extract(f.input_file_name(), RUN, 1))


def _total(column: str, name: str) -> Any:
    """Of all calls that the rows stand for."""
    from pyspark.sql import functions as f

    return f.sum(f.col(column) * f.col("weight")).alias(name)


def where(calls: Any, keys: Sequence[str]) -> Any:
    """Sums by these of KEYS. Calls and bytes are of the calls whose main cause it is, ns is the time of this
    cause in all calls, so that sums over any rows are right."""
    from pyspark.sql import functions as f

    others = {"start_ns", "duration_ns", "low_ns", "high_ns"}
    times = [name for name in calls.columns if name.endswith("_ns") and name not in others]
    parts = [name for name in times if not name.startswith("predicted")]
    sums = calls.where("cause is not null").withColumnRenamed("cause", "main")
    kept = [key for key in keys if key != "cause"]
    sums = sums.groupBy(*kept, "main")
    sums = sums.agg(f.sum("weight").alias("calls"), *[_total(name, name) for name in ("bytes", *parts)])

    def cell(part: str) -> Any:
        cause = part[: -len("_ns")].replace("_", " ")
        of_main = [f.when(f.col("main") == cause, f.col(c)).otherwise(0).alias(c) for c in ("calls", "bytes")]
        return f.struct(f.lit(cause).alias("cause"), *of_main, f.col(part).alias("ns"))

    rows = sums.select(*kept, f.explode(f.array(*map(cell, parts))).alias("cell")).select(*kept, "cell.*")
    rows = rows.groupBy(*keys).agg(*[f.sum(column).alias(column) for column in ("calls", "bytes", "ns")])
    return rows.where("ns > 0 or calls > 0").orderBy(f.desc("ns"))


def drift(calls: Any, keys: Sequence[str]) -> Any:
    """Observed and predicted time by node and these of KEYS, and how far their ratio is off the fleet's."""
    from pyspark.sql import functions as f

    timed = calls.where("predicted_ns is not null and cause is not null").groupBy("node", *keys)
    sums = timed.agg(
        f.sum("weight").alias("calls"),
        _total("duration_ns", "observed_ns"),
        _total("predicted_ns", "predicted_ns"),
    )
    ratios = sums.where("predicted_ns > 0").withColumn("ratio", f.expr("observed_ns / predicted_ns"))
    fleet = ratios.groupBy(*keys).agg(f.expr("percentile(ratio, 0.5)").alias("fleet"))
    rows = ratios.join(fleet, list(keys)).withColumn("off", f.expr("ratio / fleet"))
    rows = rows.withColumn("beyond_ns", f.expr("observed_ns - cast(round(predicted_ns * fleet) as long)"))
    return rows.select("node", *keys, *SUMS).orderBy(f.desc(f.abs("beyond_ns")))


def gain(calls: Any, profiles: Dict[str, str], changes: Sequence[str], parts: int) -> Any:
    """What each machine's calls take on paper, before and after each change. A machine that cannot be asked
    has a row with the reason: of sampled calls, as models need each one."""
    spark = calls.sparkSession
    profiles = spark.sparkContext.broadcast(profiles)
    needed = calls.select(*MACHINE, "call", "weight", *MODELLED).repartition(parts, *MACHINE)
    ordered = needed.sortWithinPartitions(*MACHINE, "start_ns", "call")

    def answers(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        names = [field.split()[0] for field in ANSWER.split(", ")]
        for machine, part in _machines(batches):
            rows = _asked(machine, part, profiles.value, changes)
            columns = {name: [row[name] for row in rows] for name in names}
            kinds = [pa.int64() if " long" in field else pa.string() for field in ANSWER.split(", ")]
            yield pa.RecordBatch.from_pydict(columns, pa.schema(list(zip(names, kinds))))

    return ordered.mapInArrow(answers, ANSWER)


def _machines(batches: Iterable[Any]) -> Iterator[Tuple[Tuple[str, str], Iterator[Any]]]:
    """Each machine's batches, of batches in the order of machines; what is left of one is passed over."""
    import pyarrow.compute as pc

    source = iter(batches)
    rest: List[Any] = []

    def key(batch: Any) -> Tuple[str, str]:
        return tuple(batch.column(name)[0].as_py() for name in MACHINE)

    def of(machine: Tuple[str, str]) -> Iterator[Any]:
        while True:
            batch = rest.pop() if rest else next(source, None)
            if batch is None:
                return
            if batch.num_rows == 0:
                continue
            same = reduce(pc.and_, [pc.equal(batch.column(n), v) for n, v in zip(MACHINE, machine)])
            count = pc.sum(same).as_py() or 0
            if count < batch.num_rows:
                rest.append(batch.slice(count))
            if count:
                yield batch.slice(0, count)
            if count < batch.num_rows:
                return

    while True:
        while not rest:
            batch = next(source, None)
            if batch is None:
                return
            if batch.num_rows:
                rest.append(batch)
        machine = key(rest[0])
        part = of(machine)
        yield machine, part
        for _ in part:
            pass


def _asked(
    machine: Tuple[str, str], batches: Iterator[Any], profiles: Dict[str, str], changes: Sequence[str]
) -> List[Dict[str, Any]]:
    """The answers for one machine, a row a change; or one row with what failed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    sampled: List[str] = []

    def whole(batch: Any) -> Any:
        if pc.max(batch.column("weight")).as_py() != 1:
            # The error itself does not come through Arrow's stream.
            sampled.append("its calls are sampled, and models need each")
            raise ValueError(sampled[0])
        return batch.select(MODELLED)

    row: Dict[str, Any] = dict(zip(MACHINE, machine))
    row.update(change=None, calls=None, before_ns=None, after_ns=None, failure=None)
    profile = profiles.get(machine[0])
    if profile is None:
        return [{**row, "failure": f"there is no profile {quote(machine[0], safe='')}.toml"}]
    try:
        import cawl
    except ModuleNotFoundError as error:
        return [{**row, "failure": told(error)}]
    first = next(batches)
    try:
        every = (whole(batch) for batch in (batch for part in ([first], batches) for batch in part))
        reader = pa.RecordBatchReader.from_batches(first.select(MODELLED).schema, every)
        said = cawl.whatif(reader, *changes, "--each", "--no-learn", profile=profile)
    except (cawl.Error, pa.ArrowException) as error:
        return [{**row, "failure": sampled[0] if sampled else str(error)}]
    before = said.before
    row.update(calls=before["calls"], before_ns=round(before["total_s"] * 1e9))
    return [{**row, "change": c["change"], "after_ns": round(c["after"]["total_s"] * 1e9)} for c in said.each]


def best(rows: Iterable[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """Sums of `gain` over all machines by change, the largest gain first."""
    sums: Dict[str, Dict[str, Any]] = {}
    for row in rows:
        if row["failure"]:
            continue
        new = {"change": row["change"], "machines": 0, "faster": 0, "before_ns": 0, "after_ns": 0}
        total = sums.setdefault(row["change"], new)
        total["machines"] += 1
        total["faster"] += row["after_ns"] < row["before_ns"]
        total["before_ns"] += row["before_ns"]
        total["after_ns"] += row["after_ns"]
    for total in sums.values():
        total["gain_ns"] = total["before_ns"] - total["after_ns"]
    return sorted(sums.values(), key=lambda total: -total["gain_ns"])


NO_PROFILE = "no file NODE.toml is there; cawl-cli profile export makes one on each machine"


@contextlib.contextmanager
def failing(what: str, code: int) -> Iterator[None]:
    """Tells what it is that an engine refuses."""
    try:
        yield
    except Exception as error:
        raise Failure(f"{what}: {told(error)}", code) from error


def check_out(out: str, engine: str) -> None:
    """Refuses to put a table in the place of what is none, as Spark itself refuses all that is there."""
    path = Path(out)
    if "://" in out or engine == "spark":
        return
    if not path.parent.is_dir():
        raise Failure(f"--out {out}: there is no folder {path.parent}; make it first", 2)
    if os.path.lexists(path):
        if path.is_file():
            with path.open("rb") as file:
                if file.read(4) in (b"", b"PAR1"):
                    return
        raise Failure(f"--out {out}: it is there and no Parquet file; give another name, or remove it", 2)


def check_changes(changes: Sequence[str], engine: str) -> None:
    """Refuses what cawl-cli takes for no change, once and before the work. With Spark package and program may
    be on the executors alone."""
    try:
        import cawl
    except ModuleNotFoundError as error:
        if engine == "spark":
            return
        raise Failure(told(error)) from error
    for change in changes:
        try:
            # Its options are looked at before the trace.
            cawl.whatif(os.devnull, change, "--no-learn")
        except (cawl.Error, ValueError) as error:
            text, wrong = str(error).splitlines()[0], "cawl-cli whatif ended with 2: "
            if isinstance(error, ValueError) or text.startswith(wrong):
                why = text.replace(wrong, "").replace("error: ", "")
                raise Failure(f"--change '{change[2:]}': {why}", 2) from error
            if "ended with" not in text and engine != "spark":
                raise Failure(text) from error


class Spark:
    """The questions by Spark."""

    def __init__(self, args: argparse.Namespace) -> None:
        from pyspark.sql import SparkSession

        self.spark = SparkSession.builder.appName(f"cawl {args.question}").getOrCreate()
        with failing(f"the calls of {', '.join(args.paths)} (a folder of cawld --calls-to)", 1):
            self.calls = calls(self.spark, args.paths)
        if args.where:
            with failing("--where", 2):
                self.calls = self.calls.where(args.where)

    def where(self, keys: Sequence[str]) -> Any:
        return where(self.calls, keys)

    def drift(self, keys: Sequence[str]) -> Any:
        return drift(self.calls, keys)

    def gain(self, folder: str, changes: Sequence[str]) -> Any:
        with failing(f"--profiles {folder} ({NO_PROFILE})", 2):
            texts = self.spark.sparkContext.wholeTextFiles(folder.rstrip("/") + "/*.toml").collect()
        profiles = {unquote(Path(name).stem): text for name, text in texts}
        return gain(self.calls, profiles, changes, 16 * self.spark.sparkContext.defaultParallelism)

    def rows(self, answer: Any, limit: int) -> List[Dict[str, Any]]:
        return [row.asDict() for row in (answer.limit(limit) if limit else answer).collect()]

    def write(self, answer: Any, out: str) -> None:
        answer.write.parquet(out)


class DuckDB:
    """The same questions by DuckDB."""

    def __init__(self, args: argparse.Namespace) -> None:
        import duckdb

        if not hasattr(duckdb, "connect"):
            # It is the folder beside this file.
            raise ModuleNotFoundError(name="duckdb")
        self.db = duckdb.connect()
        files = [f"{path.rstrip('/')}/**/*.parquet" for path in args.paths]
        self.db.execute("set variable calls = ?", [files])
        with failing(f"the calls of {', '.join(args.paths)} (a folder of cawld --calls-to)", 1):
            self.db.execute(self.text("calls"))
        if args.where:
            self.db.execute("alter view calls rename to every_call")
            with failing("--where", 2):
                self.db.execute(f"create view calls as select * from every_call where {args.where}")

    @staticmethod
    def text(name: str) -> str:
        return (Path(__file__).parent / "duckdb" / f"{name}.sql").read_text()

    def ask(self, name: str, keys: Sequence[str]) -> str:
        self.db.execute("set variable keys = ?", [list(keys)])
        self.db.execute(f"create temp table answer as {self.text(name)}")
        return "answer"

    def where(self, keys: Sequence[str]) -> str:
        return self.ask("where", keys)

    def drift(self, keys: Sequence[str]) -> str:
        return self.ask("drift", keys)

    def gain(self, folder: str, changes: Sequence[str]) -> str:
        files = Path(folder).glob("*.toml")
        profiles = {unquote(path.stem): path.read_text(errors="replace") for path in files}
        if not profiles:
            raise Failure(f"--profiles {folder}: {NO_PROFILE}", 2)
        columns = ", ".join(f'"{name}"' for name in ["call", "weight", *MODELLED])
        kinds = ANSWER.replace(" string", " varchar").replace(" long", " bigint")
        self.db.execute(f"create temp table answer ({kinds})")
        for machine in self.db.execute("select distinct node, run from calls order by all").fetchall():
            text = f"select node, run, {columns} from calls where node = ? and run = ?"
            text += " order by start_ns, call"
            with self.db.sql(text, params=machine).to_arrow_reader(10_000) as reader:
                rows = _asked(machine, iter(reader), profiles, changes)
            values = [list(row.values()) for row in rows]
            self.db.executemany("insert into answer values (?, ?, ?, ?, ?, ?, ?)", values)
        return "answer"

    def rows(self, answer: str, limit: int) -> List[Dict[str, Any]]:
        cursor = self.db.execute(f"select * from {answer}" + (f" limit {limit}" if limit else ""))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor.fetchall()]

    def write(self, answer: str, out: str) -> None:
        name = out.replace("'", "''")
        self.db.execute(f"copy {answer} to '{name}' (format parquet)")


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("ns"):
        units = [("ns", 1), ("us", 1e3), ("ms", 1e6), ("s", 1e9), ("min", 6e10), ("h", 3.6e12)]
    elif name == "bytes":
        units = [("B", 1), *((f"{unit}iB", 1024 ** (1 + at)) for at, unit in enumerate("KMGTP"))]
    elif isinstance(value, float):
        return f"{value:.2f}"
    else:
        return f"{value:,}" if isinstance(value, int) else str(value)
    unit, size = next((u for u in reversed(units) if abs(value) >= u[1]), units[0])
    return f"{value / size:.4g} {unit}"


def table(rows: Sequence[Dict[str, Any]]) -> str:
    """An aligned table of 80 columns; texts that are too long lose their beginning."""
    if not rows:
        return "nothing"
    names = list(rows[0])
    head = ["TIME" if name == "ns" else re.sub("_ns$", "", name).upper() for name in names]
    cells = [[_shown(name, row[name]) for name in names] for row in rows]
    is_text = [all(isinstance(row[name], (str, type(None))) for row in rows) for name in names]
    widths = [max(len(line[at]) for line in [head, *cells]) for at in range(len(names))]
    texts = [at for at in range(len(names)) if is_text[at]]
    while sum(widths) + 2 * len(widths) - 2 > 80 and any(widths[at] > 8 for at in texts):
        widths[max(texts, key=lambda at: widths[at])] -= 1

    def shown(text: str, at: int) -> str:
        text = text if len(text) <= widths[at] else "…" + text[len(text) - widths[at] + 1 :]
        return text.ljust(widths[at]) if is_text[at] else text.rjust(widths[at])

    lines = ("  ".join(shown(text, at) for at, text in enumerate(line)) for line in [head, *cells])
    return "\n".join(line.rstrip() for line in lines)


def main() -> int:
    try:
        return answered()
    except Exception as error:
        print(f"cawl_fleet: {told(error)}", file=sys.stderr)
        return error.code if isinstance(error, Failure) else 1


def answered() -> int:
    description, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("question", choices=["where", "drift", "gain"])
    add("paths", nargs="+", metavar="PATH", help="folder of --calls-to; s3a://… (Spark), s3://… (DuckDB)")
    add("--engine", choices=["spark", "duckdb"], default="spark")
    add("--by", metavar="KEY,…", help=f"of {','.join(KEYS)} (where: node,cause; drift: op)")
    add("--where", metavar="SQL", help="of which calls, as \"date >= '2026-11-21'\"")
    add("--profiles", metavar="DIR", help="gain: NODE.toml of each machine (cawl-cli profile export)")
    add("--change", action="append", metavar="CHANGE", help="gain: as 'fsync none'; may be repeated")
    add("--limit", type=int, default=20, metavar="N", help="rows that are shown (20); 0: all")
    add("--json", action="store_true", help="machine-readable output: a list of rows")
    add("--out", metavar="PATH", help="all rows as Parquet (gain: by machine)")
    args = parser.parse_args()
    keys = (args.by or {"where": "node,cause", "drift": "op"}.get(args.question, "")).split(",")
    unknown = set(keys) - set(KEYS)
    if unknown and args.question != "gain":
        parser.error(f"--by: {', '.join(sorted(unknown))} is none of {', '.join(KEYS)}")
    if args.question == "drift":
        # Its answer is by node anyway.
        keys = [key for key in keys if key != "node"] or parser.error("--by: drift takes more than the node")
    if args.limit < 0:
        parser.error("--limit takes a number of rows, or 0 for all")
    if args.question == "gain" and not args.profiles:
        parser.error("gain takes --profiles DIR, a folder with the profile NODE.toml of each machine")
    if args.out:
        check_out(args.out, args.engine)
    changes = ["--" + change.lstrip("-") for change in args.change or CHANGES]
    if args.question == "gain":
        check_changes(changes, args.engine)
    engine = Spark(args) if args.engine == "spark" else DuckDB(args)
    if args.question == "gain":
        answer = engine.gain(args.profiles, changes)
        if args.engine == "spark":
            answer = answer.persist()
    else:
        answer = getattr(engine, args.question)(keys)
    if args.out:
        engine.write(answer, args.out)
    if args.question == "gain":
        machines = engine.rows(answer, 0)
        failed = [row for row in machines if row["failure"]]
        for row in failed[:5]:
            print(f"left out: {row['node']} {row['run']}: {row['failure'].splitlines()[0]}", file=sys.stderr)
        if len(failed) > 5:
            print(f"left out: {len(failed) - 5} further machines", file=sys.stderr)
        rows = best(machines)
    else:
        rows = engine.rows(answer, args.limit)
    print(json.dumps(rows) if args.json else table(rows))
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
