use super::*;
use crate::DxtImporter;
use crate::testing::{fault, import, is_fault};

/// In the form of darshan-dxt-parser 3.4, with Lustre's OSTs in the second file.
const TEXT: &str = "\
# darshan log version: 3.41
# exe: /apps/sim/solver -n 2
# nprocs: 2
# start_time: 1700000000

# DXT_POSIX module data
# ***************************************************

# DXT, file_id: 1, file_name: /scratch/out file
# DXT, rank: 0, hostname: node1
# DXT, write_count: 2, read_count: 1
# DXT, mnt_pt: /scratch, fs_type: lustre
# Module    Rank  Wt/Rd  Segment          Offset          Length    Start(s)      End(s)   Pthread-ID
 X_POSIX       0  write        0               0              30      0.0018      0.0048     139823019705024
 X_POSIX       0  write        1             120              10      0.0020      0.0020     139822945752832
 X_POSIX       0   read        0               0              10      0.0100      0.0101     139823019705024

# DXT, file_id: 2, file_name: /scratch/b
# DXT, rank: 1, hostname: node2
# Module    Rank  Wt/Rd  Segment          Offset          Length    Start(s)      End(s)   [OST]   Pthread-ID
 X_POSIX       1  write        0               0         1048576      0.0010      0.0500   [2] [3]   N/A
 X_MPIIO       1  write        0               0         1048576      0.0009      0.0501    N/A
";

#[test]
fn files_ranks_and_threads() {
    let got = import(DxtImporter::new(flag()), TEXT);
    assert_eq!(
        got.calls(),
        [
            "pwrite /scratch/b 0 1048576",
            "pwrite /scratch/out file 0 30",
            "pwrite /scratch/out file 120 10",
            "pread /scratch/out file 0 10"
        ]
    );
    let events = got.events();
    let times: Vec<_> = events.iter().map(|event| (event.start, event.duration)).collect();
    assert_eq!(times[..2], [(1_000_000, 49_000_000), (1_800_000, 3_000_000)]);
    let threads: Vec<_> = events.iter().map(|event| (event.pid, event.tid)).collect();
    assert_eq!(threads, [(2, 2), (1, 1), (1, FIRST_THREAD + 1), (1, 1)]);
    assert!(events.iter().all(|event| event.has(flag())));
    assert_eq!(got.summary.bytes, 1_048_616);
    assert_eq!(
        got.skipped(),
        [
            "1 calls of less than 0.1 ms, which DXT prints as 0: predicted, not compared",
            "1 MPI-IO calls, whose POSIX calls are taken"
        ]
    );
    assert!(matches!(&got.records[0], Record::Session(session) if session.program == "solver"));
    assert!(got.summary.notes.iter().any(|note| note.contains("no opens, closes, syncs")));
}

fn flag() -> u32 {
    cawl_wire::flag::DIRECT
}

#[test]
fn counters_are_no_calls() {
    let counters = "# darshan log version: 3.41\n\
                    POSIX\t-1\t6301063301082038805\tPOSIX_OPENS\t2049\t/scratch/a\t/\tlustre\n";
    let (line, field, told) = fault(DxtImporter::new(0), counters);
    assert_eq!((line, field), (2, 1));
    assert!(told.contains("the output of darshan-parser") && told.contains("darshan-dxt-parser"), "{told}");
    let (_, _, told) = fault(DxtImporter::new(0), "total_POSIX_OPENS: 5\n");
    assert!(told.contains("the output of darshan-parser"), "{told}");
    // A log recorded without tracing.
    let (_, _, told) = fault(DxtImporter::new(0), "# no DXT module data available for this Darshan log.\n");
    assert!(told.contains("there is no call") && told.contains("DXT_ENABLE_IO_TRACE=1"), "{told}");
    // The log itself.
    let (line, _, told) = fault(DxtImporter::new(0), "3.41\u{0}\u{0}\u{1}\n");
    assert!(line == 1 && told.contains("this is a log itself"), "{told}");
}

#[test]
fn faults_say_where_and_what() {
    let is = |row: &str, field: usize, says: &str| {
        let text = format!("# DXT, file_id: 1, file_name: /a\n{row}\n");
        is_fault(DxtImporter::new(0), &text, (2, field), says);
    };
    is("X_POSIX 0 write 0 0 30 0.1", 0, "the line has 7 fields");
    is("X_POSIX -1 write 0 0 30 0.1 0.2", 2, "the rank is \"-1\"");
    is("X_POSIX 0 fly 0 0 30 0.1 0.2", 3, "is \"fly\", neither write nor read");
    is("X_POSIX 0 write 0 x 30 0.1 0.2", 5, "the offset is \"x\"");
    is("X_POSIX 0 write 0 0 -3 0.1 0.2", 6, "the length is \"-3\"");
    is("X_POSIX 0 write 0 0 3 nan 0.2", 7, "the start is \"nan\"");
    is("X_POSIX 0 write 0 0 3 0.3 0.2", 8, "the end is before the start");
    let text = "X_POSIX 0 write 0 0 30 0.1 0.2\n";
    is_fault(DxtImporter::new(0), text, (1, 0), "tells which file this is of");
}
