//! Builds the program that measures streams.

mod program_build;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=program_build.rs");
    program_build::build("src/calibrate/stream.c", "cawl-stream", "CAWL_STREAM");
}
