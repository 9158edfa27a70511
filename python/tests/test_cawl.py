"""The package on recorded runs, on what is no trace, and beside the command line."""

import csv
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import cawl

ROOT = Path(__file__).resolve().parents[2]
RECORDINGS = ROOT / "crates/cawl-lab/recordings"
FSYNC = RECORDINGS / "causes-fsync.cawl"
CLI = shutil.which(os.environ.get("CAWL_CLI", "cawl-cli"))
needs_cli = pytest.mark.skipif(CLI is None, reason="SKIPPED: no cawl-cli in CAWL_CLI or PATH")

pa = pytest.importorskip("pyarrow", reason="SKIPPED: pyarrow is not installed")


@pytest.fixture(scope="module")
def trace():
    return cawl.read(FSYNC)


def documented():
    """Columns of a table of calls by docs/reference/EXPORT.md."""
    page = (ROOT / "docs/reference/EXPORT.md").read_text()
    rows = page[page.index("| column | unit |") :].split("\n\n")[0].splitlines()[2:]
    return [name.strip().strip("`") for row in rows for name in row.split("|")[1].split(",")]


def test_columns_are_those_of_an_export(trace):
    columns = trace.calls.columns + [name for name in trace.causes.columns if name != "call"]
    left_out = ["predicted_by_MODEL_ns", "stack", "weight"]  # of other models, --stacks, cawld
    assert columns == [name for name in documented() if name not in left_out]


@needs_cli
@pytest.mark.parametrize("name", ["causes-fsync", "xfs-sqlite", "causes-preempted", "overlay-tar"])
def test_rows_are_those_of_an_export(name):
    path = RECORDINGS / f"{name}.cawl"
    text = subprocess.run(
        [CLI, "export", path, "--to", "csv"], stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    read = cawl.read(path)
    tables = [pa.table(read.calls), pa.table(read.causes)]
    assert [len(rows)] * 2 == [table.num_rows for table in tables]
    for table in tables:
        for column in table.column_names:
            values = table[column].to_pylist()
            mine = ["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in values]
            assert mine == [row[column] for row in rows], column


def test_every_library_takes_the_tables(trace):
    calls = pa.table(trace.calls)
    calls.validate(full=True)
    bytes_written = sum(calls["bytes"].to_pylist())
    assert calls.num_rows == len(trace.calls) > 0 and bytes_written > 0
    polars = pytest.importorskip("polars", reason="SKIPPED: polars is not installed")
    assert polars.DataFrame(trace.calls)["bytes"].sum() == bytes_written
    pytest.importorskip("pandas", reason="SKIPPED: pandas is not installed")
    assert calls.to_pandas()["bytes"].sum() == bytes_written
    duckdb = pytest.importorskip("duckdb", reason="SKIPPED: duckdb is not installed")
    query = "select sum(bytes), count(distinct op) from calls"
    ops = len(set(calls["op"].to_pylist()))
    assert duckdb.sql(query).fetchall() == [(bytes_written, ops)]


def test_nothing_is_copied(trace):
    first, second = pa.table(trace.calls), pa.table(trace.calls)
    for name in ["start_ns", "op", "offset"]:
        buffers = [[b and b.address for b in table[name].chunk(0).buffers()] for table in (first, second)]
        assert buffers[0] == buffers[1], name


def test_a_table_outlives_its_trace():
    table = pa.table(cawl.read(FSYNC).calls)
    assert sum(table["duration_ns"].to_pylist()) > 0


def test_causes_add_up_to_durations(trace):
    calls, causes = pa.table(trace.calls), pa.table(trace.causes)
    parts = causes.column_names[causes.column_names.index("cause") + 1 :]
    durations = calls["duration_ns"].to_pylist()
    rows = causes.select(parts).to_pylist()
    sums = [sum(row.values()) if row["call_ns"] is not None else None for row in rows]
    assert any(sums) and all(total is None or total == took for total, took in zip(sums, durations))
    seconds = trace.by_cause()
    assert sum(seconds.values()) == pytest.approx(sum(filter(None, sums)) / 1e9)
    assert max(seconds, key=seconds.get) == next(iter(seconds))


def test_files_and_samples(trace):
    files, samples = pa.table(trace.files).to_pylist(), pa.table(trace.samples)
    assert sum(row["calls"] for row in files) == len(trace.calls)
    assert samples.num_rows > 0 and max(samples["dirty"].to_pylist()) % 4096 == 0


def test_errors_name_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="no-such"):
        cawl.read("no-such.cawl")
    for content in [b"", b"time,op\n", bytes(range(256)) * 40]:
        (tmp_path / "not.cawl").write_bytes(content)
        with pytest.raises(cawl.Error, match="cawl-cli import"):
            cawl.read(tmp_path / "not.cawl")
    with pytest.raises(cawl.Error, match="models are"):
        cawl.Model(model="none")
    with pytest.raises(cawl.Error, match="profile show"):
        cawl.Model("no = \n profile")
    with pytest.raises(FileNotFoundError, match="profile"):
        cawl.Machine("no-such.toml")
    with pytest.raises(ValueError, match="384G"):
        cawl.Machine(ram="much")
    with pytest.raises(cawl.Error, match="no_such"):
        cawl.Machine(changes="kernel.no_such = [")
    with pytest.raises(cawl.Error, match=r"in `kernel\.hz`"):
        cawl.Machine(changes="kernel.hz = 'many'")
    model = cawl.Model()
    for error, name, value in [(TypeError, "now_ns", 1.5), (ValueError, "thread", -1), (ValueError, "process", 2**32)]:
        with pytest.raises(error, match=f"^{name} is a"):
            model.fsync(1, **{name: value})


def test_a_damaged_trace_gives_the_rest(tmp_path):
    whole, path = FSYNC.read_bytes(), tmp_path / "t.cawl"
    for cut in range(0, len(whole), 997):
        path.write_bytes(whole[:cut])
        if cut < 16:
            continue
        with pytest.warns(cawl.DamageWarning):
            assert len(cawl.read(path).calls) <= len(cawl.read(FSYNC).calls)
    for at in range(16, len(whole), 499):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with pytest.warns(cawl.DamageWarning):
            damaged = cawl.read(path)
        assert len(damaged.causes) == len(damaged.calls)


def test_progress_by_the_protocol_of_tqdm():
    told = []

    class Bar:
        def __init__(self, **options):
            told.append(options["desc"])

        def update(self, calls):
            told.append(calls)

        def close(self):
            told.append("closed")

    trace = cawl.read(FSYNC, progress=Bar)
    count = len(trace.calls)
    assert len(trace.causes) == count > 1000
    assert told == ["reading", count, "closed", "predicting", count, "closed"]

    def fails(**_):
        raise RuntimeError("no bar")

    with pytest.raises(RuntimeError, match="no bar"):
        cawl.read(FSYNC, progress=fails)


def test_a_model_throttles_what_is_too_much():
    machine = cawl.Machine(ram="4G")
    model = machine.model()
    fd, opened = model.open("out", "w")
    assert opened.cost_ns > 0 and opened.end_ns > 0
    level = model.level()
    assert 0 < level.background_bytes < level.hard_bytes < 2**32 / 4
    costs = [model.write(fd, 1 << 20) for _ in range(2000)]
    assert costs[0].state == "free" and {cost.state for cost in costs} > {"free", "throttle"}
    for cost in costs:
        assert sum(cost.parts_ns.values()) == pytest.approx(cost.cost_ns)
    assert max(costs, key=lambda cost: cost.cost_ns).parts_ns["throttle"] > 1e6
    ahead = model.fork()
    synced = ahead.fsync(fd)
    assert (
        synced.seconds > 0.1
        and synced.state == "sync"
        and ahead.level().dirty_bytes < model.level().dirty_bytes
    )
    end = model.write(fd, 4096).end_ns
    with pytest.raises(cawl.Error, match="before"):
        model.write(fd, 1, now_ns=0)
    with pytest.raises(cawl.Error, match="descriptor"):
        model.write(99, 1)
    model.advance(end + 60 * 10**9)
    assert model.level().dirty_bytes == 0
    assert model.pwrite(fd, 4096, 0).bytes == 4096
    model.truncate("out", 0)
    model.close(fd)
    model.unlink("out")
    with pytest.raises(cawl.Error, match="no such file"):
        model.open("out")


def test_streams_reads_and_processes():
    model = cawl.Model()
    model.add_file("in", 1 << 20)
    fd, _ = model.open("in", process=2, thread=2)
    cold = model.read(fd, 1 << 20, process=2, thread=2)
    model.seek(fd, 0)
    warm = model.read(fd, 2 << 20, process=2, thread=2)
    assert warm.cost_ns < cold.cost_ns and warm.bytes == 1 << 20 and cold.state == "read"
    with pytest.raises(cawl.Error, match="process"):
        model.read(fd, 1, process=3)
    stream, _ = model.open("log", "a", stream=True)
    assert model.fwrite(stream, 10).state == "buffered"
    assert model.fflush(stream).cost_ns > 0


def test_more_memory_has_higher_limits_and_constants_change():
    small, large = (cawl.Machine(ram=ram).model().level() for ram in ("16G", "384G"))
    assert large.hard_bytes > 20 * small.hard_bytes
    slow = cawl.Machine(changes="device.write.value = 1e6\nkernel.hz = 100")
    assert "hz = 100" in slow.toml and slow.toml != cawl.Machine().toml
    assert cawl.Machine(slow.toml).toml == slow.toml


@pytest.mark.parametrize("kind", ["dirty", "causes", "densities"])
def test_pictures(trace, kind):
    matplotlib = pytest.importorskip("matplotlib", reason="SKIPPED: matplotlib is not installed")
    matplotlib.use("Agg")
    ax = trace.plot(kind)
    assert ax.get_title() and (ax.lines or ax.patches)
    with pytest.raises(ValueError, match="densities"):
        trace.plot("none")


def test_a_notebook_shows_a_trace(trace):
    assert f"{len(trace.calls):,}" in trace._repr_html_() and "causes-fsync" in trace._repr_html_()


def test_pyarrow_and_matplotlib_are_not_needed():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['pyarrow', 'matplotlib', 'numpy', 'pandas', 'tqdm']));"
        f"import cawl; t = cawl.read({str(FSYNC)!r}); assert len(t.causes) == len(t.calls) > 0\n"
        "try: t.plot()\nexcept cawl.Error as error: assert 'pip install' in str(error)\nelse: sys.exit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_the_command_line(monkeypatch):
    monkeypatch.setenv("CAWL_CLI", "/no/such/program")
    with pytest.raises(cawl.Error, match="CAWL_CLI.*cargo install"):
        cawl.explain(FSYNC)


@needs_cli
def test_questions_to_the_command_line(trace, tmp_path):
    told = cawl.explain(trace)
    assert told.calls == 1602 and told["causes"][0]["name"] == next(iter(trace.by_cause()))
    assert "device flush" in told._repr_html_()
    fewer = cawl.whatif(trace, "--fsync every=16")
    assert fewer["after"]["total_s"] < fewer["before"]["total_s"] / 2
    assert cawl.advise(trace).observed_s == told.observed_s
    with pytest.raises(cawl.Error, match="no-such"):
        cawl.whatif(trace, "--no-such")
    out = tmp_path / "out"
    ran = cawl.run(["dd", "if=/dev/zero", f"of={out}", "bs=64K", "count=16"], trace=tmp_path / "t.cawl")
    written = [
        row for row in pa.table(ran.calls).to_pylist() if row["path"] == str(out) and row["op"] == "write"
    ]
    assert len(written) == 16 and out.stat().st_size == 1 << 20
    with pytest.raises(subprocess.CalledProcessError):
        cawl.run(["false"])


@needs_cli
def test_a_trace_without_a_name_goes_with_python():
    code = "import cawl; print(cawl.run('echo \"two words\"', quiet=True).path)"
    path = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True).stdout.decode()
    words, path = path.splitlines()
    assert words == "two words" and path.endswith(".cawl") and not Path(path).parent.exists()


@needs_cli
@pytest.mark.parametrize(
    ("name", "differ"),
    [
        ("causes-fsync", set()),
        ("causes-dsync", set()),
        ("causes-stalls", set()),
        ("causes-preempted", set()),
        ("xfs-sqlite", set()),
        ("overlay-sqlite", set()),
        # What a table does not tell: which files were cached, how much memory was free, limits that are not
        # the profile's, and which opens made a file.
        ("memory-too-long", {"read"}),
        ("causes-throttle-dd", {"cold memory", "throttle", "queue"}),
        ("xfs-tar", {"call", "copy"}),
    ],
)
def test_whatif_of_a_table_is_that_of_the_trace_but_for_what_the_table_does_not_tell(name, differ):
    trace = cawl.read(RECORDINGS / f"{name}.cawl")
    changes = ["--fsync none", "--buffer 1M", "--each", "--no-learn"]
    of_trace = cawl.whatif(trace, *changes)
    batches = pa.table(trace.calls).to_batches(max_chunksize=100)
    reader = pa.RecordBatchReader.from_batches(batches[0].schema, iter(batches))
    of_table = cawl.whatif(reader, *changes, profile=trace.profile)
    before, after = (
        {c["name"]: c["predicted_s"] for c in of.before["causes"]} for of in (of_trace, of_table)
    )
    total = of_trace.before["total_s"]
    off = {c for c in before.keys() | after.keys() if abs(before.get(c, 0) - after.get(c, 0)) > total / 100}
    assert off == differ
    assert of_table.before["bytes"] == of_trace.before["bytes"]
    # But for renames, of which a table has one name only.
    assert of_trace.observed_s * 0.999 < of_table.observed_s <= of_trace.observed_s
    if not differ:
        assert abs(of_table.before["total_s"] - total) < total / 100
        for one, other in zip(of_trace.each, of_table.each):
            assert one["change"] == other["change"] and abs(one["ratio"] - other["ratio"]) < 0.01


@needs_cli
def test_a_table_that_is_none_is_refused(trace):
    with pytest.raises(cawl.Error, match="no column duration_ns.*EXPORT.md"):
        cawl.whatif(pa.table(trace.calls).drop_columns(["duration_ns"]), "--fsync none")
    calls = pa.table(trace.calls)
    place = calls.column_names.index("op")
    wrong = calls.set_column(place, "op", pa.array(["no-such"] * calls.num_rows))
    with pytest.raises(cawl.Error, match='operation "no-such" is not known'):
        cawl.whatif(wrong, "--fsync none", profile=trace.profile)
    with pytest.raises(ValueError, match="a trace has its profile"):
        cawl.whatif(trace, "--fsync none", profile=trace.profile)
