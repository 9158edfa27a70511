//! How build.rs builds the tracer, and for which target.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The tracer's sources, relative to the workspace.
#[cfg_attr(test, expect(dead_code, reason = "only build.rs watches them"))]
pub const SOURCES: [&str; 7] = [
    "Cargo.toml",
    "Cargo.lock",
    "crates/cawl-preload/Cargo.toml",
    "crates/cawl-preload/build.rs",
    "crates/cawl-preload/src",
    "crates/cawl-wire/Cargo.toml",
    "crates/cawl-wire/src",
];

/// The tracer's target for a `cawl-cli` built for `target`: the same machine with glibc, since the tracer can
/// only be preloaded into glibc programs.
pub fn machine(target: &str) -> String {
    target.replace("-musl", "-gnu")
}

/// The command that builds the tracer into a target directory, and the path of the library it leaves.
pub fn build(cargo: &OsStr, workspace: &Path, folder: &Path, target: &str) -> (Command, PathBuf) {
    let machine = machine(target);
    let mut command = Command::new(cargo);
    command.args(["build", "--profile", "tracer", "--target", &machine, "--manifest-path"]);
    command.arg(workspace.join("crates/cawl-preload/Cargo.toml")).arg("--target-dir").arg(folder);
    // Wrappers and flags of the outer build (clippy, coverage, sanitizers) do not apply to a library that is
    // loaded into other programs.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS"] {
        command.env_remove(name);
    }
    (command, folder.join(machine).join("tracer/libcawl_preload.so"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracer_is_for_the_machine_that_is_built_for() {
        for (target, machine) in [
            ("aarch64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"),
            ("x86_64-unknown-linux-musl", "x86_64-unknown-linux-gnu"),
            ("armv7-unknown-linux-musleabihf", "armv7-unknown-linux-gnueabihf"),
        ] {
            let (command, library) = build("cargo".as_ref(), Path::new("/w"), Path::new("/t"), target);
            let arguments: Vec<&str> = command.get_args().filter_map(OsStr::to_str).collect();
            assert!(arguments.windows(2).any(|pair| pair == ["--target", machine]), "{arguments:?}");
            assert_eq!(library, Path::new("/t").join(machine).join("tracer/libcawl_preload.so"));
            assert!(
                command.get_envs().all(|(_, value)| value.is_none()),
                "nothing but flags is kept from it"
            );
        }
    }
}
