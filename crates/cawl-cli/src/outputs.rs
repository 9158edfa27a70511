//! The files that commands write, beside profiles.

use std::path::Path;

use cawl_console::outputs::Kind;

pub use cawl_console::outputs::{PROFILE, check};

/// Of any export: the other programs' formats have no name of ours in them.
pub const EXPORT: Kind = Kind {
    name: "export of cawl",
    is: |head| {
        let begins = ["call,", "{\"call\":", "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", "PAR1", "\n"];
        begins.iter().any(|begin| head.starts_with(begin))
    },
};

/// The kind of a report with this name.
pub fn report(path: &Path) -> Kind {
    let is: fn(&str) -> bool = match path.extension().and_then(|ending| ending.to_str()) {
        Some("json") => {
            |head| head.starts_with('{') && head.contains("\"schema\":") && head.contains("\"mode\":")
        }
        Some("html") => |head| head.starts_with("<!DOCTYPE html>") && head.contains("<title>cawl: "),
        _ => |head| ["cawl  ", "calls  "].iter().any(|begin| head.starts_with(begin)),
    };
    Kind { name: "report of cawl", is }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_kind_is_told_by_its_beginning() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text, is_ours) in [
            ("a.txt", "cawl       1 s in write, 1 ms would do\n", true),
            ("b.txt", "calls      3 calls, 3 B to files in 1 ms; assimilated\n", true),
            ("c.txt", "dear diary", false),
            ("d.json", "{\n  \"schema\": 1,\n  \"mode\": \"lockstep\"", true),
            ("e.json", "{\"schema\": 1, \"name\": \"mine\"}", false),
            ("f.html", "<!DOCTYPE html><html lang=\"en\"><head><title>cawl: dd</title>", true),
            ("g.html", "<!DOCTYPE html><html><title>mine</title>", false),
            ("empty.html", "", true),
        ] {
            let file = dir.path().join(name);
            fs::write(&file, text).unwrap();
            let checked = check(&file, &report(&file));
            assert_eq!(checked.is_ok(), is_ours, "{name}: {checked:?}");
        }
        let notes = dir.path().join("c.txt");
        let why = check(&notes, &EXPORT).unwrap_err().to_string();
        assert!(why.contains("c.txt exists and is no export") && why.contains("remove it first"), "{why}");
    }
}
