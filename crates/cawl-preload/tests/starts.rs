//! Programs that are hard to look at before their start (apps/starts.c): no one that cannot load the tracer
//! is told of it, and those that can are traced, as far as they can be looked at.

use cawl_kit::app;
use cawl_kit::witness::{Session, compare, dir};
use cawl_wire::{Obstacle, Op};
use std::fs;
use std::path::Path;
use std::process::Command;

/// In which ways, and whether it can be looked at: in this process,
const WAYS: [(&str, bool); 6] = [
    ("held", true),
    ("path", true),
    ("execveat", true),
    ("path and held", true),
    ("memfd", true),
    ("executable", false),
];

/// and by posix_spawn with file actions.
const ACTIONS: [(&str, bool); 9] = [
    ("chdir", true),
    ("chdirs", true),
    ("fchdir", true),
    ("name", true),
    ("other", true),
    ("untouched", true),
    ("fchdir by action", false),
    ("open", false),
    ("dup2", false),
];

/// Starts a program in one of the ways.
fn started(program: &Path, way: &str) -> Vec<Session> {
    compare(&app("starts"), &[way], |place| {
        for folder in ["sub", "decoy", "sub/decoy"] {
            fs::create_dir(place.join(folder)).expect("a new folder");
        }
        for (from, to) in [(program, "sub/prog"), (program, "sub/decoy/prog"), (&app("says"), "decoy/prog")] {
            fs::copy(from, place.join(to)).expect("a copy");
        }
    })
}

/// The reason that the program's start was told with.
fn obstacle(sessions: &[Session]) -> Option<Obstacle> {
    let start = |event: &&cawl_wire::Event| matches!(event.op, Op::Exec | Op::Spawn);
    let start = sessions[0].events.iter().find(start).expect("a start");
    Obstacle::from_code(start.aux as u8)
}

fn programs_start(ways: &[(&str, bool)]) {
    for &(way, is_seen) in ways {
        let sessions = started(&app("says"), way);
        assert_eq!(sessions.len(), 1 + usize::from(is_seen), "{way}");
        assert_eq!(obstacle(&sessions), (!is_seen).then_some(Obstacle::Unseen), "{way}");
    }
    let place = dir();
    let musl = place.path().join("says");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/apps/says.c");
    match Command::new("musl-gcc").arg(source).arg("-o").arg(&musl).status() {
        Ok(status) if status.success() => {}
        _ => return cawl_kit::skipped("no musl-gcc"),
    }
    for &(way, is_seen) in ways {
        let sessions = started(&musl, way);
        let wanted = if is_seen { Obstacle::Foreign } else { Obstacle::Unseen };
        assert_eq!((sessions.len(), obstacle(&sessions)), (1, Some(wanted)), "{way}");
    }
}

#[test]
fn programs_that_are_open_or_cannot_be_opened_start() {
    programs_start(&WAYS);
}

#[test]
fn programs_that_file_actions_lead_to_start() {
    programs_start(&ACTIONS);
}

/// Landlock lets everything be asked about the library, and refuses to open it.
#[test]
fn what_landlock_hides_is_not_preloaded() {
    let sh = cawl_kit::find("sh").expect("sh");
    let sh = sh.to_str().expect("text");
    let probe = |way| cawl_kit::program(app("landlock")).args([way, sh]).current_dir(dir().path()).status();
    if !probe("probe").expect("run").success() {
        return cawl_kit::skipped("no Landlock here");
    }
    // Without shared memory or the processor's counter, tracing ends when new privileges are given up.
    let goes_on = ["CAWL_TRANSPORT", "CAWL_CLOCK"].iter().all(|name| std::env::var_os(name).is_none());
    if !goes_on {
        println!("SKIPPED: exec, fork and system, by socket or the kernel's clock (docs/reference/HOOKS.md)");
    }
    for way in if goes_on { &["exec", "fork", "system", "privileged"][..] } else { &["privileged"] } {
        if probe(*way).expect("run").code() == Some(77) {
            cawl_kit::skipped("Landlock needs a privilege here");
            continue;
        }
        let sessions = compare(&app("landlock"), &[*way, sh], |_| {});
        let of_others = sessions.iter().filter(|session| !session.program.ends_with("landlock"));
        assert_eq!(of_others.count(), 0, "{way}: {sessions:#?}");
        let told = sessions.iter().flat_map(|session| &session.events);
        let mut told = told.filter(|event| matches!(event.op, Op::Exec | Op::Spawn));
        assert!(told.any(|event| event.aux == Obstacle::Hidden as u32), "{way}");
    }
}
