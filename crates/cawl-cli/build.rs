//! Builds the tracer in release mode for the target machine, in a target directory of its own, and passes its
//! path to the crate, which embeds the library. `cargo install` then gives one file that works from anywhere.

#[path = "../cawl-measure/program_build.rs"]
mod program_build;
mod tracer_build;

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-changed=src/start.c");
    cc::Build::new().file("src/start.c").opt_level(2).warnings(true).compile("cawl_start");
    program_build::build("src/rerun/player.c", "cawl-player", "CAWL_PLAYER");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let workspace = manifest.ancestors().nth(2).expect("this crate lies in crates/ of a workspace");
    for source in tracer_build::SOURCES {
        println!("cargo::rerun-if-changed={}", workspace.join(source).display());
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=tracer_build.rs");
    println!("cargo::rerun-if-changed=../cawl-measure/program_build.rs");
    let folder = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("tracer");
    let cargo = env::var_os("CARGO").expect("cargo sets it");
    let target = env::var("TARGET").expect("cargo sets it");
    let (mut build, library) = tracer_build::build(&cargo, workspace, &folder, &target);
    let status = build.status().expect("cargo can be run");
    assert!(
        status.success(),
        "the tracer did not build for {}; that needs the target (`rustup target add`), a C compiler and a linker for \
         it: {build:?}",
        tracer_build::machine(&target)
    );
    assert!(library.is_file(), "the build left no {}", library.display());
    println!("cargo::rustc-env=CAWL_TRACER={}", library.display());
}
