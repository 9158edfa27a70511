//! The Debian package of cawl-ship.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use cawl_kit::{Dir, Running, find};

use crate::ship;

#[test]
fn the_debian_package_has_the_program_and_its_manual_page() {
    if ["cargo-deb", "dpkg-deb"].into_iter().any(|program| find(program).is_none()) {
        return;
    }
    let dir = Dir::new();
    // Instead of a release build, which takes minutes.
    let release = dir.path().join("target/release");
    fs::create_dir_all(&release).expect("a new folder");
    symlink(ship(), release.join("cawl-ship")).expect("a new link");
    let package = dir.path().join("ship.deb");
    let mut command = dir.command(env!("CARGO"));
    command.args(["deb", "-p", "cawl-ship", "--no-build", "--no-strip", "--fast", "--output"]).arg(&package);
    command.env("CARGO_TARGET_DIR", dir.path().join("target"));
    for name in ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));
    Running::start(command).finish().success();
    let out = dir.path().join("out");
    let mut command = dir.command("dpkg-deb");
    command.arg("-x").arg(&package).arg(&out);
    Running::start(command).finish().success();
    let mut command = dir.command(out.join("usr/bin/cawl-ship"));
    command.arg("--version");
    let version = Running::start(command).finish().success().stdout;
    assert_eq!(version.trim(), concat!("cawl-ship ", env!("CARGO_PKG_VERSION")));
    let pages = fs::read_dir(out.join("usr/share/man/man1")).expect("pages");
    let pages: Vec<_> =
        pages.map(|page| page.expect("a page").file_name().to_string_lossy().into_owned()).collect();
    assert!(matches!(&pages[..], [page] if page.starts_with("cawl-ship.1")), "{pages:?}");
}
