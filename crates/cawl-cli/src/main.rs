//! The command line: all of it is the library, which is compiled beside the daemon's.

fn main() -> std::process::ExitCode {
    cawl_cli::main()
}
