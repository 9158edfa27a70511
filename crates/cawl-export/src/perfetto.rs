//! A trace of Perfetto: packets with numbered strings.

mod proto;

use std::io::{self, Write};

use cawl_core::Frame;
use prost::Message;
use rustc_hash::FxHashMap;

use self::proto::{
    COUNTER, Callstack, CallstackFrame, Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, EXPLICIT,
    INCREMENTAL_STATE_CLEARED, INSTANT, Interned, InternedData, MONOTONIC, NEEDS_INCREMENTAL_STATE,
    ProcessDescriptor, REALTIME, SIZE_BYTES, SLICE_BEGIN, SLICE_END, ThreadDescriptor, TracePacket,
    TracePacketDefaults, TrackDescriptor, TrackEvent,
};
use super::timeline::{Counter, Format, PAGE_CACHE, ThreadTrack, category, slice_name};
use super::{About, Call, Columns, Output, Value};

/// The only sequence of packets.
const SEQUENCE: u32 = 1;
/// The track above the counters, whose own follow.
const MACHINE: u64 = 1;
/// The track of the export itself: its facts, and notes.
const EXPORT: u64 = 2;
const COUNTERS: u64 = 3;
/// Tracks of processes and threads begin here.
const TRACKS: u64 = 16;
/// Strings that have a number at a time; beyond that, they are numbered anew.
const STRINGS: usize = 1 << 16;

/// A timeline for ui.perfetto.dev and `trace_processor`.
pub struct Perfetto {
    columns: Columns,
    out: Output,
    /// The packet being written, kept for its memory.
    buffer: Vec<u8>,
    tracks: FxHashMap<ThreadTrack, u64>,
    /// The last number that a track got.
    last_track: u64,
    categories: Strings,
    names: Strings,
    arguments: Strings,
    values: Strings,
    /// Strings are numbered anew from the next packet on.
    cleared: bool,
}

/// Strings with a number, from 1 on.
#[derive(Default)]
struct Strings(FxHashMap<String, u64>);

impl Strings {
    /// The number of a string; if it is new, it is told in `told`.
    fn number(&mut self, text: &str, told: &mut Vec<Interned>) -> u64 {
        if let Some(number) = self.0.get(text) {
            return *number;
        }
        let iid = self.0.len() as u64 + 1;
        self.0.insert(text.to_owned(), iid);
        told.push(Interned { iid, text: text.to_owned() });
        iid
    }
}

impl Perfetto {
    pub fn new(columns: Columns, out: Output, about: &About<'_>) -> io::Result<Perfetto> {
        let mut perfetto = Perfetto {
            columns,
            out,
            buffer: Vec::new(),
            tracks: FxHashMap::default(),
            last_track: TRACKS,
            categories: Strings::default(),
            names: Strings::default(),
            arguments: Strings::default(),
            values: Strings::default(),
            cleared: true,
        };
        let started = about.host.map_or(0, |host| host.started.0);
        let mut clocks = vec![Clock { clock_id: MONOTONIC, timestamp: started }];
        if let Some(host) = about.host {
            let timestamp = host.wall_clock.saturating_mul(1_000_000_000);
            clocks.push(Clock { clock_id: REALTIME, timestamp });
        }
        perfetto.packet(TracePacket {
            clock_snapshot: Some(ClockSnapshot { clocks, primary_trace_clock: MONOTONIC }),
            ..TracePacket::default()
        })?;
        perfetto.descriptor(TrackDescriptor {
            uuid: MACHINE,
            name: Some(PAGE_CACHE.to_owned()),
            child_ordering: Some(EXPLICIT),
            ..TrackDescriptor::default()
        })?;
        for (rank, counter) in Counter::ALL.into_iter().enumerate() {
            let (unit, unit_name, key) = match counter.is_level() {
                true => (Some(SIZE_BYTES), None, "level"),
                false => (None, Some("B/s".to_owned()), "rate"),
            };
            perfetto.descriptor(TrackDescriptor {
                uuid: COUNTERS + counter as u64,
                name: Some(counter.name().to_owned()),
                parent_uuid: Some(MACHINE),
                counter: Some(CounterDescriptor { unit, unit_name, y_axis_share_key: key.to_owned() }),
                sibling_order_rank: Some(rank as i32),
                ..TrackDescriptor::default()
            })?;
        }
        perfetto.descriptor(TrackDescriptor {
            uuid: EXPORT,
            name: Some("cawl".to_owned()),
            ..TrackDescriptor::default()
        })?;
        let facts = about.facts().into_iter().map(|(name, value)| (name.to_owned(), value));
        perfetto.instant(started, "export", facts)?;
        Ok(perfetto)
    }

    fn packet(&mut self, mut packet: TracePacket) -> io::Result<()> {
        packet.trusted_packet_sequence_id = SEQUENCE;
        packet.sequence_flags = NEEDS_INCREMENTAL_STATE;
        if std::mem::take(&mut self.cleared) {
            packet.sequence_flags |= INCREMENTAL_STATE_CLEARED;
            packet.trace_packet_defaults = Some(TracePacketDefaults { timestamp_clock_id: MONOTONIC });
        }
        self.buffer.clear();
        // `Trace` has packets as its field 1.
        self.buffer.push(1 << 3 | 2);
        packet.encode_length_delimited(&mut self.buffer)?;
        self.out.write_all(&self.buffer)
    }

    fn descriptor(&mut self, descriptor: TrackDescriptor) -> io::Result<()> {
        self.packet(TracePacket { track_descriptor: Some(descriptor), ..TracePacket::default() })
    }

    fn event(&mut self, at: u64, event: TrackEvent, strings: Option<InternedData>) -> io::Result<()> {
        self.packet(TracePacket {
            timestamp: Some(at),
            track_event: Some(event),
            interned_data: strings,
            ..TracePacket::default()
        })
    }

    /// A moment on the export's own track.
    fn instant(
        &mut self,
        at: u64,
        name: &str,
        facts: impl Iterator<Item = (String, String)>,
    ) -> io::Result<()> {
        let facts = facts.map(|(name, value)| DebugAnnotation {
            name: Some(name),
            string_value: Some(value),
            ..DebugAnnotation::default()
        });
        let event = TrackEvent {
            kind: INSTANT,
            track_uuid: EXPORT,
            name: Some(name.to_owned()),
            debug_annotations: facts.collect(),
            ..TrackEvent::default()
        };
        self.event(at, event, None)
    }

    fn next_track(&mut self) -> u64 {
        self.last_track += 1;
        self.last_track
    }
}

/// Where a call came from, outermost first.
fn callstack(frames: &[Frame]) -> Option<Callstack> {
    let frame = |frame: &Frame| CallstackFrame {
        function_name: frame.name().into_owned(),
        source_file: frame.file.clone().or(frame.module.clone()),
        line_number: frame.line,
    };
    (!frames.is_empty()).then(|| Callstack { frames: frames.iter().rev().map(frame).collect() })
}

fn thread(uuid: u64, pid: u32, tid: u32, thread_name: Option<String>) -> TrackDescriptor {
    let thread = ThreadDescriptor { pid: pid as i32, tid: tid.into(), thread_name };
    TrackDescriptor { uuid, thread: Some(thread), ..TrackDescriptor::default() }
}

impl Format for Perfetto {
    fn track(&mut self, track: ThreadTrack) -> io::Result<()> {
        let ThreadTrack { pid, tid, number } = track;
        let own = self.tracks.get(&ThreadTrack { number: 0, ..track }).copied();
        let uuid = self.next_track();
        self.tracks.insert(track, uuid);
        self.descriptor(match own {
            None => thread(uuid, pid, tid, None),
            parent_uuid => TrackDescriptor {
                uuid,
                parent_uuid,
                name: Some(format!("overlapping calls {number}")),
                ..TrackDescriptor::default()
            },
        })
    }

    fn program(&mut self, pid: u32, program: &str) -> io::Result<()> {
        let uuid = self.next_track();
        let process = ProcessDescriptor { pid: pid as i32, process_name: Some(program.to_owned()) };
        self.descriptor(TrackDescriptor { uuid, process: Some(process), ..TrackDescriptor::default() })?;
        match self.tracks.get(&ThreadTrack { pid, tid: pid, number: 0 }) {
            Some(uuid) => self.descriptor(thread(*uuid, pid, pid, Some(program.to_owned()))),
            None => Ok(()),
        }
    }

    fn call(&mut self, track: ThreadTrack, call: &Call<'_>) -> io::Result<()> {
        if self.values.0.len() >= STRINGS {
            for strings in [&mut self.categories, &mut self.names, &mut self.arguments, &mut self.values] {
                strings.0.clear();
            }
            self.cleared = true;
        }
        let event = call.event;
        let cause = call.causes.map(|causes| causes.main());
        let mut told = InternedData::default();
        let category = self.categories.number(category(cause), &mut told.event_categories);
        let name = slice_name(event.op, cause);
        let name = self.names.number(&name, &mut told.event_names);
        let debug_annotations = self.columns.arguments(call).map(|(name, value)| {
            let name_iid = Some(self.arguments.number(name, &mut told.debug_annotation_names));
            let mut annotation = DebugAnnotation { name_iid, ..DebugAnnotation::default() };
            match value {
                Value::Null | Value::Bool(_) => {}
                Value::Int(value) => annotation.int_value = Some(value),
                Value::Text(text) => {
                    let number = self.values.number(text, &mut told.debug_annotation_string_values);
                    annotation.string_value_iid = Some(number);
                }
            }
            annotation
        });
        let debug_annotations = debug_annotations.collect();
        let begin = TrackEvent {
            kind: SLICE_BEGIN,
            track_uuid: self.tracks.get(&track).copied().unwrap_or(0),
            category_iids: vec![category],
            name_iid: Some(name),
            debug_annotations,
            callstack: callstack(call.stack),
            correlation_id: Some(cause.map_or(0, |cause| 1 + cause as u64)),
            ..TrackEvent::default()
        };
        let end = TrackEvent { kind: SLICE_END, track_uuid: begin.track_uuid, ..TrackEvent::default() };
        let told = Some(told).filter(|told| *told != InternedData::default());
        self.event(event.start, begin, told)?;
        self.event(event.end(), end, None)
    }

    fn counter(&mut self, counter: Counter, at: u64, value: u64) -> io::Result<()> {
        let event = TrackEvent {
            kind: COUNTER,
            track_uuid: COUNTERS + counter as u64,
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        };
        self.event(at, event, None)
    }

    fn finish(&mut self, at: u64, notes: &[String]) -> io::Result<()> {
        if !notes.is_empty() {
            let notes = notes.iter().enumerate().map(|(at, note)| (format!("note {}", at + 1), note.clone()));
            self.instant(at, "notes", notes)?;
        }
        self.out.flush()
    }
}
