//! Calls recorded by another tool become a trace, and no other file is changed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cawl_kit::{Dir, Finished, Report, Running};

const CSV: &str = "start_s,op,offset,size,duration_s,path\n\
                   0.0,open,,0,0.00001,a\n\
                   0.1,write,0,4096,0.0001,a\n\
                   0.2,write,,4096,0.0001,a\n\
                   0.3,fsync,,,0.01,a\n\
                   0.4,close,,,0.00001,a\n";

fn import(dir: &Dir, options: &[&str], input: &str, output: &str) -> Finished {
    let mut command = dir.cawl(&["import", "--from"]);
    command.args(options).arg(input).arg("-o").arg(output);
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
fn a_bad_input_is_told_and_leaves_no_trace() {
    let dir = Dir::new();
    let bad = CSV.replace("fsync", "fysnc");
    for (content, says) in [("", "no header"), ("a,b\n1,2\n", "unknown columns"), (&bad, "line 5")] {
        fs::write(dir.work().join("bad.csv"), content).expect("a new file");
        import(&dir, &["csv"], "bad.csv", "out").code(1).says("cannot import bad.csv").says(says);
        assert!(!dir.work().join("out").exists(), "half a trace was left");
    }
    import(&dir, &["csv"], "missing.csv", "out").code(1).says("missing.csv");
    import(&dir, &["strace", "--flags", "O_SYNC"], "bad.csv", "out").code(2).says("--flags is for csv");
    import(&dir, &["csv"], "bad.csv", "no/such/folder/out").code(1).says("there is no folder");
}

#[test]
fn what_was_there_before_is_not_destroyed() {
    let dir = Dir::new();
    let input = dir.work().join("calls.csv");
    fs::write(&input, CSV).expect("a new file");
    symlink("calls.csv", dir.work().join("link")).expect("a new link");
    for output in ["calls.csv", "./calls.csv", "link"] {
        import(&dir, &["csv"], "calls.csv", output).code(2).says("overwrite its own input");
        assert_eq!(fs::read_to_string(&input).expect("it is there"), CSV);
    }
    // A failed import removes its trace, but not a device named as output.
    fs::write(&input, "a,b\n").expect("it is ours");
    symlink("/dev/null", dir.work().join("null")).expect("a new link");
    import(&dir, &["csv"], "calls.csv", "null").code(1);
    assert!(dir.work().join("null").is_symlink());
}
