use super::*;
use crate::record::Wchar;

fn collector() -> Collector {
    Collector::new(&HostProfile::uncalibrated(), Vec::new())
}

fn begin(collector: &mut Collector, id: u32, pid: u32, ppid: u32, at: u64) {
    let wchar = Wchar { process: Some(0), thread: Some(0) };
    let started = Time(at);
    collector.note(&Record::Session(Session { id, pid, ppid, started, wchar, ..Session::default() }));
}

fn end(collector: &mut Collector, id: u32, at: u64, how: EndKind, thread: u64, process: u64) {
    let wchar = Wchar { process: Some(process), thread: Some(thread) };
    let (pending, dropped, unseen) = (0, 0, 0);
    collector.note(&Record::End(SessionEnd { id, at: Time(at), how, wchar, pending, dropped, unseen }));
}

fn write(collector: &mut Collector, pid: u32, tid: u32, at: u64, bytes: i64) {
    let event = Event { pid, tid, start: at, returned: bytes, ..Event::new(Op::Write) };
    collector.event(&event, Class::Elsewhere, &[]);
}

/// Bytes seen and bytes counted, for each session in order of arrival.
fn figures(collector: &Collector) -> Vec<(u64, Option<u64>)> {
    collector.session_reports().iter().map(|session| (session.seen_bytes, session.wchar_bytes)).collect()
}

#[test]
fn a_call_belongs_to_the_image_that_made_it_whichever_connection_was_served_first() {
    let mut collector = collector();
    begin(&mut collector, 2, 7, 1, 200);
    begin(&mut collector, 1, 7, 1, 100);
    write(&mut collector, 7, 7, 150, 10);
    write(&mut collector, 7, 7, 250, 20);
    end(&mut collector, 1, 200, EndKind::Exec, 10, 10);
    end(&mut collector, 2, 300, EndKind::Exit, 20, 20);
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
