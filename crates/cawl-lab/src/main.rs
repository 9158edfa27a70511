//! The laboratory's command line: all of it is the library, whose parts the tests use too.

fn main() -> std::process::ExitCode {
    cawl_lab::main()
}
