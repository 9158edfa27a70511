//! Calls recorded by another tool become a trace, and no other file is changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cawl_core::{HostProfile, Record};
use cawl_host::trace::TraceReader;
use cawl_kit::{Dir, Finished, Report, Running, built, find, skipped};
use serde_json::Value;

const CSV: &str = "start_s,op,offset,size,duration_s,path\n\
                   0.0,open,,0,0.00001,a\n\
                   0.1,write,0,4096,0.0001,a\n\
                   0.2,write,,4096,0.0001,a\n\
                   0.3,fsync,,,0.01,a\n\
                   0.4,close,,,0.00001,a\n";

fn import(dir: &Dir, options: &[&str], input: &str, output: &str) -> Finished {
    import_all(dir, options, &[input], output)
}

fn import_all(dir: &Dir, options: &[&str], inputs: &[&str], output: &str) -> Finished {
    let mut command = dir.cawl(&["import", "--from"]);
    command.args(options).args(inputs).arg("-o").arg(output);
    Running::start(command).finish()
}

fn replay(dir: &Dir, trace: &Path) -> Report {
    let mut command = dir.cawl(&["replay", "--json"]);
    command.arg(trace);
    Report::parse(&Running::start(command).finish().success().stdout)
}

#[test]
fn a_table_of_calls_can_be_replayed() {
    let dir = Dir::new();
    fs::write(dir.work().join("calls.csv"), CSV).expect("a new file");
    import(&dir, &["csv"], "calls.csv", "plain").success().says("5 calls");
    let plain = replay(&dir, &dir.work().join("plain"));
    assert_eq!((plain["calls"].as_u64(), plain.bytes(), plain.calls_of("write")), (Some(5), 8192, 2));
    // It has nothing of this machine, and the report does not claim so.
    let mut text = dir.cawl(&["replay"]);
    text.arg(dir.work().join("plain"));
    let text = Running::start(text).finish().success().stdout;
    assert!(text.contains("limits and speeds are defaults"), "{text}");

    let mut gzip = dir.command("gzip");
    gzip.arg(dir.work().join("calls.csv"));
    Running::start(gzip).finish().success();
    import(&dir, &["csv"], "calls.csv.gz", "packed").success();
    assert_eq!(replay(&dir, &dir.work().join("packed")).fingerprints(), plain.fingerprints());

    import(&dir, &["csv", "--flags", "O_SYNC"], "calls.csv.gz", "sync").success();
    assert_ne!(replay(&dir, &dir.work().join("sync")).fingerprints(), plain.fingerprints());
}

#[test]
fn a_profile_goes_into_the_trace() {
    let dir = Dir::new();
    fs::write(dir.work().join("calls.csv"), CSV).expect("a new file");
    let mut profile = HostProfile::uncalibrated();
    profile.name = "db1".to_owned();
    fs::write(dir.work().join("db1.toml"), profile.to_toml()).expect("a new file");
    import(&dir, &["csv", "--profile", "db1.toml"], "calls.csv", "with").success();
    let mut records = TraceReader::open(&dir.work().join("with")).expect("a trace");
    let first = records.next_record().expect("a whole trace");
    assert!(matches!(&first, Some(Record::Profile(of)) if of.to_toml() == profile.to_toml()), "{first:?}");
    import(&dir, &["csv", "--profile", "calls.csv"], "calls.csv", "bad").code(1).says("calls.csv");
    assert!(!dir.work().join("bad").exists());
}

#[test]
fn a_bad_input_is_told_and_leaves_no_trace() {
    let dir = Dir::new();
    let bad = CSV.replace("fsync", "fysnc");
    for (content, says) in [("", "no header"), ("a,b\n1,2\n", "unknown columns"), (&bad, "line 5")] {
        fs::write(dir.work().join("bad.csv"), content).expect("a new file");
        import(&dir, &["csv"], "bad.csv", "out").code(1).says("cannot import bad.csv").says(says);
        assert!(!dir.work().join("out").exists(), "half a trace was left");
    }
    import(&dir, &["csv"], "missing.csv", "out").code(1).says("missing.csv");
    import(&dir, &["strace", "--flags", "O_SYNC"], "bad.csv", "out").code(2).says("--flags is for csv, fio,");
    import(&dir, &["fio", "--columns", "start=a,op=b"], "bad.csv", "out")
        .code(2)
        .says("--columns is for csv");
    import(&dir, &["csv", "--columns", "start=a"], "bad.csv", "out")
        .code(2)
        .says("start and op must be named");
    fs::write(dir.work().join("blank"), "\n".repeat(17 << 20)).expect("a new file");
    import(&dir, &["strace"], "blank", "out").code(1).says("16 MiB of blank lines in a row");
    import(&dir, &["csv"], "bad.csv", "no/such/folder/out").code(1).says("there is no folder");
}

#[test]
fn remarks_on_calls_that_are_not_imported_are_few() {
    let dir = Dir::new();
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cawl-import/tests/data");
    for (format, file, most) in [("strace", "strace/bash.txt", 10), ("perf-trace", "perf-trace/late.txt", 15)]
    {
        let told = import(&dir, &[format], &format!("{data}/{file}"), "out").success().stderr;
        assert!(told.lines().count() <= most, "{told}");
        let told = told.replace('\n', " ");
        for what in [
            "no call that opens, reads, writes or syncs a file: ",
            "newfstatat ",
            "getuid ",
            "calls that only read",
        ] {
            assert_eq!(told.matches(what).count(), 1, "{what}: {told}");
        }
    }
}

#[test]
fn what_was_there_before_is_not_destroyed() {
    let dir = Dir::new();
    let input = dir.work().join("calls.csv");
    fs::write(&input, CSV).expect("a new file");
    symlink("calls.csv", dir.work().join("link")).expect("a new link");
    for output in ["calls.csv", "./calls.csv", "link"] {
        import(&dir, &["csv"], "calls.csv", output).code(2).says("would overwrite calls.csv");
        assert_eq!(fs::read_to_string(&input).expect("it is there"), CSV);
    }
    fs::hard_link(&input, dir.work().join("hard")).expect("a new link");
    import(&dir, &["csv"], "calls.csv", "hard").code(2).says("hard would overwrite calls.csv");
    import(&dir, &["csv", "--profile", "calls.csv"], "-", "calls.csv").code(2).says("would overwrite");
    import_all(&dir, &["fio"], &["none", "calls.csv"], "calls.csv").code(2).says("would overwrite");
    let mut piped = dir.command("sh");
    piped.args(["-c", "exec \"$0\" import --from csv - -o calls.csv < calls.csv"]).arg(built("cawl-cli"));
    Running::start(piped).finish().code(2).says("calls.csv would overwrite -");
    assert_eq!(fs::read_to_string(&input).expect("it is there"), CSV);
    // A failed import removes its trace, but not a device named as output.
    fs::write(&input, "a,b\n").expect("it is ours");
    symlink("/dev/null", dir.work().join("null")).expect("a new link");
    import(&dir, &["csv"], "calls.csv", "null").code(1);
    assert!(dir.work().join("null").is_symlink());
}

/// Operation, offset and bytes of the calls on a file that read, write or sync.
fn calls(dir: &Dir, trace: &Path, file: &str) -> Vec<(String, Option<i64>, i64)> {
    let mut export = dir.cawl(&["export", "--to", "json"]);
    export.arg(trace);
    let text = Running::start(export).finish().success().stdout;
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row is JSON"));
    let of_file = rows.filter(|row| row["path"].as_str().is_some_and(|path| path.ends_with(file)));
    let call = |row: Value| {
        let op = row["op"].as_str()?.to_owned();
        let known = ["read", "write", "pread", "pwrite", "fsync", "fdatasync", "fread", "fwrite"];
        let moved = if op.ends_with("sync") { 0 } else { row["bytes"].as_i64()? };
        known.contains(&op.as_str()).then(|| (op, row["offset"].as_i64(), moved))
    };
    of_file.filter_map(call).collect()
}

/// fio tells of its own calls, and cawl saw the same ones.
#[test]
fn fio_and_cawl_tell_the_same_calls() {
    let Some(fio) = find("fio") else { return skipped("fio is not installed") };
    let dir = Dir::new();
    // A file that is there is not laid out, which an iolog does not tell.
    fs::write(dir.work().join("data"), vec![0; 256 << 10]).expect("a new file");
    let options = [
        "--name=job",
        "--thread",
        "--ioengine=psync",
        "--rw=randrw",
        "--bsrange=512-8k",
        "--bs_unaligned",
        "--size=256k",
        "--fsync=7",
        "--filename=data",
        "--write_iolog=job.iolog",
        "--write_lat_log=job",
        "--log_offset=1",
        "--output=fio.txt",
        "--invalidate=0",
    ];
    let program: Vec<&str> = [fio.to_str().expect("a path")].into_iter().chain(options).collect();
    dir.run(&[], &program).0.success();
    let seen = calls(&dir, &dir.trace(), "/data");
    assert!(seen.len() > 40, "{seen:?}");

    import(&dir, &["fio"], "job.iolog", "iolog").success().says("an iolog does not tell direct=1");
    assert_eq!(calls(&dir, &dir.work().join("iolog"), "data"), seen);
    // A latency log has the same calls but syncs.
    let is_sync = |call: &(String, Option<i64>, i64)| call.0.ends_with("sync");
    let unsynced: Vec<_> = seen.into_iter().filter(|call| !is_sync(call)).collect();
    import(&dir, &["fio-lat"], "job_clat.1.log", "clat").success().says("logs do not name files");
    assert_eq!(calls(&dir, &dir.work().join("clat"), "job.1"), unsynced);
}

#[test]
fn what_cannot_be_read_is_left_out_and_told() {
    let dir = Dir::new();
    let bad = CSV.replace("0.2,write,,4096", "0.2,write,,4K").replace("fsync", "fysnc");
    fs::write(dir.work().join("bad.csv"), bad).expect("a new file");
    let told = import(&dir, &["csv", "--keep-going"], "bad.csv", "out").code(1);
    let told = told.says("3 calls").says("2 lines not readable").says("line 4, field 4: size is \"4K\"");
    told.says("line 5, field 2: operation \"fysnc\"");
    let mut text = dir.cawl(&["replay", "--long"]);
    text.arg(dir.work().join("out"));
    let text = Running::start(text).finish().success().stdout;
    assert!(text.contains("2 lines not readable (first: line 4"), "{text}");
    // Nothing was bad.
    fs::write(dir.work().join("good.csv"), CSV).expect("a new file");
    import(&dir, &["csv", "--keep-going"], "good.csv", "good").success();
    // Nothing was good, and nothing is left.
    fs::write(dir.work().join("other.csv"), "a,b\n1,2\n3,4\n").expect("a new file");
    import(&dir, &["csv", "--keep-going"], "other.csv", "none")
        .code(1)
        .says("line 1, field 1: unknown columns");
    assert!(!dir.work().join("none").exists());
}

/// The files of two processes, of which one ends in the middle of a line, and of its packing.
#[test]
fn files_of_several_processes_are_one_trace() {
    let dir = Dir::new();
    let line = |pid: u32, at: u32| {
        format!(
            "{{\"name\":\"pwrite\",\"cat\":\"POSIX\",\"pid\":{pid},\"tid\":{pid},\"ts\":{},\"dur\":5,\"ph\":\"X\",\
             \"args\":{{\"count\":10,\"ret\":10,\"offset\":{},\"fname\":\"/t/a{pid}\"}}}}\n",
            1_700_000_000_000_000 + u64::from(at),
            at * 7919 % 100_000
        )
    };
    let text = |pid: u32| format!("[\n{}", (0..4000).map(|at| line(pid, at * 10 + pid)).collect::<String>());
    let both = ["5.pfw", "6.pfw"];
    fs::write(dir.work().join(both[0]), text(5)).expect("a new file");
    fs::write(dir.work().join(both[1]), text(6)).expect("a new file");
    import_all(&dir, &["dftracer"], &both, "whole").success().says("8000 calls");
    let whole = replay(&dir, &dir.work().join("whole"));
    assert_eq!((whole.bytes(), whole.sessions().len()), (80_000, 2));

    let mut gzip = dir.command("gzip");
    gzip.arg(dir.work().join(both[1]));
    Running::start(gzip).finish().success();
    let packed = fs::read(dir.work().join("6.pfw.gz")).expect("gzip made it");
    fs::write(dir.work().join(both[1]), &packed[..packed.len() / 2]).expect("a new file");
    import_all(&dir, &["dftracer"], &both, "cut").code(1).says("6.pfw further");
    let told = import_all(&dir, &["dftracer", "--keep-going"], &both, "cut").code(1);
    told.says("1 input not read to the end").says("the input ends early");
    let cut = replay(&dir, &dir.work().join("cut")).bytes();
    assert!((40_010..80_000).contains(&cut), "{cut}");
    // Tables are one.
    fs::write(dir.work().join("calls.csv"), CSV).expect("a new file");
    import_all(&dir, &["csv"], &["calls.csv", "calls.csv"], "two")
        .code(1)
        .says("one file of this format is imported at a time");
}
