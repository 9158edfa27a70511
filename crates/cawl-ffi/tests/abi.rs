//! The committed header and list of symbols against the source.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The folder of this crate.
pub const CRATE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn the_header_is_that_of_the_source() {
    let folder = Path::new(CRATE);
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a sound configuration");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in ["status", "cause", "cost", "machine", "handles", "calls"] {
        builder = builder.with_src(folder.join("src").join(name).with_extension("rs"));
    }
    let mut made = Vec::new();
    builder.generate().expect("a header").write(&mut made);
    let kept = folder.join("include/cawl.h");
    if std::env::var_os("CAWL_WRITE_PAGES").is_some() {
        fs::write(&kept, &made).expect("the header can be written");
    }
    let same = fs::read(&kept).is_ok_and(|kept| kept == made);
    assert!(same, "another ABI; if that is meant: CAWL_WRITE_PAGES=1 cargo test -p cawl-ffi header");
}

/// The functions of the header.
pub fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(Path::new(CRATE).join("include/cawl.h")).expect("a header");
    let code = header.lines().filter(|line| !line.starts_with("//"));
    let calls = code.filter_map(|line| line.split_once('(')).map(|(before, _)| before);
    let names = calls.filter_map(|line| line.rsplit([' ', '*']).next());
    names.filter(|name| name.starts_with("cawl_")).map(str::to_owned).collect()
}

#[test]
fn each_function_has_a_version() {
    let map = fs::read_to_string(Path::new(CRATE).join("libcawl.map")).expect("a version script");
    let names = map.lines().filter_map(|line| line.trim().strip_suffix(';'));
    let named = names.filter(|name| name.starts_with("cawl_")).map(str::to_owned);
    assert_eq!(named.collect::<BTreeSet<_>>(), declared());
}
