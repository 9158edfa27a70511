use super::*;
use crate::FioImporter;
use crate::testing::{import, import_all, is_fault};

#[test]
fn version_3_has_the_moment_of_each_call() {
    let text = "fio version 3 iolog\n0 /t/a b add\n105 /t/a b open\n110 /t/a b write 4096 512\n\
                130 /t/a b read 0 100\n150 /t/a b sync 0 0\n151 /t/a b datasync 0 0\n160 /t/a b trim 0 512\n\
                170 /t/a b close\n";
    let got = import(FioImporter::new(0), text);
    let calls =
        ["open /t/a b", "pwrite /t/a b 4096 512", "pread /t/a b 0 100", "fsync /t/a b", "fdatasync /t/a b"];
    assert_eq!(got.calls()[..5], calls);
    let starts: Vec<u64> = got.events().iter().map(|event| event.start).collect();
    assert_eq!(starts, [105_000, 110_000, 130_000, 150_000, 151_000, 170_000]);
    assert!(got.events().iter().all(|event| event.duration == 0 && event.pid == 1));
    assert!(got.events()[1].has(flag::ESTIMATED), "its duration is not known");
    assert_eq!((got.summary.lines, got.summary.calls, got.summary.bytes), (9, 6, 512));
    let skipped = got.skipped();
    assert!(skipped.iter().any(|skipped| skipped.starts_with("4 calls without duration")), "{skipped:?}");
    assert!(skipped.iter().any(|skipped| skipped.starts_with("1 trim: can write")), "{skipped:?}");
    assert!(!got.summary.notes.iter().any(|note| note.contains("version 2")));
    let note = |record: &Record| matches!(record, Record::Note(note) if note.starts_with("fio import: "));
    assert!(got.records.iter().any(note));
}

#[test]
fn names_of_cawl_s_own_log_are_decoded() {
    for (by, name) in [("", "a%20b"), (", of another", "a%20b"), (", of cawl-cli export", "a b")] {
        let got = import(FioImporter::new(0), &format!("fio version 3 iolog{by}\n1 a%20b write 0 1\n"));
        assert_eq!(got.calls(), [format!("pwrite {name} 0 1")]);
    }
}

#[test]
fn version_2_has_waits_alone() {
    let text = "fio version 2 iolog\n/t/x add\n/t/x open\n/t/x write 0 10\n/t/x wait 5000 0\n/t/x write 10 10\n\
                /t/x close\n";
    let got = import(FioImporter::new(flag::DIRECT), text);
    let starts: Vec<u64> = got.events().iter().map(|event| event.start).collect();
    assert_eq!(starts, [0, 0, 5_000_000, 5_000_000]);
    assert_eq!(got.calls()[1..3], ["pwrite /t/x 0 10", "pwrite /t/x 10 10"]);
    assert!(got.events().iter().all(|event| event.has(flag::DIRECT)));
    assert!(got.summary.notes.iter().any(|note| note.contains("version 2 has no times")));
    assert!(!got.summary.notes.iter().any(|note| note.contains("--flags O_DIRECT")));
}

#[test]
fn each_file_is_a_job() {
    let (a, b) = ("fio version 3 iolog\n5 /t/a write 0 1\n", "fio version 3 iolog\n3 /t/b write 0 2\n");
    let got = import_all(FioImporter::new(0), &[("a", a), ("b", b)]).unwrap();
    assert_eq!(got.calls(), ["pwrite /t/b 0 2", "pwrite /t/a 0 1"]);
    assert_eq!(got.events().iter().map(|event| event.pid).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn faults_say_where_and_what() {
    let is = |text: &str, place: (u64, usize), says: &str| is_fault(FioImporter::new(0), text, place, says);
    let v3 = |line: &str| format!("fio version 3 iolog\n0 /t/a open\n{line}\n");
    is("0, 4096, 4096\n", (1, 1), "must be \"fio version 2 iolog\" or");
    is("fio version 2 iolog\n", (1, 0), "there is no call in 1 line");
    is(&v3("x /t/a write 0 1"), (3, 1), "the time is \"x\", not whole microseconds");
    is(&v3("1 /t/a write 0 -1"), (3, 5), "the length is \"-1\"");
    is(&v3("1 /t/a write y 1"), (3, 4), "the offset is \"y\"");
    is(&v3("1 /t/a write 0 1099511627777"), (3, 5), "the length is");
    is(&v3("1 /t/a destroy"), (3, 3), "neither \"file add|open|close\"");
    is(&v3("1 /t/a wait 5 0"), (3, 3), "a wait is in version 2 only");
    is(&v3("18446744073709551615 /t/a close"), (3, 1), "over 584 years");
}
