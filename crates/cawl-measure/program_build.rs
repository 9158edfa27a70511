//! How the build scripts of this crate, of cawl-cli and of cawl-lab build a C program that the crate embeds.

use std::env;
use std::path::Path;

/// Builds `source` and passes the program's path to the crate in the variable `variable`.
pub fn build(source: &str, name: &str, variable: &str) {
    println!("cargo::rerun-if-changed={source}");
    let program = Path::new(&env::var_os("OUT_DIR").expect("cargo sets it")).join(name);
    let mut compiler = cc::Build::new().opt_level(2).get_compiler().to_command();
    compiler.args(["-O2", "-pthread", "-o"]).arg(&program).arg(source);
    let status = compiler.status().expect("a C compiler can be run");
    assert!(status.success(), "{source} did not build: {compiler:?}");
    println!("cargo::rustc-env={variable}={}", program.display());
}
