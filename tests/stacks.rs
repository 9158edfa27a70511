//! The functions that calls came from (`run --stacks`): programs with a call in a function of a known name.

use std::collections::BTreeMap;
use std::path::Path;

use cawl_core::{Frame, Record, Stack};
use cawl_host::trace::TraceReader;
use cawl_kit::{Dir, Finished, Running};
use cawl_wire::{Event, Op};

/// Every call.
const ALL: [&str; 3] = ["--stacks=0ms", "--stacks-one-in", "1"];

/// The calls of a trace, and the stacks that they have.
struct Traced {
    events: Vec<Event>,
    stacks: BTreeMap<u32, Stack>,
    notes: Vec<String>,
}

fn read(trace: &Path) -> Traced {
    let mut reader = TraceReader::open(trace).expect("a trace");
    let mut traced = Traced { events: Vec::new(), stacks: BTreeMap::new(), notes: Vec::new() };
    while let Some(record) = reader.next_record().expect("whole records") {
        match record {
            Record::Event(event) => traced.events.push(event),
            Record::Stack(stack) => assert!(traced.stacks.insert(stack.id, stack).is_none(), "told twice"),
            Record::Note(note) => traced.notes.push(note),
            _ => {}
        }
    }
    traced
}

impl Traced {
    /// The frames of each call of this kind.
    #[track_caller]
    fn of(&self, op: Op) -> Vec<&Stack> {
        let of = |event: &&Event| event.op == op;
        let found: Vec<&Stack> = self
            .events
            .iter()
            .filter(of)
            .map(|event| self.stacks.get(&event.stack).expect("a stack"))
            .collect();
        assert!(!found.is_empty(), "no {op:?}");
        found
    }

    /// The functions of the only call of this kind, innermost first.
    #[track_caller]
    fn functions(&self, op: Op) -> Vec<String> {
        let found = self.of(op);
        assert_eq!(found.len(), 1);
        functions(found[0])
    }
}

fn functions(stack: &Stack) -> Vec<String> {
    stack.frames.iter().map(|frame| frame.function.clone().unwrap_or_default()).collect()
}

#[track_caller]
fn run(dir: &Dir, options: &[&str], program: &[&str]) -> (Finished, Traced) {
    let finished = Running::start(dir.run_command(options, program)).finish();
    let traced = read(&dir.trace());
    (finished, traced)
}

#[track_caller]
fn run_app(app: &Path, mode: &str) -> (Dir, Traced) {
    let dir = Dir::new();
    let app = dir.copy(app);
    let (finished, traced) = run(&dir, &ALL, &[app.to_str().unwrap(), mode]);
    finished.success();
    (dir, traced)
}

#[track_caller]
fn starts_with(found: &[String], wanted: &[&str]) {
    assert!(
        found.iter().zip(wanted).filter(|(one, other)| one == other).count() == wanted.len(),
        "{found:?}"
    );
}

#[test]
fn a_function_and_its_line_with_and_without_frame_pointers() {
    for flags in [["-O2", "-fomit-frame-pointer"], ["-O1", "-fno-omit-frame-pointer"], ["-O2", "-static-pie"]]
    {
        if flags[1] == "-static-pie" {
            continue;
        }
        let (_dir, traced) = run_app(&cawl_kit::app_with("stacks", &flags), "plain");
        let stack = traced.of(Op::Fsync)[0];
        starts_with(&functions(stack), &["save_all", "commit", "main"]);
        let Frame { file, line, module, at, inlined, .. } = &stack.frames[0];
        assert!(file.as_deref().is_some_and(|file| file.ends_with("stacks.c")), "{stack:?}");
        assert_eq!((*line, *at, *inlined), (Some(18), 0, false));
        assert!(module.as_deref().is_some_and(|module| module.ends_with("/stacks")), "{stack:?}");
        assert!(!stack.truncated, "{stack:?}");
        starts_with(&traced.functions(Op::Open), &["main"]);
    }
}
