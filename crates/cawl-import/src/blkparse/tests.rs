use super::*;
use crate::BlkparseImporter;
use crate::testing::{import, is_fault};

#[test]
fn what_is_queued_ends_when_its_request_is_complete() {
    // Merged writes, then completions of each again, as devices of bios print them.
    let text = "\
  8,0   43        1     0.000000000  1095  Q  WS 0 + 8 [systemd-udevd]
  8,0   43        3     0.000025768  1095  G  WS 0 + 8 [systemd-udevd]
  8,0   43        4     0.000040316  1095  Q  WS 8 + 8 [systemd-udevd]
  8,0   43        6     0.000048882  1095  M  WS 8 + 8 [systemd-udevd]
  8,0   43       17     0.000124734  1095  D  WS 0 + 16 [systemd-udevd]
  8,0   43       18     0.000159740   227  C  WS 0 + 16 [0]
  8,0   43       19     0.000165801   227  C  WS 0 + 8 [0]
  8,0    1       20     0.100000000    55  Q  RA 100 + 256 [dd]
  8,0    1       21     0.100300000     0  C  RA 100 + 256 [0]
CPU43 (8,0):
 Reads Queued:           1,      128KiB\t Writes Queued:           2,        8KiB

Throughput (R/W): 0KiB/s / 0KiB/s
Events (8,0): 23 entries
Skips: 3 forward (0 -   0.0%)
";
    let got = import(BlkparseImporter::default(), text);
    assert_eq!(
        got.calls(),
        [
            "pwrite /dev/block/8:0 0 4096",
            "pwrite /dev/block/8:0 4096 4096",
            "pread /dev/block/8:0 51200 131072"
        ]
    );
    let times: Vec<_> = got.events().iter().map(|event| (event.start, event.end(), event.pid)).collect();
    assert_eq!(times[..2], [(0, 159_740, 1095), (40_316, 159_740, 1095)]);
    assert!(got.events().iter().all(|event| event.has(flag::DIRECT)));
    assert!(matches!(&got.records[0], Record::Session(session) if session.program == "systemd-udevd"));
    assert!(got.summary.notes.iter().any(|note| note.contains("lost 3 events")));
    assert!(got.summary.skipped.iter().all(|skipped| !skipped.reason.is_loss()), "{:?}", got.skipped());
}

#[test]
fn flushes_splits_failures_and_commands() {
    let text = "\
  8,0    0        1     0.000000000 34004  Q FWS [sync]
  8,0    0        2     0.000001335 34004  G FWS [sync]
  8,0    0        3     0.000004327 31088  D  FN [kworker/0:2H]
  8,0    0        4     0.000068945     0  C  FN 0 [0]
  8,0    0        5     0.000069466     0  C  WS 0 [0]
  8,0    0        6     0.1 927  Q WFSM 3328128 + 8 [btrfs transacti]
  8,0    0        7     0.2   0  C WFSM 3328128 + 8 [0]
  8,0    0        8     0.3 927  Q   W 1000 + 8 [dd]
  8,0    0        9     0.3 927  X   W 1000 / 1004 [dd]
  8,0    0       10     0.4   0  C   W 1004 + 4 [0]
  8,0    0       11     0.5   0  C   W 1000 + 4 [0]
  8,0    0       12     0.6 927  Q   W 2000 + 8 (     852) [dd]
  8,0    0       13     0.7   0  C   W 2000 + 8 ( 1234567) [5]
  8,0    0       14     0.8 927  D   R 254 (12 00 00 00 fe 00 ..) [scsi_id]
  8,0    0       15     0.9   3  C   R (12 00 00 00 fe 00 ..) [0]
  8,0    0       16     1.0   3  Q  DS 0 + 80 [blkdiscard]
  8,0    0       17     1.1   3  C  DS 0 + 80 [0]
  8,0    0       18     1.2   3  Q   W 9000 + 8 [dd]
";
    let got = import(BlkparseImporter::default(), text);
    assert_eq!(
        got.calls(),
        [
            "fdatasync /dev/block/8:0",
            "pwrite /dev/block/8:0 1704001536 4096",
            "pwrite /dev/block/8:0 512000 4096"
        ]
    );
    let events = got.events();
    assert_eq!((events[0].start, events[0].end()), (0, 69_466));
    assert!(events[1].has(flag::DSYNC) && !events[2].has(flag::DSYNC));
    assert_eq!((events[2].start, events[2].end()), (300_000_000, 500_000_000));
    let skipped = got.skipped();
    for says in [
        "1 calls without result",
        "1 requests of kind DS: can write",
        "1 failed calls",
        "2 commands passed through to the device",
    ] {
        assert!(skipped.iter().any(|skipped| skipped.starts_with(says)), "{says}: {skipped:?}");
    }
}

#[test]
fn without_queueing_requests_begin_when_they_are_issued() {
    let text = "  8,16  1  1  1.5 10  D   W 8 + 8 [kworker/1:1]\n  8,16  1  2  1.75 0  C   W 8 + 8 [0]\n\
                8,16  1  3  2.0 0  C   W 800 + 8 [0]\n";
    let got = import(BlkparseImporter::default(), text);
    assert_eq!(got.calls(), ["pwrite /dev/block/8:16 4096 4096"]);
    assert_eq!((got.events()[0].start, got.events()[0].duration), (1_500_000_000, 250_000_000));
    assert!(got.summary.notes.iter().any(|note| note.starts_with("1 requests begin when they were issued")));
    let lost = got.summary.skipped.iter().find(|skipped| skipped.reason == SkipReason::Headless);
    assert_eq!(lost.map(|lost| (lost.lines, lost.first)), Some((1, 3)));
}

#[test]
fn faults_say_where_and_what() {
    let is = |line: &str, field: usize, says: &str| {
        is_fault(BlkparseImporter::default(), &format!("{line}\n"), (1, field), says);
    };
    is("hello", 0, "the line has 1 fields");
    is("sda 1 1 0.0 1 Q W 0 + 8 [dd]", 1, "is \"sda\", not a device as 8,0");
    is("8,0 1 1 x 1 Q W 0 + 8 [dd]", 4, "the time is \"x\"");
    is("8,0 1 1 0.0 x Q W 0 + 8 [dd]", 5, "the process is \"x\"");
    is("8,0 1 1 0.0 1 Q W x + 8 [dd]", 8, "the sector is \"x\"");
    is("8,0 1 1 0.0 1 Q W 0 + y [dd]", 10, "the number of sectors is \"y\"");
    is("8,0 1 1 0.0 1 C W 0 + 8 [0]", 0, "there is no call in 1 line");
}
