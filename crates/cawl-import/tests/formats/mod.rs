//! Formats of rows under noise: nothing panics, what comes out is in order, and an error leaves no trace of
//! the line that it is about.

use cawl_core::Record;
use cawl_import::{
    BlkparseImporter, CsvImporter, CsvOptions, DftracerImporter, DxtImporter, FioImporter, FioLatImporter,
    ImportSummary, Importer, RecorderImporter,
};
use proptest::prelude::*;

use crate::{check_order, events};

/// A format: how it is read, lines that make sense in this order, and what lines are made of.
struct Format {
    importer: fn() -> Box<dyn Importer>,
    good: &'static [&'static str],
    pieces: &'static [&'static str],
}

fn custom_csv() -> CsvImporter {
    let columns = Some("start=t:ms,op=o,size=n:K,offset=x,end=e:ms,path=f".parse().unwrap());
    CsvImporter::new(CsvOptions { columns, ..CsvOptions::default() })
}

const FORMATS: &[Format] = &[
    Format {
        importer: || Box::new(CsvImporter::new(CsvOptions::default())),
        good: &["start_s,op,offset,size,duration_s", "1,write,,10,0.1", "0.5,read,0,7,0.1", "2,fsync,,,0.1"],
        pieces: &["1", ",", "write", "read", "-1", "0.5", "\"", "1e9", "4096", "lseek", "\u{fffd}"],
    },
    Format {
        importer: || Box::new(custom_csv()),
        good: &["t;o;n;x;e;f", "1;W;10;0;2;/a", "0.5;pread64;7;9;0.75;/b", "3;fsync;;;4;/a"],
        pieces: &["1", ";", "w", "read", "-1", "0.5", "\"", "1e9", "99999999999999999999", "#"],
    },
    Format {
        importer: || Box::new(FioImporter::new(0)),
        good: &[
            "fio version 3 iolog",
            "0 /a add",
            "1 /a open",
            "5 /a write 0 10",
            "9 /a sync 0 0",
            "12 /a close",
        ],
        pieces: &[
            "1 ",
            "/a ",
            "add",
            "open",
            "write ",
            "wait ",
            "trim ",
            "0 ",
            "18446744073709551615 ",
            "close",
            "x",
        ],
    },
    Format {
        importer: || Box::new(FioImporter::new(0)),
        good: &["fio version 2 iolog", "/a add", "/a open", "/a write 0 10", "/a wait 500 0", "/a read 0 5"],
        pieces: &[
            "1 ",
            "/a ",
            "add",
            "open",
            "write ",
            "wait ",
            "trim ",
            "0 ",
            "18446744073709551615 ",
            "close",
            "x",
        ],
    },
    Format {
        importer: || Box::new(FioLatImporter::new(0)),
        good: &["1, 2000, 1, 4096, 0, 0", "1, 900, 0, 512, 4096, 0", "7, 5000000, 1, 10, 0, 1"],
        pieces: &["1", ", ", "0", "18446744073709551615", "4096", "-", "0x0004", "x", ","],
    },
    Format {
        importer: || Box::new(DxtImporter::new(0)),
        good: &[
            "# DXT, file_id: 1, file_name: /a",
            " X_POSIX 0 write 0 0 30 0.0018 0.0018 139823019705024",
            " X_POSIX 1 read 0 5 30 0.0001 0.0018 [2] 7",
            " X_MPIIO 1 read 0 5 30 0.0001 0.0018",
        ],
        pieces: &[
            "X_POSIX ",
            "# DXT, file_id: 2, ",
            "file_name: /b",
            "0 ",
            "write ",
            "0.5 ",
            "-1 ",
            "\t",
            "nan ",
            "9999999999999 ",
        ],
    },
    Format {
        importer: || Box::<DftracerImporter>::default(),
        good: &[
            "[",
            r#"{"name":"FH","pid":1,"ph":"M","args":{"name":"/a","value":"f"}}"#,
            r#"{"name":"open","cat":"POSIX","pid":1,"tid":1,"ts":10,"dur":5,"ph":"X","args":{"ret":3,"flags":577,"fhash":"f"}}"#,
            r#"{"name":"write","cat":"POSIX","pid":1,"tid":1,"ts":20,"dur":5,"ph":"X","args":{"ret":9,"count":9,"fd":3}}"#,
        ],
        pieces: &[
            "{",
            "}",
            "\"name\":",
            "\"write\"",
            ",",
            "\"cat\":\"POSIX\"",
            "\"pid\":1",
            "\"ts\":5",
            "\"dur\":1",
            "\"ph\":\"X\"",
            "\"args\":{",
            "\"count\":4",
            "\"ret\":-1",
            "\"M\"",
            "99999999999999999999",
            "[",
            "]",
        ],
    },
    Format {
        importer: || Box::<RecorderImporter>::default(),
        good: &[
            "0.1 0.2 open 0 0 ( /a 577 420 )",
            "0.3 0.4 write 0 0 ( /a %p 10 )",
            "0.5 0.6 lseek 0 0 ( /a -3 2 )",
            "0.7 0.8 3 read ( 5 %p 10 )",
        ],
        pieces: &[
            "0.1 ",
            "0.2 ",
            "open ",
            "write ",
            "0 0 ",
            "( ",
            "/a ",
            "%p ",
            "-9 ",
            ")",
            "lseek ",
            "fread ",
            "18446744073709551615 ",
        ],
    },
    Format {
        importer: || Box::<BlkparseImporter>::default(),
        good: &[
            "8,0 1 1 0.1 7 Q W 0 + 8 [dd]",
            "8,0 1 2 0.2 0 C W 0 + 8 [0]",
            "8,0 1 3 0.3 7 Q FWS [sync]",
            "8,0 1 4 0.4 0 C WS 0 [0]",
        ],
        pieces: &[
            "8,0 ",
            "1 ",
            "0.5 ",
            "Q ",
            "D ",
            "C ",
            "W ",
            "FWS ",
            "R ",
            "+ ",
            "8 ",
            "[dd]",
            "[0]",
            "(00 ..) ",
            "9223372036854775807 ",
            "CPU",
        ],
    },
];

/// All records of some lines, without the lines that are errors, of which the number is told.
fn import(importer: &mut dyn Importer, lines: &[String]) -> Option<(Vec<Record>, ImportSummary, usize)> {
    let (mut out, mut bad) = (Vec::new(), 0);
    for line in lines {
        bad += usize::from(importer.line(format!("{line}\n").as_bytes(), &mut out).is_err());
    }
    let summary = importer.finish(&mut out).or_else(|_| importer.finish(&mut out)).ok()?;
    Some((out, summary, bad))
}

fn lines(of: &[&str]) -> Vec<String> {
    of.iter().map(|line| (*line).to_owned()).collect()
}

#[test]
fn what_makes_sense_is_read() {
    for format in FORMATS {
        let (records, summary, bad) = import(&mut *(format.importer)(), &lines(format.good)).unwrap();
        assert_eq!(bad, 0, "{:?}", format.good);
        assert!(summary.calls > 0);
        check_order(&records, &summary);
    }
}

proptest! {
    #[test]
    fn noise_never_panics(
        of in 0..FORMATS.len(),
        noise in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..14), 0..40),
        good in any::<bool>(),
    ) {
        let format = &FORMATS[of];
        let noise = noise.iter().map(|line| line.iter().map(|piece| *piece.get(format.pieces)).collect::<String>());
        let text: Vec<String> = lines(if good { format.good } else { &[] }).into_iter().chain(noise).collect();
        let importer = &mut *(format.importer)();
        if let Some((records, summary, _)) = import(importer, &text) {
            check_order(&records, &summary);
        }
        for line in &text {
            let _ = importer.time(line.as_bytes());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(of in 0..FORMATS.len(), text in prop::collection::vec(any::<u8>(), 0..2000)) {
        let importer = &mut *(FORMATS[of].importer)();
        for line in text.split_inclusive(|&byte| byte == b'\n') {
            let _ = (importer.time(line), importer.line(line, &mut Vec::new()));
        }
        let _ = importer.finish(&mut Vec::new());
    }

    /// What --keep-going rests on.
    #[test]
    fn a_bad_line_changes_nothing(of in 0..FORMATS.len(), places in prop::collection::vec(1..6usize, 1..8)) {
        let format = &FORMATS[of];
        let (expected, _, _) = import(&mut *(format.importer)(), &lines(format.good)).unwrap();
        let mut text = lines(format.good);
        for place in &places {
            text.insert((*place).min(text.len()), "\u{1}this is no line of any format\u{1} ( 1 )".to_owned());
        }
        let (records, _, bad) = import(&mut *(format.importer)(), &text).unwrap();
        prop_assert_eq!(bad, places.len());
        prop_assert_eq!(events(&records), events(&expected));
    }
}
