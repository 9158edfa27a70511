//! Every hook with a pointer argument is given what is no pointer: null, 8, memory that is not there or ends
//! too early, and counts that no memory can have. What becomes of each call is what becomes of it without the
//! tracer: the same result and errno, or the same end. So it is with everything tried that `run --try` knows.

use crate::hooks::{HOOKS, UNCALLED};
use cawl_kit::app_with;
use cawl_kit::witness::{Answer, Daemon, dir, tree};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Hooks that no program can call.
fn called() -> Vec<&'static str> {
    let nowhere = |name: &&str| UNCALLED.iter().any(|left| left.names.contains(name)) && *name != "io_submit";
    HOOKS.iter().flat_map(|group| group.names).copied().filter(|name| !nowhere(name)).collect()
}

/// The program, with a library that has io_submit.
fn hostile() -> PathBuf {
    let library = app_with("hostile", &["-DLIBRARY", "-shared", "-fPIC"]);
    let library = library.to_str().expect("a readable path");
    app_with("hostile", &["-O0", "-Wl,--no-as-needed", library, &format!("-Wl,-rpath,{library}")])
}

#[track_caller]
fn lines(out: &Output) -> Vec<String> {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn hostile_arguments_are_the_kernels_or_the_c_librarys_to_judge() {
    let program = hostile();
    let names = called();
    let run = |mut command: Command| {
        let place = dir();
        lines(&command.args(&names).env("LC_ALL", "C").current_dir(place.path()).output().expect("run"))
    };
    let traced = |variables: &[(&str, &str)]| {
        let place = dir();
        let daemon = Daemon::start(place.path(), Answer::Welcome);
        let mut command = daemon.command(&program);
        command.envs(variables.iter().copied());
        (run(command), daemon.finish().len())
    };
    let tries = "buffer=65536,pace=4096,dontneed,fsync=none,preallocate";
    let ways = [
        &[][..],
        &[("CAWL_READS", "all"), ("CAWL_TRANSPORT", "socket")],
        &[("CAWL_TRY", tries), ("CAWL_RUN", "1")],
    ];
    // All at a time: one after another they are what all other tests have to wait for.
    let (bare, all) = std::thread::scope(|scope| {
        let traced = ways.map(|variables| scope.spawn(move || traced(variables)));
        (run(cawl_kit::program(&program)), traced.map(|one| one.join().expect("a run")))
    });
    println!("{} calls", bare.len());
    for (variables, (traced, sessions)) in ways.iter().zip(all) {
        assert!(sessions > bare.len() / 2, "{sessions} sessions");
        let wrong: Vec<_> = bare.iter().zip(&traced).filter(|(bare, traced)| bare != traced).collect();
        assert!(wrong.is_empty(), "without and with the tracer, {variables:?}: {wrong:#?}");
        assert_eq!(bare.len(), traced.len());
    }
}

/// Names of hooks whose declaration has a pointer among the arguments.
fn with_pointers() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/hooks");
    let pointers = ["*const", "*mut", "Strings", "Arguments", "Stream"];
    let mut found = BTreeSet::new();
    for (_, bytes) in tree(&root) {
        let text = String::from_utf8(bytes).expect("text");
        let Some((_, hooks)) = text.split_once("\nhooks! {") else { continue };
        let (hooks, _) = hooks.split_once("\n}\n").unwrap_or((hooks, ""));
        for declared in hooks.split("\n    fn ").skip(1) {
            let (names, rest) = declared.split_once('(').expect("arguments");
            let (arguments, _) = rest.split_once(')').expect("an end of the arguments");
            if pointers.iter().any(|kind| arguments.contains(kind)) {
                found.extend(names.split(',').map(|name| name.trim().to_owned()));
            }
        }
    }
    found
}

/// The program knows a hostile call of each hook, or says that there is no pointer to it; it is believed only
/// where the declaration says so, too.
#[test]
fn what_has_no_hostile_call_has_no_pointers() {
    let out = cawl_kit::program(hostile()).arg("--plain").output().expect("run");
    let plain = lines(&out).join(" ");
    let with_pointers = with_pointers();
    assert!(with_pointers.len() > 150, "{}", with_pointers.len());
    for name in plain.split_whitespace() {
        assert!(!with_pointers.contains(name), "{name} takes a pointer");
    }
    for name in &with_pointers {
        assert!(HOOKS.iter().any(|group| group.names.contains(&name.as_str())), "{name} is not in the table");
    }
    let place = dir();
    let out = cawl_kit::program(hostile()).arg("getpid").current_dir(place.path()).output().expect("run");
    assert_eq!(out.status.code(), Some(99), "an unknown name fails");
}
