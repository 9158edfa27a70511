use super::*;
use crate::FioLatImporter;
use crate::testing::{import, import_all, is_fault};

#[test]
fn calls_of_a_millisecond_are_one_behind_the_other() {
    // fio 3.33 with log_offset=1: time in ms, latency in ns, direction, block size, offset, priority.
    let text = "1, 200000, 1, 4096, 0, 0\n1, 300000, 1, 4096, 4096, 0\n5, 2000000, 0, 512, 0, 0\n9, 5, 2, 512, 0, 0\n";
    let got = import(FioLatImporter::new(flag::SYNC), text);
    assert_eq!(got.calls(), ["pwrite file 0 4096", "pwrite file 4096 4096", "pread file 0 512"]);
    let times: Vec<_> = got.events().iter().map(|event| (event.start, event.duration)).collect();
    assert_eq!(times, [(800_000, 200_000), (1_000_000, 300_000), (3_000_000, 2_000_000)]);
    assert!(got.events().iter().all(|event| event.has(flag::SYNC) && !event.has(flag::ESTIMATED)));
    assert_eq!(got.skipped(), ["1 trim: can write, but is not imported"]);
    assert!(got.summary.notes.iter().any(|note| note.contains("the millisecond in which a call ended")));
}

#[test]
fn overlapping_calls_overlap() {
    // Depth 2: the second has no room behind the first.
    let got = import(FioLatImporter::new(0), "10, 5000000, 1, 4096, 0, 0\n10, 5000000, 1, 4096, 4096, 0\n");
    let starts: Vec<u64> = got.events().iter().map(|event| event.start).collect();
    assert_eq!(starts, [5_000_000, 5_000_000]);
}

#[test]
fn issue_times_are_exact() {
    let got = import(
        FioLatImporter::new(0),
        "1, 250, 1, 4096, 0, 0, 1000123\n1, 300, 1, 4096, 4096, 0x0004, 1000400\n",
    );
    let starts: Vec<u64> = got.events().iter().map(|event| event.start).collect();
    assert_eq!(starts, [1_000_123, 1_000_400]);
    assert!(!got.summary.notes.iter().any(|note| note.contains("millisecond")));
}

#[test]
fn columns_tell_the_version() {
    // Without log_offset, with a priority: where it went is a guess, and is said to be.
    let got =
        import(FioLatImporter::new(0), "1, 200, 1, 4096, 0\n2, 200, 1, 4096, 1\n3, 1, 0, 4096, 0x0000\n");
    assert_eq!(got.calls(), ["write file 0 4096", "write file 4096 4096", "read file 8192 4096"]);
    assert!(got.events().iter().all(|event| event.has(flag::ESTIMATED)));
    assert!(got.skipped()[0].starts_with("3 calls without offset"), "{:?}", got.skipped());
    // Before fio 3.21 the fifth column is an offset.
    let got = import(FioLatImporter::new(0), "1, 200, 1, 4096, 8192\n2, 200, 1, 4096, 0\n3, 200, 1, 4096\n");
    assert_eq!(got.calls()[..2], ["pwrite file 8192 4096", "pwrite file 0 4096"]);
}

#[test]
fn jobs_are_named_as_their_logs() {
    let row = "1, 200, 1, 4096, 0, 0\n";
    let names = [("d/seq_clat.1.log", row), ("d/seq_clat.2.log.gz", row), ("d/mine", row)];
    let got = import_all(FioLatImporter::new(0), &names).unwrap();
    assert_eq!(got.calls(), ["pwrite seq.1 0 4096", "pwrite seq.2 0 4096", "pwrite mine 0 4096"]);
    let wrong =
        |names: &[(&str, &str)]| import_all(FioLatImporter::new(0), names).map(|_| ()).unwrap_err().fault;
    assert!(wrong(&[("x_slat.1.log", row)]).contains("a slat log has no durations of calls"));
    assert!(wrong(&[("x_bw.log", row)]).contains("a bw log"));
    assert!(wrong(&[("x_lat.1.log", row), ("x_clat.1.log", row)]).contains("tell of the same calls"));
}

#[test]
fn faults_say_where_and_what() {
    let is =
        |text: &str, place: (u64, usize), says: &str| is_fault(FioLatImporter::new(0), text, place, says);
    is("", (0, 0), "there is no call in 0 lines");
    is("1, 2, 3\n", (1, 0), "has 3 fields");
    is("1, 200, 1, 4096, 0, 0\nx, 200, 1, 4096, 0, 0\n", (2, 1), "the time is \"x\"");
    is("1, -5, 1, 4096, 0, 0\n", (1, 2), "the latency is \"-5\"");
    is("1, 5, 7, 4096, 0, 0\n", (1, 3), "the direction is \"7\"");
    is("500, 5, 1, 0, 0, 0\n", (1, 4), "record without log_avg_msec");
    is("1, 5, 1, 4096, z, 0\n", (1, 5), "the offset is \"z\"");
    is("1, 5, 1, 4096, 0, 0, z\n", (1, 7), "the issue time is \"z\"");
}
