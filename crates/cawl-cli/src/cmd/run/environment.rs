//! The environment of a program that is traced by the library.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cawl_core::StackOptions;
use cawl_host::inspect::{self, Verdict};

use crate::args::RunArgs;
use crate::cmd::recording::Backend;
use crate::start::Filters;

/// What is set in it, or changed.
pub fn variables(
    args: &RunArgs,
    library: &Path,
    backend: &Backend,
    verdict: &Verdict,
    filters: Filters,
) -> BTreeMap<&'static str, OsString> {
    let mut variables = BTreeMap::from([
        ("CAWL_SOCKET", backend.path.as_path().into()),
        ("CAWL_RUN", backend.run.to_string().into()),
    ]);
    // Each process would ask the kernel.
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    if std::env::var_os("CAWL_CLOCK").is_none() && std::fs::read(source).is_ok_and(|name| name == b"tsc\n") {
        variables.insert("CAWL_CLOCK", "tsc".into());
    }
    if let Filters::Harmless(count) = filters {
        variables.insert("CAWL_FILTERS", count.to_string().into());
    }
    // musl's linker ends a program whose preloaded library it cannot load; glibc's 32-bit one prints an
    // error.
    if !verdict.must_not_preload {
        let before = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let list = preload(library, &before, verdict.sanitizer.as_deref());
        variables.insert("LD_PRELOAD", list);
    }
    if args.no_reads || args.all_reads {
        variables.insert("CAWL_READS", if args.no_reads { "0" } else { "all" }.into());
    }
    // Inside a run with --try, one without it is not to inherit that.
    if !args.tries.is_empty() || std::env::var_os("CAWL_TRY").is_some() {
        let words: Vec<&str> = args.tries.iter().map(|one| one.sent.as_str()).collect();
        variables.insert("CAWL_TRY", words.join(",").into());
    }
    // Inside a run that excludes programs, one that does not is not to inherit that.
    if !args.exclude.is_empty() || std::env::var_os("CAWL_EXCLUDE").is_some() {
        variables.insert("CAWL_EXCLUDE", args.exclude.join("/").into());
    }
    if args.no_children {
        variables.insert("CAWL_ONLY_CHILD_OF", std::process::id().to_string().into());
    }
    if args.lossless {
        variables.insert("CAWL_LOSSLESS", "1".into());
    }
    if let Some(StackOptions { threshold, one_in }) = args.stacks() {
        variables.insert("CAWL_STACKS", format!("{},{one_in}", threshold.get() as u64).into());
        // CPython from 3.12 on then says by which code it runs which function.
        if std::env::var_os("PYTHONPERFSUPPORT").is_none() {
            variables.insert("PYTHONPERFSUPPORT", "1".into());
        }
    } else if std::env::var_os("CAWL_STACKS").is_some() {
        // Inside a run with --stacks.
        variables.insert("CAWL_STACKS", "".into());
    }
    variables
}

/// LD_PRELOAD with our library first, then its previous value. Only a sanitizer's runtime comes before it:
/// the user's own, or the one that the program needs. The latter is followed by two spaces, which tell the
/// tracer that it was added here (`hide_sanitizer` in cawl-preload).
fn preload(library: &Path, before: &OsStr, sanitizer: Option<&str>) -> OsString {
    let first = before.as_bytes().split(|byte| matches!(byte, b':' | b' ')).next().unwrap_or_default();
    let own = std::str::from_utf8(first).ok().filter(|first| inspect::is_sanitizer(first));
    let rest = OsStr::from_bytes(&before.as_bytes()[own.map_or(0, str::len)..]);
    let head = match (own, sanitizer) {
        (Some(own), _) => format!("{own}:"),
        (None, Some(sanitizer)) => format!("{sanitizer}  "),
        (None, None) => String::new(),
    };
    let colon = if own.is_none() && !rest.is_empty() { ":" } else { "" };
    [head.as_ref(), library.as_os_str(), colon.as_ref(), rest].join(OsStr::new(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_preloads_stay_behind_ours() {
        let ours = Path::new("/c/lib.so");
        for (before, sanitizer, wanted) in [
            ("", None, "/c/lib.so"),
            ("/a.so:/b.so", None, "/c/lib.so:/a.so:/b.so"),
            ("", Some("libasan.so.8"), "libasan.so.8  /c/lib.so"),
            ("/a.so", Some("libasan.so.8"), "libasan.so.8  /c/lib.so:/a.so"),
            ("/l/libasan.so.6 /a.so", Some("libasan.so.8"), "/l/libasan.so.6:/c/lib.so /a.so"),
            ("libasan.so.6", None, "libasan.so.6:/c/lib.so"),
        ] {
            assert_eq!(preload(ours, before.as_ref(), sanitizer), wanted);
        }
    }
}
