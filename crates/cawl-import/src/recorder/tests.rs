use super::*;
use crate::RecorderImporter;
use crate::testing::{import, import_all, is_fault};

/// In the form of Recorder 2.3 and later.
const NEW: &str = "\
0.000010 0.000020 MPI_File_open 0 2 ( MPI_COMM_WORLD /t/out 5 )
0.000100 0.000150 open 1 0 ( /t/out 578 384 )
0.000200 0.000260 write 1 0 ( /t/out %p 100 )
0.000300 0.000360 write 1 0 ( /t/out %p 50 )
0.000400 0.000460 pwrite64 1 0 ( /t/out %p 10 4096 )
0.000500 0.000510 lseek 1 0 ( /t/out 0 0 )
0.000600 0.000600 read 1 0 ( /t/out %p 30 )
0.000610 0.000620 lseek64 1 0 ( /t/out -10 2 )
0.000630 0.000640 write 1 0 ( /t/out %p 10 )
0.000700 0.000900 fsync 1 0 ( /t/out )
0.001000 0.001010 close 1 0 ( /t/out )
0.002000 0.002100 fopen 0 0 ( /t/log a )
0.002200 0.002300 fwrite 0 0 ( %p 8 16 /t/log )
0.002400 0.002500 fclose 0 0 ( /t/log )
0.003000 0.003100 rename 0 0 ( /t/log /t/log2 )
";

#[test]
fn lines_that_name_files() {
    let got = import(RecorderImporter::default(), NEW);
    assert_eq!(
        got.calls(),
        [
            "open /t/out",
            "write /t/out 0 100",
            "write /t/out 100 50",
            "pwrite /t/out 4096 10",
            "lseek /t/out",
            "read /t/out 0 30",
            "lseek /t/out",
            "write /t/out 4096 10",
            "fsync /t/out",
            "close /t/out",
            "open /t/log",
            "fwrite /t/log 0 128",
            "fclose /t/log"
        ]
    );
    let events = got.events();
    assert_eq!((events[0].start, events[0].duration), (100_000, 50_000));
    assert_eq!(events[0].flags, flag::WRITABLE | flag::TRUNC, "O_RDWR, O_CREAT and O_TRUNC");
    assert!(!events[1].has(flag::TRUNC));
    assert!(events[5].has(flag::ESTIMATED), "0 µs are no duration");
    assert!(events[10].has(flag::APPEND) && events[11].has(flag::APPEND));
    let skipped = got.skipped();
    assert!(skipped.iter().any(|skipped| skipped.starts_with("1 rename: can write")), "{skipped:?}");
    assert!(
        skipped.iter().any(|skipped| skipped.starts_with("1 MPI_File_open: no call that")),
        "{skipped:?}"
    );
    assert!(got.summary.notes.iter().any(|note| note.contains("has no results")));
}

#[test]
fn lines_that_have_descriptors_and_results() {
    let old = "0.1 0.2 5 open ( /t/a 66 420 )\n0.3 0.4 7 write ( 5 %p 10 )\n0.5 0.6 -1 write ( 5 %p 10 )\n\
               0.7 0.8 3 write ( 5 %p 3 )\n0.9 1.0 0 close ( 5 )\n1.1 1.2 3 write ( 9 %p 3 )\n\
               2.0 2.1 -1 open ( /t/no 0 )\n2.2 2.3 2 fread ( %p 4 3 9 )\n";
    let got = import(RecorderImporter::default(), old);
    let calls = ["open /t/a", "write /t/a 0 7", "write /t/a 7 3", "close /t/a", "write descriptor 9 0 3"];
    assert_eq!(got.calls()[..5], calls);
    assert_eq!(got.calls()[5], "fread descriptor 9 3 8");
    assert_eq!((got.events()[1].requested, got.events()[1].fd), (10, 5));
    assert_eq!(got.summary.bytes, 13);
    assert_eq!(got.skipped(), ["2 failed calls without effect"]);
    assert!(got.summary.notes.iter().any(|note| note.starts_with("2 calls are on descriptors")));
}

#[test]
fn a_file_is_a_rank() {
    let line = |at: &str| format!("{at} 9.0 write 0 0 ( /t/a %p 1 )\n");
    let (a, b) = (line("2.0"), line("1.0"));
    let got = import_all(RecorderImporter::default(), &[("_text/07.txt", &a), ("_text/3.txt", &b)]).unwrap();
    assert_eq!(got.events().iter().map(|event| event.pid).collect::<Vec<_>>(), [4, 8]);
}

#[test]
fn faults_say_where_and_what() {
    let is = |line: &str, field: usize, says: &str| {
        is_fault(RecorderImporter::default(), &format!("{line}\n"), (1, field), says);
    };
    is("hello", 0, "no arguments in parentheses");
    is("1 2 ( a )", 0, "2 words stand before the parenthesis");
    is("x 2 write 0 0 ( /a %p 1 )", 1, "the start is \"x\"");
    is("3 2 write 0 0 ( /a %p 1 )", 2, "the end is before the start");
    is("1 2 write 0 0 ( /a %p )", 7, "write lacks its argument 3");
    is("1 2 write 0 0 ( /a %p many )", 9, "the size is \"many\"");
    is("1 2 pwrite 0 0 ( /a %p 1 -4 )", 10, "the offset is \"-4\"");
    is("1 2 open 0 0 ( /a O_RDWR )", 8, "the flags is");
    is("1 2 MPI_Init 0 2 ( )", 0, "there is no call in 1 line");
}
