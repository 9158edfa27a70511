use super::sessions::SESSIONS;
use super::*;
use cawl_wire::{Op, Rank};

use crate::cause::CostParts;
use crate::record::{EndKind, Session, SessionEnd, Wchar};

fn collector() -> Collector {
    Collector::new(&HostProfile::uncalibrated(), Vec::new(), false)
}

fn begin(collector: &mut Collector, id: u32, pid: u32, ppid: u32, at: u64) {
    begin_after(collector, (id, pid, ppid), at, 0);
}

/// Begins an image of a process that has written so much.
fn begin_after(collector: &mut Collector, (id, pid, ppid): (u32, u32, u32), at: u64, written: u64) {
    let wchar = Wchar { process: Some(written), thread: Some(written) };
    let started = Time(at);
    collector.note(&Record::Session(Session { id, pid, ppid, started, wchar, ..Session::default() }));
}

fn end(collector: &mut Collector, id: u32, at: u64, how: EndKind, thread: u64, process: u64) {
    let wchar = Wchar { process: Some(process), thread: Some(thread) };
    collector.note(&Record::End(SessionEnd { wchar, ..SessionEnd::new(id, Time(at), how) }));
}

fn write(collector: &mut Collector, pid: u32, tid: u32, at: u64, bytes: i64) {
    let event = Event { pid, tid, start: at, returned: bytes, ..Event::new(Op::Write) };
    collector.event(&event, Class::Elsewhere, &[], None);
}

/// Bytes seen and bytes counted, for each session in order of arrival.
fn figures(collector: &Collector) -> Vec<(u64, Option<u64>)> {
    collector.sessions.reports().iter().map(|session| (session.seen_bytes, session.wchar_bytes)).collect()
}

/// Takes a call that has a cost, with its time by cause and that undisturbed.
fn cost(collector: &mut Collector, event: &Event, times: (Cause, u64), own: (Cause, f64)) {
    let times = CauseTimes::from([times, (Cause::Preempted, event.duration - times.1)]);
    let own = CostParts::from([(own.0, Nanos::new(own.1))]);
    let causes = Causes { times: &times, own: &own, main: times.main() };
    collector.event(event, Class::Cost, &[Some(Prediction::default())], Some(causes));
}

fn report(collector: &Collector) -> Report {
    collector.report(Mode::Lockstep, false, &[], &[])
}

#[test]
fn a_call_belongs_to_the_image_that_made_it_whichever_connection_was_served_first() {
    let mut collector = collector();
    begin_after(&mut collector, (2, 7, 1), 200, 10);
    begin(&mut collector, 1, 7, 1, 100);
    write(&mut collector, 7, 7, 150, 10);
    write(&mut collector, 7, 7, 250, 20);
    end(&mut collector, 1, 200, EndKind::Exec, 10, 10);
    end(&mut collector, 2, 300, EndKind::Exit, 30, 30);
    assert_eq!(figures(&collector), [(20, Some(20)), (10, Some(10))]);
}

#[test]
fn one_thread_has_a_count_of_its_own() {
    let mut collector = collector();
    begin(&mut collector, 1, 7, 1, 100);
    write(&mut collector, 7, 7, 150, 10);
    end(&mut collector, 1, 300, EndKind::Exit, 10, 5000);
    assert_eq!(figures(&collector), [(10, Some(10))]);
}

/// A process whose second thread wrote 10 bytes, with a child that wrote 1000.
fn threaded(child_ends: u64, how: EndKind, counted: u64) -> (u64, Option<u64>) {
    let mut collector = collector();
    begin(&mut collector, 1, 7, 1, 100);
    begin(&mut collector, 2, 8, 7, 120);
    write(&mut collector, 7, 9, 150, 10);
    end(&mut collector, 2, child_ends, how, 1000, 1000);
    end(&mut collector, 1, 300, EndKind::Exit, 0, counted);
    figures(&collector)[0]
}

#[test]
fn what_a_child_wrote_is_not_its_parents() {
    assert_eq!(threaded(200, EndKind::Exit, 1010), (10, Some(10)));
    // A killed child may be noticed late.
    assert_eq!(threaded(400, EndKind::Vanished, 1010), (10, Some(10)));
    // What is missing stays missing.
    assert_eq!(threaded(200, EndKind::Exit, 1050), (10, Some(50)));
}

#[test]
fn a_child_that_was_not_waited_for_is_not_in_its_parents_count() {
    assert_eq!(threaded(400, EndKind::Exit, 10), (10, Some(10)));
    assert_eq!(threaded(400, EndKind::Exit, 2000), (10, Some(2000)));
    assert_eq!(threaded(200, EndKind::Exit, 10), (10, Some(10)));
    assert_eq!(threaded(200, EndKind::Running, 2000), (10, Some(2000)));
}

/// Of three children of a process with two threads one was not waited for: taking that one off first would
/// leave no room for the others.
#[test]
fn of_several_children_those_that_fit_are_taken_off() {
    for unwaited in [10, 25, 5000] {
        let mut collector = collector();
        begin(&mut collector, 1, 7, 1, 100);
        for (id, written) in [(2, unwaited), (3, 20), (4, 40)] {
            begin(&mut collector, id, id, 7, 110 + u64::from(id));
            end(&mut collector, id, 120 + u64::from(id), EndKind::Exit, written, written);
        }
        write(&mut collector, 7, 9, 150, 10);
        end(&mut collector, 1, 300, EndKind::Exit, 0, 10 + 20 + 40);
        assert_eq!(figures(&collector)[0], (10, Some(10)), "{unwaited}");
    }
}

/// A child that changed its user, and was reaped before the daemon could read its counters.
#[test]
fn what_was_seen_of_a_child_that_nobody_counted_is_not_its_parents() {
    let mut collector = collector();
    begin(&mut collector, 1, 7, 1, 100);
    begin(&mut collector, 2, 8, 7, 120);
    write(&mut collector, 8, 8, 130, 1000);
    write(&mut collector, 7, 9, 150, 10);
    collector.note(&Record::End(SessionEnd::new(2, Time(200), EndKind::Exit)));
    end(&mut collector, 1, 300, EndKind::Exit, 0, 1010);
    assert_eq!(figures(&collector), [(10, Some(10)), (1000, None)]);
    // Who started the program knows what all wrote: 990 bytes more.
    collector.note(&Record::Outcome(Outcome { pid: 7, code: Some(0), signal: None, wchar: Some(2000) }));
    let report = report(&collector);
    assert_eq!((report.untraced_bytes, report.coverage), (990, Some(1010.0 / 2000.0)));
}

/// The C library's own threads make these writes, which the count of the first thread does not have.
#[test]
fn writes_of_posix_aio_are_counted_for_the_process() {
    for (by, counted) in [(1, 90 + 10), (2, 90)] {
        let mut collector = collector();
        begin(&mut collector, 1, 7, 1, 100);
        write(&mut collector, 7, 7, 150, 90);
        let submitted =
            Event { pid: 7, tid: 7, start: 160, returned: 10, aux: by, ..Event::new(Op::AioWrite) };
        collector.event(&submitted, Class::Elsewhere, &[], None);
        end(&mut collector, 1, 300, EndKind::Exit, 90, 100);
        assert_eq!(figures(&collector), [(counted, Some(counted))], "{by}");
    }
}

/// A sandbox whose first process does not wait for the second, which waits for an untraced third.
#[test]
fn bytes_of_untraced_children_count_also_where_the_program_does_not_wait_for_their_parent() {
    let mut collector = collector();
    begin(&mut collector, 1, 7, 1, 100);
    begin(&mut collector, 2, 8, 7, 120);
    begin(&mut collector, 3, 9, 8, 130);
    write(&mut collector, 7, 7, 150, 10);
    end(&mut collector, 3, 160, EndKind::Exec, 5, 5);
    end(&mut collector, 1, 300, EndKind::Exit, 10, 10);
    end(&mut collector, 2, 310, EndKind::Exit, 0, 5 + 990);
    collector.note(&Record::Outcome(Outcome { pid: 7, code: Some(0), signal: None, wchar: Some(10) }));
    let report = report(&collector);
    assert_eq!((report.untraced_bytes, report.coverage), (990, Some(10.0 / 1005.0)));
}

/// A user's processes, whose counters the daemon may not read, go on as an untraced program.
#[test]
fn an_untraced_program_that_nobody_counted_makes_the_coverage_unknown() {
    let known = |parent_counts: bool, outcome: Option<u64>| {
        let mut collector = collector();
        if parent_counts {
            begin(&mut collector, 1, 7, 1, 100);
            end(&mut collector, 1, 300, EndKind::Exit, 10, 40);
        }
        begin(&mut collector, 2, 8, 7, 120);
        write(&mut collector, 8, 8, 130, 10);
        end(&mut collector, 2, 140, EndKind::Exec, 10, 10);
        collector.note(&Record::Outcome(Outcome { pid: 7, code: Some(0), signal: None, wchar: outcome }));
        let report = report(&collector);
        (report.uncounted_processes, report.coverage)
    };
    assert_eq!(known(false, None), (1, None));
    assert_eq!(known(true, None), (0, Some(10.0 / 40.0)));
    assert_eq!(known(false, Some(40)), (0, Some(10.0 / 40.0)));
}

/// A process that may not read its own counters, whose daemon is late, and whose next image has written.
#[test]
fn counters_read_after_an_exec_are_not_those_of_the_image_before_it() {
    for late in [false, true] {
        let mut collector = collector();
        begin(&mut collector, 1, 7, 1, 100);
        begin(&mut collector, 2, 8, 7, 120);
        let exec = |collector: &mut _| end(collector, 2, 130, EndKind::Exec, 0, 50);
        if !late {
            exec(&mut collector);
        }
        begin(&mut collector, 3, 8, 7, 131);
        write(&mut collector, 8, 8, 150, 50);
        if late {
            exec(&mut collector);
        }
        end(&mut collector, 3, 160, EndKind::Exit, 50, 50);
        end(&mut collector, 1, 170, EndKind::Exit, 0, 50);
        let report = report(&collector);
        assert_eq!((report.untraced_bytes, report.coverage), (0, Some(1.0)), "late: {late}");
    }
}

#[test]
fn with_io_uring_nobody_knows_what_was_written() {
    let mut collector = collector();
    begin(&mut collector, 1, 7, 1, 100);
    write(&mut collector, 7, 7, 150, 10);
    end(&mut collector, 1, 300, EndKind::Exit, 10, 10);
    assert_eq!(report(&collector).coverage, Some(1.0));
    collector.note(&Record::Note(format!("prog (pid 7) {}", crate::record::USES_IO_URING)));
    let with = report(&collector);
    assert_eq!((with.coverage, with.io_uring), (None, true));
    let mut collector = self::collector();
    begin(&mut collector, 1, 7, 1, 100);
    write(&mut collector, 7, 7, 150, 10);
    end(&mut collector, 1, 300, EndKind::Exit, 10, 10);
    collector.note(&Record::Note(format!("3 {}", crate::record::LOST_REQUESTS)));
    assert_eq!((report(&collector).coverage, report(&collector).io_uring), (None, false));
}

#[test]
fn sessions_of_long_ago_become_sums_and_none_of_their_bytes_is_lost() {
    let mut collector = collector();
    // A parent with two threads, whose count holds what its children wrote.
    begin(&mut collector, 0, 1, 0, 1);
    write(&mut collector, 1, 2, 2, 7);
    let children = 5 * SESSIONS as u32;
    for id in 1..=children {
        let at = u64::from(id) * 10;
        begin(&mut collector, id, 100 + id, 1, at);
        write(&mut collector, 100 + id, 100 + id, at + 1, 3);
        end(&mut collector, id, at + 2, EndKind::Exit, 4, 4);
        assert!(collector.sessions.list.len() <= 2 * SESSIONS + 1);
    }
    let bytes = u64::from(children);
    end(&mut collector, 0, u64::MAX - 1, EndKind::Exit, 0, 7 + 4 * bytes);
    let report = report(&collector);
    assert_eq!(report.sessions_omitted.images + report.sessions.len() as u64, bytes + 1);
    assert_eq!((report.sessions[0].seen_bytes, report.sessions[0].wchar_bytes), (7, Some(7)));
    let (seen, counted) = (7 + 3 * bytes, 7 + 4 * bytes);
    assert_eq!(report.coverage, Some(seen as f64 / counted as f64));
}

#[test]
fn a_pid_used_again_is_a_session_of_its_own_after_the_first_became_a_sum() {
    let mut collector = collector();
    for id in 0..2 * SESSIONS as u32 {
        let at = u64::from(id) * 10;
        begin(&mut collector, id, 100 + id, 1, at);
        end(&mut collector, id, at + 2, EndKind::Exit, 0, 0);
    }
    assert_eq!(collector.sessions.folded.images, SESSIONS as u64);
    begin(&mut collector, u32::MAX, 100, 1, 1_000_000_000);
    write(&mut collector, 100, 100, 1_000_000_001, 9);
    assert_eq!(figures(&collector).last(), Some(&(9, None)));
}

#[test]
fn the_rank_whose_calls_took_longest_is_a_straggler() {
    let mut collector = collector();
    for number in 0..8 {
        let (id, pid) = (number + 1, 100 + number);
        let rank = Rank::of_variable(format!("PMI_RANK={number}").as_bytes());
        collector.note(&Record::Session(Session { id, pid, rank, ..Session::default() }));
        for at in 0..10 {
            let duration = if number == 5 { 3000 } else { 1000 + at };
            let event =
                Event { pid, tid: pid, start: at * 10_000, duration, returned: 5, ..Event::new(Op::Write) };
            collector.event(&event, Class::Elsewhere, &[], None);
        }
    }
    let explain = report(&collector).explain.expect("causes");
    assert_eq!((explain.rank_variable.as_deref(), explain.ranks.len()), (Some("PMI_RANK"), 8));
    assert_eq!(explain.stragglers, [5]);
}

#[test]
fn the_command_is_the_first_program_with_its_arguments() {
    let commands = |programs: &[&str]| {
        let mut collector = collector();
        for words in programs {
            let mut words = words.split(' ').map(str::to_owned);
            let program = words.next().unwrap_or_default();
            let session = Session { program, arguments: words.collect(), ..Session::default() };
            collector.note(&Record::Session(session));
        }
        collector.command
    };
    assert_eq!(commands(&["sh -c true", "dd bs=1"]).as_deref(), Some("sh -c true"));
    assert_eq!(commands(&["ls", "dd bs=1"]).as_deref(), Some("ls"));
    // Imported tables do not tell programs.
    assert_eq!(commands(&[""]), None);
}

#[test]
fn notes_have_an_end() {
    let mut collector = collector();
    for at in 0..NOTES + 3 {
        collector.note(&Record::Note(format!("note {at}")));
        // Another process makes a note that there is already: it does not count.
        collector.note(&Record::Note("note 0".to_owned()));
    }
    let notes = report(&collector).notes;
    assert_eq!((notes.len(), notes.last().map(String::as_str)), (NOTES + 1, Some("and 3 more notes")));
}

#[test]
fn calls_on_files_too_many_to_tell_apart_are_counted() {
    let mut collector = collector();
    for ino in 0..FILES as u64 + 2 {
        let event = Event { ino, returned: 5, kind: FileKind::Regular, ..Event::new(Op::Write) };
        for _ in 0..3 {
            collector.event(&event, Class::Cost, &[], None);
        }
    }
    let report = report(&collector);
    assert_eq!((report.files.len(), report.files_omitted), (FILES, Tally { calls: 6, bytes: 30 }));
}

#[test]
fn files_and_the_whole_count_time_undisturbed_by_cause() {
    let mut collector = collector();
    let event =
        Event { ino: 1, returned: 5, duration: 100, kind: FileKind::Regular, ..Event::new(Op::Fsync) };
    // A flush that took less than it should does not make up for the time without a processor.
    cost(&mut collector, &event, (Cause::DeviceFlush, 60), (Cause::DeviceFlush, 300.0));
    let report = report(&collector);
    let explain = report.explain.expect("causes");
    assert_eq!(explain.lost_s, 40e-9);
    assert_eq!(report.files[0].ops[0].undisturbed_s, explain.best.undisturbed_s);
}

#[test]
fn writes_to_dev_null_have_a_class_unless_they_were_added_up() {
    let mut collector = collector();
    collector.classes = Classes::new(&[Nanos::new(50.0)]);
    let event = Event { returned: 5, duration: 100, ..Event::new(Op::Write) };
    let (times, own) = (CauseTimes::from([(Cause::Discard, 100)]), CostParts::default());
    let causes = Causes { times: &times, own: &own, main: Cause::Discard };
    collector.event(&event, Class::Elsewhere, &[], Some(causes));
    let (bytes, duration, first, last, end) = (50, 1000, 1, 2, 3);
    collector.coalesced(&CoalescedCalls { like: event, calls: 10, bytes, duration, first, last, end }, true);
    let report = report(&collector);
    let op = &report.files[0].ops[0];
    assert_eq!((op.op.as_str(), op.calls, op.bytes, op.observed_s), ("write", 11, 55, 1.1e-6));
    assert_eq!((op.causes.get("discard"), op.undisturbed_s), (Some(&1.1e-6), 1.1e-6));
    let explain = report.explain.expect("causes");
    let classes: Vec<u64> = explain.classes.iter().map(|class| class.calls).collect();
    assert_eq!((classes, explain.unclassed_calls, explain.calls), (vec![0, 1], 10, 11));
}

/// As of a server that has changed its user, and was reaped before the daemon looked.
#[test]
fn what_was_seen_of_a_process_that_nobody_counted_is_not_untraced() {
    let mut collector = collector();
    for (pid, bytes) in [(7, 10), (8, 1000)] {
        begin(&mut collector, pid, pid, 1, 100);
        write(&mut collector, pid, pid, 110, bytes);
    }
    end(&mut collector, 7, 300, EndKind::Exit, 10, 10);
    collector.note(&Record::End(SessionEnd::new(8, Time(300), EndKind::Exit)));
    collector.note(&Record::Outcome(Outcome { pid: 1, code: Some(0), signal: None, wchar: Some(1030) }));
    let report = report(&collector);
    assert_eq!((report.untraced_bytes, report.coverage), (20, Some(1010.0 / 1030.0)));
}

#[test]
fn calls_that_are_not_selected_count_for_the_coverage_and_have_a_number() {
    let mut collector = collector();
    begin(&mut collector, 1, 7, 1, 100);
    let event = Event { pid: 7, tid: 7, ino: 1, kind: FileKind::Regular, ..Event::new(Op::Write) };
    let call = |start| Event { start, returned: 10, duration: 5, ..event };
    collector.unselected(&call(110));
    cost(&mut collector, &call(120), (Cause::Copy, 5), (Cause::Copy, 0.0));
    end(&mut collector, 1, 300, EndKind::Exit, 20, 20);
    let report = report(&collector);
    assert_eq!((report.coverage, report.calls, report.bytes), (Some(1.0), 1, 10));
    let explain = report.explain.expect("causes");
    assert_eq!((explain.processes[0].calls, explain.processes[0].bytes), (1, 10));
    // Numbers and times are those of the whole trace.
    assert_eq!((explain.worst[0].call, explain.worst[0].at_s, report.span_s), (2, 10e-9, 5e-9));
}

#[test]
fn the_best_of_a_small_file_is_a_call_and_a_page() {
    let mut collector = collector();
    let profile = HostProfile::uncalibrated();
    for ino in 1..=1000 {
        let event =
            Event { ino, returned: 1, duration: 100_000, kind: FileKind::Regular, ..Event::new(Op::Write) };
        cost(&mut collector, &event, (Cause::Copy, 100_000), (Cause::Copy, 100_000.0));
    }
    let explain = report(&collector).explain.expect("causes");
    let page =
        profile.kernel.page.as_f64() / profile.memory.fresh.value.max(profile.memory.cached.value).get();
    assert!(explain.best.best_s > 999.9 * (profile.calls.write.value.as_seconds() + page), "{explain:#?}");
}

/// A program of many names is bound by these: no larger call takes their place.
#[test]
fn the_best_of_a_file_has_the_calls_on_its_name() {
    let mut collector = collector();
    for (ino, op) in [(1, Op::Open), (2, Op::Unlink), (3, Op::Stat), (4, Op::Fsync)] {
        let event = Event { ino, duration: 1_000_000, kind: FileKind::Regular, ..Event::new(op) };
        cost(&mut collector, &event, (Cause::Call, 1_000_000), (Cause::Call, 900_000.0));
    }
    let best = report(&collector).explain.expect("causes").best.best_s;
    assert!((2.7e-3..2.8e-3).contains(&best), "three calls of 0.9 ms: {best}");
}
