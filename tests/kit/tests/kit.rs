//! The kit itself.

use cawl_kit::{Dir, Running, app, compiled, eventually};

#[test]
fn an_app_is_compiled_once() {
    let first = app("print");
    let made = || std::fs::metadata(&first).and_then(|meta| meta.created()).expect("it is there");
    let before = made();
    assert_eq!(app("print"), first);
    assert_eq!(made(), before);
    assert_ne!(compiled("print", &["-O0"]).expect("it compiles"), first);
    assert!(compiled("print", &["-no-such-flag"]).expect_err("no such flag").contains("no-such-flag"));
}

#[test]
fn a_process_that_a_test_leaves_is_killed() {
    let dir = Dir::new();
    let mut sleep = dir.command("sleep");
    sleep.arg("1000");
    let running = Running::start(sleep);
    let pid = running.pid();
    drop(running);
    eventually("the end of the process", || nix::sys::signal::kill(pid, None).is_err());
}
