//! OpenTelemetry: what cawl knows, as requests of OTLP in JSON (opentelemetry-proto, version 1).
//!
//! A process image is a span, and a part of its calls are spans in it: those that lost most, and the longest.
//! Where the program was given a trace id (`TRACEPARENT`, W3C Trace Context), all of them are in that trace,
//! below the span that it names; else the process has a trace of its own. Ids are made of what is known of
//! host and process, so that what is told again has the ids of the first time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::BuildHasher;

use cawl_core::{Cause, CauseTimes, Causes, FileFacts, HostFacts, Nanos, Session, SessionEnd, kernel_bytes};
use cawl_wire::{Event, FileId, UNKNOWN_OFFSET};
use rustc_hash::{FxBuildHasher, FxHashMap};
use serde_json::{Value, json};

/// Calls that become spans, of those that lost most, and of the longest.
pub const LOST: usize = 100;
/// See [`LOST`].
pub const LONGEST: usize = 20;

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

/// Chooses calls, and tells of them.
pub struct Spans {
    host: String,
    labels: Vec<(String, String)>,
    /// Time of day at CLOCK_MONOTONIC's 0, in ns since 1970.
    epoch: u64,
    /// Distinguishes this boot of the host from others.
    boot: u64,
    processes: FxHashMap<u32, Process>,
    /// The latest image of each process.
    latest: FxHashMap<u32, u32>,
    ended: Vec<(Process, SessionEnd)>,
    lost: Most,
    longest: Most,
    paths: FxHashMap<FileId, String>,
}

impl Spans {
    /// None so far, of this machine; `labels` are those of the resource.
    pub fn new(host: Option<&HostFacts>, labels: Vec<(String, String)>) -> Spans {
        let wall = host.map_or(0, |host| host.wall_clock * 1_000_000_000);
        let epoch = wall.saturating_sub(host.map_or(0, |host| host.started.0));
        Spans {
            host: host.map_or_else(String::new, |host| host.host.clone()),
            labels,
            epoch,
            // Seconds are not exact.
            boot: epoch / 1_000_000_000_000,
            processes: FxHashMap::default(),
            latest: FxHashMap::default(),
            ended: Vec::new(),
            lost: Most::new(LOST),
            longest: Most::new(LONGEST),
            paths: FxHashMap::default(),
        }
    }

    /// An id that is none of nothing: 0.
    fn id(&self, what: impl std::hash::Hash) -> u64 {
        FxBuildHasher.hash_one((&self.host, self.boot, what)).max(1)
    }

    /// A process image began.
    pub fn begin(&mut self, session: &Session) {
        let parent = session.traceparent.as_deref().and_then(Context::of_variable);
        let key = (session.pid, session.started.0);
        let own_trace = || u128::from(self.id((key, "trace"))) << 64 | u128::from(self.id((key, "low")));
        let own = Context {
            trace: parent.map_or_else(own_trace, |parent| parent.trace),
            span: self.id((key, "span")),
        };
        let process = Process { session: session.clone(), parent, own, latest: session.started.0, calls: 0 };
        self.latest.insert(session.pid, session.id);
        self.processes.insert(session.id, process);
    }

    /// A process image ended.
    pub fn end(&mut self, end: &SessionEnd) {
        if let Some(process) = self.processes.remove(&end.id) {
            if self.latest.get(&process.session.pid) == Some(&end.id) {
                self.latest.remove(&process.session.pid);
            }
            self.ended.push((process, *end));
        }
    }

    /// A file has this name.
    pub fn name(&mut self, file: &FileFacts) {
        self.paths.insert(file.file(), file.path.clone());
    }

    /// A call, with its causes.
    pub fn call(&mut self, event: &Event, causes: Causes<'_>, predicted: Option<Nanos>, path: Option<&str>) {
        let Some(session) = self.latest.get(&event.pid).copied() else { return };
        if let Some(process) = self.processes.get_mut(&session) {
            process.calls += 1;
            process.latest = process.latest.max(event.end());
        }
        // No call loses more than it took.
        let (longest, room) = ((event.duration, 0), (event.duration, u64::MAX));
        if !self.lost.wants(room) && !self.longest.wants(longest) {
            return;
        }
        let lost = causes.lost().max(0.0) as u64;
        let path = path.or_else(|| self.paths.get(&event.file()).map(String::as_str));
        for (most, key) in [(&mut self.lost, (lost, event.duration)), (&mut self.longest, longest)] {
            if most.wants(key) {
                let (path, causes) = (path.map(str::to_owned), *causes.times);
                most.take(Chosen { key, lost, event: *event, session, path, causes, predicted });
            }
        }
    }

    /// A request for `/v1/traces` with the calls that were chosen since the last one, and processes that
    /// ended; with `all` also those that still run. None if there is nothing to tell.
    pub fn request(&mut self, all: bool) -> Option<Value> {
        let lost = std::mem::replace(&mut self.lost, Most::new(LOST)).heap;
        let longest = std::mem::replace(&mut self.longest, Most::new(LONGEST)).heap;
        let mut calls: Vec<Chosen> = lost.into_iter().chain(longest).map(|Reverse(chosen)| chosen).collect();
        let key = |call: &Chosen| (call.session, call.event.start, call.event.tid, call.event.op);
        calls.sort_by_key(key);
        calls.dedup_by_key(|call| key(call));
        let mut spans: BTreeMap<u32, Vec<Value>> = BTreeMap::new();
        let ended = std::mem::take(&mut self.ended);
        let known = |id: u32| {
            let over = ended.iter().map(|(process, _)| process).find(|process| process.session.id == id);
            over.or_else(|| self.processes.get(&id))
        };
        for call in &calls {
            if let Some(process) = known(call.session) {
                spans.entry(call.session).or_default().push(self.call_span(call, process));
            }
        }
        let running = self.processes.values().filter(|_| all).map(|process| (process, process.latest));
        let over = ended.iter().map(|(process, end)| (process, end.at.0));
        for (process, until) in over.chain(running) {
            spans.entry(process.session.id).or_default().push(self.process_span(process, until));
        }
        let resource = |(id, spans): (u32, Vec<Value>)| {
            let process = known(id)?;
            let scope = json!({ "name": "cawl", "version": env!("CARGO_PKG_VERSION") });
            let spans = json!([{ "scope": scope, "spans": spans }]);
            Some(json!({ "resource": self.resource(&process.session), "scopeSpans": spans }))
        };
        let resources: Vec<Value> = spans.into_iter().filter_map(resource).collect();
        (!resources.is_empty()).then(|| json!({ "resourceSpans": resources }))
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

/// An attribute.
pub fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// 64 bits are a string in the JSON of protobuf.
fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

#[cfg(test)]
mod tests {
    use super::*;

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
