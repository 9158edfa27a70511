use cawl_client::protocol::{RunProcess, RunSpec};
use cawl_core::{DirtyLimits, GroupBounds, GroupCache, Outcome, Report};
use cawl_wire::{Event, Op};

use super::*;

/// A daemon's engine with one session, outside any run.
fn engine() -> Engine {
    let profile = HostProfile::uncalibrated();
    let options = EngineOptions { host_models: Some(Vec::new()), ..EngineOptions::new(profile) };
    let mut engine = Engine::new(options).unwrap();
    engine.begin(Session { id: 1, pid: u32::MAX, ..Session::default() }, HOST_LANE);
    engine
}

fn writes(count: usize) -> Batch {
    Batch { events: vec![Event::new(Op::Write); count], ..Batch::default() }
}

fn vanished(dropped: u64) -> SessionEnd {
    SessionEnd { dropped, ..SessionEnd::new(1, cawl_host::now(), EndKind::Vanished) }
}

fn finished(engine: &mut Engine, run: u64) -> Report {
    engine.lanes.remove(&run).unwrap().finish(RunEnd::default(), &AtomicBool::new(false))
}

fn report(engine: &mut Engine) -> Report {
    finished(engine, HOST_LANE)
}

#[test]
fn what_a_running_program_lost_is_told_before_its_end() {
    let mut engine = engine();
    engine.events(1, writes(1), 5);
    assert_eq!(engine.drops(), 5);
    let report = report(&mut engine);
    assert_eq!((report.calls, report.drops, report.sessions[0].ended), (1, 5, EndKind::Running));
}

#[test]
fn what_is_left_out_in_a_hurry_is_told_and_sessions_end() {
    let mut engine = engine();
    engine.events(1, writes(5), 0);
    engine.end(vanished(2), None);
    let lane = engine.lanes.remove(&HOST_LANE).unwrap();
    let report = lane.finish(RunEnd::default(), &AtomicBool::new(true));
    assert_eq!((report.calls, report.drops, report.sessions[0].ended), (0, 2, EndKind::Vanished));
    assert!(report.notes[0].ends_with("5 are not in it"), "{:?}", report.notes);
}

#[test]
fn processes_that_go_on_are_told_only_at_a_program_s_end() {
    let mut engine = engine();
    let run = engine.begin_run(&RunSpec::default(), None, None).unwrap();
    for (id, pid) in [(2, std::process::id()), (3, 1 << 30)] {
        let program = "/bin/a".to_owned();
        engine.begin(Session { id, pid, program, ..Session::default() }, run);
    }
    assert_eq!(engine.processes_of(run).len(), 2);
    assert!(engine.processes_of(HOST_LANE).is_empty());
    let outcome = Outcome { pid: 1 << 30, code: Some(0), signal: None, wchar: None };
    let more = RunProcess { pid: 1, program: "b".to_owned() };
    let end = RunEnd { outcome: Some(outcome), notes: Vec::new(), running: vec![more] };
    let ended = engine.lanes.remove(&run).unwrap().finish(end, &AtomicBool::new(false));
    let expected = format!("b (pid 1), /bin/a (pid {})", std::process::id());
    let note = &ended.notes[0];
    assert!(note.starts_with("2 processes still ran") && note.ends_with(&expected), "{note}");
    assert!(report(&mut engine).notes.is_empty());
}

#[test]
fn losses_are_counted_once() {
    let mut engine = engine();
    engine.events(1, Batch::default(), 5);
    engine.end(vanished(7), None);
    assert_eq!(engine.drops(), 7);
    assert_eq!(report(&mut engine).drops, 7);
}

/// Ticks of every 25 ms, then none for a second: of that second nothing was read yet.
#[test]
fn nothing_is_released_of_a_time_in_which_nothing_was_read() {
    let (mut ticks, ms) = (Ticks::default(), |ms: u64| Time(ms * 1_000_000));
    let until = [1000, 1025, 1050, 1075, 1100, 2100, 2125, 2150, 2175].map(|at| ticks.tick(ms(at)));
    assert_eq!(until[2..], [900, 925, 950, 1075, 1100, 2000, 2025].map(ms));
}

#[test]
fn a_note_is_taken_once_by_each_lane() {
    let mut engine = engine();
    let run = engine.begin_run(&RunSpec::default(), None, None).unwrap();
    engine.note(HOST_LANE, "a");
    engine.note(run, "b");
    assert_eq!(report(&mut engine).notes, ["a", "b"]);
    assert_eq!(finished(&mut engine, run).notes, ["b"]);
}

#[test]
fn the_machine_is_looked_at_once_for_all_and_only_changes_are_told() {
    let mut engine = engine();
    let looks = Arc::clone(&engine.stale);
    let wanted = || is_there(looks.notified());
    assert!(!wanted());
    let run = engine.begin_run(&RunSpec::default(), None, None).unwrap();
    assert!(wanted() && !wanted());
    let file = |dev| FileFacts { dev, ino: 1, mode: 0o100_644, path: "/f".into(), ..FileFacts::default() };
    // Two files on an unknown device.
    engine.file(1, &file(u64::MAX));
    engine.file(1, &file(u64::MAX));
    assert!(wanted() && !wanted());
    let mut facts = engine.facts.clone();
    facts.available = Bytes(1);
    engine.look_at_host(facts.clone());
    let told = |engine: &Engine, run: u64| engine.lanes[&run].analysis.report().host.unwrap();
    assert_ne!(told(&engine, run).available, Bytes(1), "memory is always another");
    let new = cawl_core::Filesystem { dev: 5, mount: "/new".into(), ..Default::default() };
    facts.filesystems.push(new);
    engine.look_at_host(facts.clone());
    for lane in [HOST_LANE, run] {
        assert_eq!(told(&engine, lane), facts);
    }
    // Later runs know it, too, without a look.
    let later = engine.begin_run(&RunSpec::default(), None, None).unwrap();
    assert_eq!(told(&engine, later).filesystems, facts.filesystems);
    assert!(wanted());
    engine.file(1, &file(5));
    assert!(!wanted());
}

/// True if it is there now.
fn is_there(future: impl Future) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::pin!(future).poll(&mut context).is_ready()
}

#[test]
fn a_run_ends_when_neither_its_owner_nor_a_program_is_left() {
    let mut engine = engine();
    let gone = u32::MAX;
    let run = engine.begin_run(&RunSpec::default(), None, Some(gone)).unwrap();
    let kept = engine.begin_run(&RunSpec::default(), None, Some(std::process::id())).unwrap();
    engine.begin(Session { id: 2, pid: gone, ..Session::default() }, run);
    engine.end_orphans();
    assert!(engine.lanes.contains_key(&run), "a program still reports to it");
    engine.end(SessionEnd { id: 2, ..vanished(0) }, None);
    engine.end_orphans();
    assert!(engine.lanes.contains_key(&run), "its first words may be on their way");
    engine.end_orphans();
    assert!(!engine.lanes.contains_key(&run) && engine.lanes.contains_key(&kept));
}

#[tokio::test]
async fn more_calls_than_may_be_held_are_released_before_their_time() {
    let profile = HostProfile::uncalibrated();
    let options =
        EngineOptions { host_models: Some(vec!["naive".to_owned()]), ..EngineOptions::new(profile) };
    let engine = Engine::new(options).unwrap();
    let (sender, inputs) = mpsc::channel(16);
    let (asker, questions) = mpsc::channel::<Question>(1);
    let session = Session { id: 1, pid: u32::MAX, ..Session::default() };
    sender.send(Input::act(|engine| engine.begin(session, HOST_LANE))).await.unwrap();
    // None of them is due.
    let start = cawl_host::now().0 + 60_000_000_000;
    for calls in [MAX_HELD, 1000] {
        let mut batch = writes(calls);
        batch.events.iter_mut().for_each(|event| event.start = start);
        sender.send(Input::Events { session: 1, batch, dropped: 0 }).await.unwrap();
    }
    let work = engine.work(inputs, questions);
    let (reply, answer) = oneshot::channel();
    let ask = async {
        // It is asked when there is nothing else to do.
        while sender.capacity() < 16 {
            tokio::task::yield_now().await;
        }
        let look = move |engine: &mut Engine| {
            let lane = engine.lane().unwrap();
            let _ = reply.send((lane.merge.calls, lane.analysis.report().calls as usize));
        };
        drop(asker.send(Box::new(look)).await);
        let answer = answer.await.unwrap();
        drop(sender);
        answer
    };
    let ((held, taken), ()) = tokio::join!(ask, work);
    assert!(held <= MAX_HELD && held > MAX_HELD - PIECE, "{held}");
    assert_eq!(held + taken, MAX_HELD + 1000);
}

#[test]
fn what_a_group_allows_is_in_the_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut engine = engine();
    let limits = DirtyLimits { background: Bytes::mib(12), hard: Bytes::mib(25) };
    let rates = vec![(7, cawl_core::Rate::mb_per_second(1.0))];
    let cache = Some(GroupCache { room: Some(Bytes::mib(7)), ..GroupCache::default() });
    let group = GroupBounds { limits: Some(limits), rates, cache };
    let spec = RunSpec { group: group.clone(), ..RunSpec::default() };
    let run = engine.begin_run(&spec, Some(create_trace(&path).unwrap()), None).unwrap();
    finished(&mut engine, run);
    let mut records = cawl_host::trace::TraceReader::open(&path).unwrap().map(Result::unwrap);
    let profile = records.find_map(|record| match record {
        Record::Profile(profile) => Some(*profile),
        _ => None,
    });
    let mut wanted = engine.profile.clone();
    group.apply(&mut wanted);
    assert_eq!(profile.as_ref(), Some(&wanted));
    assert_eq!((wanted.kernel.cgroup, wanted.kernel.group), (Some(limits), cache));
    // The spec of a client that knows of no groups, and one that does, as they are sent.
    let spec: RunSpec = serde_json::from_str(r#"{"models":[],"profile":null,"trace":null}"#).unwrap();
    assert_eq!(spec, RunSpec::default());
}

#[test]
fn run_delays_come_before_the_calls_of_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut engine = engine();
    let run = engine.begin_run(&RunSpec::default(), Some(create_trace(&path).unwrap()), None).unwrap();
    engine.begin(Session { id: 2, pid: 7, ..Session::default() }, run);
    let call = |start| Event { start, pid: 7, tid: 7, ..Event::new(Op::Write) };
    engine.events(2, Batch { events: vec![call(10), call(30)], ..Batch::default() }, 0);
    let delay = |from, to| RunDelay { pid: 7, tid: 7, from: Time(from), to: Time(to), ..RunDelay::default() };
    engine.run_delays(2, &[delay(0, 20), delay(20, 40)]);
    finished(&mut engine, run);
    let order: Vec<_> = cawl_host::trace::TraceReader::open(&path)
        .unwrap()
        .filter_map(|record| match record.unwrap() {
            Record::Event(event) => Some(event.start),
            Record::RunDelay(delay) => Some(delay.to.0),
            _ => None,
        })
        .collect();
    assert_eq!(order, [20, 40, 10, 30]);
}

#[tokio::test]
async fn an_engine_that_panics_is_noticed_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let listener = crate::socket::listen(&dir.path().join("s.sock")).unwrap();
    let options = EngineOptions::new(HostProfile::uncalibrated());
    let daemon = crate::Daemon::start(listener, options).unwrap();
    let asker = daemon.asker();
    assert!(asker.is_alive().await);
    let asked = asker.look_up(|_| -> () { panic!("on purpose") }).await;
    assert_eq!(asked, Err(crate::AskError::Ending));
    assert!(daemon.stop().await.is_err());
}
