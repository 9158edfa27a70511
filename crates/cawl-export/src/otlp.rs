//! OpenTelemetry: what cawl knows, as requests of OTLP in JSON (opentelemetry-proto, version 1).
//!
//! A process image is a span, and a part of its calls are spans in it: those that lost most, and the longest.
//! Where the program was given a trace id (`TRACEPARENT`, W3C Trace Context), all of them are in that trace,
//! below the span that it names; else the process has a trace of its own. Ids are made of what is known of
//! host and process, so that what is told again has the ids of the first time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::BuildHasher;
use std::io::{self, Write};

use cawl_core::{Cause, CauseTimes, Causes, Nanos, Record, Report, Session, SessionEnd, Shown, kernel_bytes};
use cawl_wire::{Event, UNKNOWN_OFFSET};
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde_json::{Value, json};

use crate::{About, Call, Exporter, Output};

/// Calls that become spans, of those that lost most, and of the longest.
const LOST: usize = 100;
/// See [`LOST`].
const LONGEST: usize = 20;

/// A trace and a span in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Context {
    trace: u128,
    span: u64,
}

impl Context {
    /// What `TRACEPARENT` says: `00-TRACE-SPAN-FLAGS`, in lower-case hexadecimal.
    fn of_variable(text: &str) -> Option<Context> {
        let mut parts = text.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let lengths = [version, trace, span, flags].map(str::len);
        let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_one = lengths == [2, 32, 16, 2]
            && [version, trace, span, flags].into_iter().all(is_hex)
            && version != "ff"
            && (version != "00" || parts.next().is_none());
        let context = Context {
            trace: u128::from_str_radix(trace, 16).ok()?,
            span: u64::from_str_radix(span, 16).ok()?,
        };
        (is_one && context.trace != 0 && context.span != 0).then_some(context)
    }
}

/// A process image that is a span.
#[derive(Clone)]
struct Process {
    session: Session,
    parent: Option<Context>,
    own: Context,
    /// When it was last heard of, in ns of CLOCK_MONOTONIC.
    latest: u64,
    calls: u64,
}

/// A call that may become a span. Ordered by what it is chosen by.
struct Chosen {
    key: (u64, u64),
    lost: u64,
    event: Event,
    session: u32,
    path: Option<String>,
    causes: CauseTimes,
    predicted: Option<Nanos>,
}

impl PartialEq for Chosen {
    fn eq(&self, other: &Chosen) -> bool {
        self.key == other.key
    }
}

impl Eq for Chosen {}

impl PartialOrd for Chosen {
    fn partial_cmp(&self, other: &Chosen) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Chosen {
    fn cmp(&self, other: &Chosen) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

/// The largest ones of what comes.
#[derive(Default)]
struct Most {
    heap: BinaryHeap<Reverse<Chosen>>,
    room: usize,
}

impl Most {
    fn new(room: usize) -> Most {
        Most { heap: BinaryHeap::new(), room }
    }

    fn wants(&self, key: (u64, u64)) -> bool {
        self.heap.len() < self.room || self.heap.peek().is_some_and(|least| least.0.key < key)
    }

    fn take(&mut self, chosen: Chosen) {
        if self.heap.len() == self.room {
            self.heap.pop();
        }
        self.heap.push(Reverse(chosen));
    }
}

/// The machine, as spans tell of it.
#[derive(Clone)]
struct Machine {
    host: String,
    labels: Vec<(String, String)>,
    /// Time of day at CLOCK_MONOTONIC's 0, in ns since 1970.
    epoch: u64,
    /// Distinguishes this boot of the host from others.
    boot: u64,
}

/// Chooses calls to tell of.
pub struct Spans {
    machine: Machine,
    processes: FxHashMap<u32, Process>,
    /// Beginnings and sessions of the images of each process, in order.
    images: FxHashMap<u32, Vec<(u64, u32)>>,
    ended: Vec<(Process, SessionEnd)>,
    most_ended: usize,
    left_out: u64,
    lost: Most,
    longest: Most,
}

impl Spans {
    /// None so far, of the machine with this name; `epoch` is the time of day at CLOCK_MONOTONIC's 0 (ns
    /// since 1970), `labels` are those of the resource. Of processes that ended, so many become spans at a
    /// time, besides those of calls that do.
    pub fn new(host: &str, epoch: u64, labels: Vec<(String, String)>, most_ended: usize) -> Spans {
        // The epoch of a trace has whole seconds.
        let boot = epoch / 1_000_000_000_000;
        Spans {
            machine: Machine { host: host.to_owned(), labels, epoch, boot },
            processes: FxHashMap::default(),
            images: FxHashMap::default(),
            ended: Vec::new(),
            most_ended,
            left_out: 0,
            lost: Most::new(LOST),
            longest: Most::new(LONGEST),
        }
    }

    /// Takes a record, and what was shown of it if it is a call. The path of its file is asked for only where
    /// the call is chosen.
    pub fn take<'a>(
        &mut self,
        record: &Record,
        shown: &Shown<'_>,
        path: impl FnOnce(&Event) -> Option<&'a str>,
    ) {
        match record {
            Record::Session(session) => self.begin(session),
            Record::End(end) => self.end(end),
            Record::Event(event) => {
                if let (Some(times), Some(own)) = (shown.causes, shown.own) {
                    let predicted = shown.predictions.first().copied().flatten().map(|told| told.cost);
                    let causes = Causes { times, own, main: times.main() };
                    self.call(event, causes, predicted, || path(event));
                }
            }
            _ => {}
        }
    }

    /// A process image began.
    pub fn begin(&mut self, session: &Session) {
        let parent = session.traceparent.as_deref().and_then(Context::of_variable);
        let key = (session.pid, session.started.0);
        let id = |what: &str| self.machine.id((key, what));
        let own_trace = || u128::from(id("trace")) << 64 | u128::from(id("low"));
        let trace = parent.map_or_else(own_trace, |parent| parent.trace);
        let own = Context { trace, span: id("span") };
        let process = Process { session: session.clone(), parent, own, latest: session.started.0, calls: 0 };
        self.images.entry(session.pid).or_default().push((session.started.0, session.id));
        self.processes.insert(session.id, process);
    }

    /// A process image ended.
    pub fn end(&mut self, end: &SessionEnd) {
        let Some(process) = self.processes.remove(&end.id) else { return };
        if let Some(images) = self.images.get_mut(&process.session.pid) {
            images.retain(|(_, session)| *session != end.id);
            if images.is_empty() {
                self.images.remove(&process.session.pid);
            }
        }
        let is_chosen = || {
            let mut chosen = self.lost.heap.iter().chain(&self.longest.heap);
            chosen.any(|Reverse(call)| call.session == end.id)
        };
        if self.ended.len() < self.most_ended || is_chosen() {
            self.ended.push((process, *end));
        } else {
            self.left_out += 1;
        }
    }

    /// A call, with its causes.
    pub fn call<'a>(
        &mut self,
        event: &Event,
        causes: Causes<'_>,
        predicted: Option<Nanos>,
        path: impl FnOnce() -> Option<&'a str>,
    ) {
        let Some(images) = self.images.get(&event.pid) else { return };
        // It may be analysed when its process has another image already.
        let begun = images.iter().rev().find(|(started, _)| *started <= event.start).or(images.first());
        let Some(session) = begun.map(|(_, session)| *session) else { return };
        if let Some(process) = self.processes.get_mut(&session) {
            process.calls += 1;
            process.latest = process.latest.max(event.end());
        }
        // No call loses more than it took.
        let (longest, room) = ((event.duration, 0), (event.duration, u64::MAX));
        if !self.lost.wants(room) && !self.longest.wants(longest) {
            return;
        }
        let (lost, path) = (causes.lost().get() as u64, path());
        for (most, key) in [(&mut self.lost, (lost, event.duration)), (&mut self.longest, longest)] {
            if most.wants(key) {
                let (path, causes) = (path.map(str::to_owned), *causes.times);
                most.take(Chosen { key, lost, event: *event, session, path, causes, predicted });
            }
        }
    }

    /// Takes out the calls that were chosen since the last time, and processes that ended; with `all` also
    /// those that still run. `epoch`: as of now, if the clock may have been set.
    pub fn drain(&mut self, all: bool, epoch: Option<u64>) -> Told {
        self.machine.epoch = epoch.unwrap_or(self.machine.epoch);
        let lost = std::mem::replace(&mut self.lost, Most::new(LOST)).heap;
        let longest = std::mem::replace(&mut self.longest, Most::new(LONGEST)).heap;
        let mut calls: Vec<Chosen> = lost.into_iter().chain(longest).map(|Reverse(chosen)| chosen).collect();
        let key = |call: &Chosen| (call.session, call.event.start, call.event.tid, call.event.op);
        calls.sort_by_key(key);
        calls.dedup_by_key(|call| key(call));
        let ended = std::mem::take(&mut self.ended).into_iter();
        let mut processes: BTreeMap<u32, (Process, Option<u64>)> =
            ended.map(|(process, end)| (end.id, (process, Some(end.at.0)))).collect();
        let is_told = |id: &u32| all || calls.iter().any(|call| call.session == *id);
        for (id, process) in self.processes.iter().filter(|(id, _)| is_told(id)) {
            processes.insert(*id, (process.clone(), all.then_some(process.latest)));
        }
        let left_out = std::mem::take(&mut self.left_out);
        Told { machine: self.machine.clone(), calls, processes, left_out }
    }
}

/// What is to be told.
pub struct Told {
    machine: Machine,
    calls: Vec<Chosen>,
    /// By session, until when those were that are spans.
    processes: BTreeMap<u32, (Process, Option<u64>)>,
    /// Processes that ended and that are not told of, because there were too many.
    pub left_out: u64,
}

impl Told {
    /// Number of spans.
    pub fn spans(&self) -> usize {
        let calls = self.calls.iter().filter(|call| self.processes.contains_key(&call.session)).count();
        calls + self.processes.values().filter(|(_, until)| until.is_some()).count()
    }

    /// A request for `/v1/traces`.
    pub fn request(&self) -> Value {
        let mut spans: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
        for call in &self.calls {
            if let Some((process, _)) = self.processes.get(&call.session) {
                spans.entry(call.session).or_default().push(self.machine.call_span(call, process));
            }
        }
        for (id, (process, until)) in &self.processes {
            if let Some(until) = until {
                spans.entry(*id).or_default().push(self.machine.process_span(process, *until));
            }
        }
        let resource = |(id, spans): (u32, Vec<Value>)| {
            let session = &self.processes.get(&id)?.0.session;
            let spans = json!([{ "scope": scope(), "spans": spans }]);
            Some(json!({ "resource": self.machine.resource(session), "scopeSpans": spans }))
        };
        let resources: Vec<Value> = spans.into_iter().filter_map(resource).collect();
        json!({ "resourceSpans": resources })
    }
}

impl Machine {
    /// An id that is none of nothing: 0.
    fn id(&self, what: impl std::hash::Hash) -> u64 {
        FxBuildHasher.hash_one((&self.host, self.boot, what)).max(1)
    }

    fn resource(&self, session: &Session) -> Value {
        let name = session.program.rsplit('/').next().unwrap_or_default();
        let own = [("service.name", name), ("host.name", &self.host)].map(|(key, value)| text(key, value));
        let labels = self.labels.iter().map(|(key, value)| text(key, value));
        let all: Vec<Value> =
            own.into_iter().chain([number("process.pid", session.pid.into())]).chain(labels).collect();
        json!({ "attributes": all })
    }

    fn process_span(&self, process: &Process, until: u64) -> Value {
        let Process { session, parent, own, calls, .. } = process;
        let attributes = [
            text("process.executable.name", &session.program),
            number("process.parent_pid", session.ppid.into()),
            number("cawl.calls", *calls),
        ];
        let parent = parent.map_or_else(String::new, |parent| format!("{:016x}", parent.span));
        let span = self.span((own, own.span), &parent, &session.program, (session.started.0, until));
        with(span, "attributes", json!(attributes))
    }

    fn call_span(&self, call: &Chosen, process: &Process) -> Value {
        let Chosen { event, lost, causes, path, predicted, .. } = call;
        let mut attributes = vec![
            number("thread.id", event.tid.into()),
            number("cawl.bytes", kernel_bytes(event)),
            text("cawl.cause", causes.main().name()),
            number("cawl.lost_ns", *lost),
        ];
        attributes.extend(path.as_deref().map(|path| text("file.path", path)));
        attributes.extend(
            Some(event.offset).filter(|at| *at != UNKNOWN_OFFSET).map(|at| number("cawl.offset", at)),
        );
        attributes.extend(predicted.map(|cost| number("cawl.predicted_ns", cost.get().round() as u64)));
        let parts = Cause::ALL.into_iter().filter(|cause| causes[*cause] > 0);
        attributes.extend(
            parts.map(|cause| number(&format!("cawl.{}_ns", cause.name().replace(' ', "_")), causes[cause])),
        );
        let id = self.id((event.pid, event.tid, event.start, event.op as u8));
        let parent = format!("{:016x}", process.own.span);
        let span = self.span((&process.own, id), &parent, event.op.name(), (event.start, event.end()));
        let span = with(span, "attributes", json!(attributes));
        match event.errno {
            0 => span,
            errno => with(span, "status", json!({ "code": 2, "message": format!("errno {errno}") })),
        }
    }

    fn span(
        &self,
        (trace, id): (&Context, u64),
        parent: &str,
        name: &str,
        (start, end): (u64, u64),
    ) -> Value {
        let at = |ns: u64| self.epoch.saturating_add(ns).to_string();
        json!({
            "traceId": format!("{:032x}", trace.trace), "spanId": format!("{id:016x}"), "parentSpanId": parent,
            "name": name, "kind": 1, "startTimeUnixNano": at(start), "endTimeUnixNano": at(end),
        })
    }
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}

/// Who tells.
pub fn scope() -> Value {
    json!({ "name": "cawl", "version": env!("CARGO_PKG_VERSION") })
}

/// An attribute.
pub fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// 64 bits are a string in the JSON of protobuf.
fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

/// A run as one request, when all calls are known.
pub struct Otlp {
    out: Output,
    spans: Spans,
}

impl Otlp {
    /// None so far.
    pub fn new(out: Output, about: &About<'_>) -> Otlp {
        let wall = about.host.map_or(0, |host| host.wall_clock * 1_000_000_000);
        let epoch = wall.saturating_sub(about.host.map_or(0, |host| host.started.0));
        let host = about.host.map_or("", |host| &host.host);
        Otlp { out, spans: Spans::new(host, epoch, Vec::new(), usize::MAX) }
    }
}

impl Exporter for Otlp {
    fn record(&mut self, record: &Record) -> io::Result<()> {
        match record {
            Record::Session(session) => self.spans.begin(session),
            Record::End(end) => self.spans.end(end),
            _ => {}
        }
        Ok(())
    }

    fn call(&mut self, call: &Call<'_>) -> io::Result<()> {
        if let (Some(times), Some(own)) = (call.causes, call.own) {
            let predicted = call.prediction().map(|prediction| prediction.cost);
            self.spans.call(call.event, Causes { times, own, main: times.main() }, predicted, || call.path);
        }
        Ok(())
    }

    fn finish(&mut self, _report: &Report, _notes: &[String]) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &self.spans.drain(true, None).request())?;
        self.out.write_all(b"\n")?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use cawl_core::{CostParts, EndKind, Time};
    use cawl_wire::Op;

    use super::*;

    fn session(id: u32, pid: u32, started: u64) -> Session {
        Session { id, pid, program: format!("/bin/p{id}"), started: Time(started), ..Session::default() }
    }

    fn call(spans: &mut Spans, pid: u32, start: u64, duration: u64) {
        let event = Event { pid, tid: pid, start, duration, ..Event::new(Op::Fsync) };
        let (mut times, own) = (CauseTimes::default(), CostParts::default());
        times[Cause::DeviceFlush] = duration;
        spans
            .call(&event, Causes { times: &times, own: &own, main: Cause::DeviceFlush }, None, || Some("/f"));
    }

    #[test]
    fn a_call_before_an_exec_is_of_the_program_before_it() {
        let mut spans = Spans::new("h", 1_000_000, Vec::new(), 1000);
        spans.begin(&session(1, 7, 10));
        spans.begin(&session(2, 7, 100));
        call(&mut spans, 7, 50, 5);
        call(&mut spans, 7, 150, 5);
        spans.end(&SessionEnd::new(1, Time(100), EndKind::Exec));
        let told = spans.drain(false, None);
        assert_eq!(told.spans(), 3);
        let request = told.request();
        let of = |at: usize| {
            let resource = &request["resourceSpans"][at];
            let spans = resource["scopeSpans"][0]["spans"].as_array().unwrap();
            let starts = spans.iter().map(|span| span["startTimeUnixNano"].as_str().unwrap().to_owned());
            (
                resource["resource"]["attributes"][0]["value"]["stringValue"].clone(),
                starts.collect::<Vec<_>>(),
            )
        };
        assert_eq!(of(0), (json!("p1"), vec!["1000050".to_owned(), "1000010".to_owned()]));
        assert_eq!(of(1), (json!("p2"), vec!["1000150".to_owned()]));
        // The running one is told at the end, with no call told again.
        assert_eq!((spans.drain(false, None).spans(), spans.drain(true, None).spans()), (0, 1));
    }

    #[test]
    fn a_moment_is_bounded_and_what_is_left_out_is_counted() {
        let mut spans = Spans::new("h", 0, Vec::new(), 3);
        for id in 1..=10 {
            spans.begin(&session(id, id, 10));
            if id == 9 {
                call(&mut spans, id, 50, 5);
            }
            spans.end(&SessionEnd::new(id, Time(100), EndKind::Exit));
        }
        spans.begin(&session(11, 11, 10));
        for start in 0..1000 {
            call(&mut spans, 11, 100 + start, 10 + start);
        }
        let told = spans.drain(false, None);
        // The process of a call that was chosen at that time is told, too.
        assert_eq!((told.left_out, told.spans()), (6, 4 + LOST));
        assert_eq!(spans.drain(false, None).left_out, 0);
    }

    #[test]
    fn a_trace_id_is_taken_as_w3c_writes_it() {
        let of = Context::of_variable;
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context =
            Context { trace: 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, span: 0xb7ad_6b71_6920_3331 };
        assert_eq!(of(good), Some(context));
        // A later version may have more.
        assert_eq!(of(&format!("cc{}-what", &good[2..])), Some(context));
        for bad in [
            "",
            "00",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        ] {
            assert_eq!(of(bad), None, "{bad}");
        }
    }
}
