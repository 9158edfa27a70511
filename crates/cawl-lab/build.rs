//! Builds the C programs that the experiments run.

#[path = "../cawl-measure/program_build.rs"]
mod program_build;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=../cawl-measure/program_build.rs");
    program_build::build("src/experiment/workload.c", "cawl-workload", "CAWL_WORKLOAD");
    program_build::build("src/experiment/locks.c", "cawl-locks", "CAWL_LOCKS");
}
