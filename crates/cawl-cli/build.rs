//! Builds the tracer for release, in a target directory of its own, and hands its path to the crate,
//! which embeds the bytes. `cargo install` then gives one file that works from anywhere.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src/start.c");
    cc::Build::new().file("src/start.c").opt_level(2).warnings(true).compile("cawl_start");
    build_program("src/calibrate/stream.c", "cawl-stream", "CAWL_STREAM");
    build_program("src/experiment/workload.c", "cawl-workload", "CAWL_WORKLOAD");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let crates = manifest.parent().expect("this crate lies in crates/").to_owned();
    for watched in ["cawl-preload/src", "cawl-preload/Cargo.toml", "cawl-preload/build.rs", "cawl-wire/src"] {
        println!("cargo::rerun-if-changed={}", crates.join(watched).display());
    }
    let target = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join("tracer");

    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets it"));
    cargo
        .args(["build", "--profile", "tracer", "--manifest-path"])
        .arg(crates.join("cawl-preload/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        // Wrappers and flags meant for the outer build (clippy, coverage, sanitizers) are not for a
        // library that goes into other people's programs.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_BUILD_TARGET");
    let status = cargo.status().expect("cargo can be run");
    assert!(status.success(), "the tracer did not build: {cargo:?}");

    let library = target.join("tracer/libcawl_preload.so");
    assert!(library.is_file(), "the build left no {}", library.display());
    println!("cargo::rustc-env=CAWL_TRACER={}", library.display());
}

/// Builds a C program that is embedded too.
fn build_program(source: &str, name: &str, variable: &str) {
    println!("cargo::rerun-if-changed={source}");
    let program = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join(name);
    let mut compiler = cc::Build::new().opt_level(2).get_compiler().to_command();
    compiler.args(["-O2", "-o"]).arg(&program).arg(source);
    let status = compiler.status().expect("a C compiler can be run");
    assert!(status.success(), "{source} did not build: {compiler:?}");
    println!("cargo::rustc-env={variable}={}", program.display());
}
