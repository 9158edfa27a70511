//! One record as bytes: a tag, then a fixed layout for calls and samples, or a length and JSON.

use cawl_core::{Record, Sample, Time};
use cawl_wire::{EVENT_LEN, Event};
use serde::de::DeserializeOwned;

const EVENT: u8 = 1;
const SAMPLE: u8 = 2;
const HOST: u8 = 16;
const PROFILE: u8 = 17;
const SESSION: u8 = 18;
const FILE: u8 = 19;
const END: u8 = 20;
const OUTCOME: u8 = 21;
const NOTE: u8 = 22;
const LIVE: u8 = 23;
const MEMORY: u8 = 24;
/// Closes a complete trace; followed by the number of records as u64.
const CLOSE: u8 = 255;

/// What a block holds, entry by entry.
pub(super) enum Entry {
    Record(Record),
    /// The trace was closed properly after this many records.
    Close(u64),
}

/// Appends a record to a block.
pub(super) fn put(out: &mut Vec<u8>, record: &Record) {
    match record {
        Record::Event(event) => {
            out.push(EVENT);
            out.extend_from_slice(&event.encode());
        }
        Record::Sample(sample) => {
            out.push(SAMPLE);
            let Sample { time, dirty, writeback, background, hard, written, dirtied } = *sample;
            for word in [time.0, dirty, writeback, background, hard, written, dirtied] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        Record::Host(host) => put_json(out, HOST, host),
        Record::Profile(profile) => put_json(out, PROFILE, profile),
        Record::Session(session) => put_json(out, SESSION, session),
        Record::File(file) => put_json(out, FILE, file),
        Record::End(end) => put_json(out, END, end),
        Record::Outcome(outcome) => put_json(out, OUTCOME, outcome),
        Record::Note(note) => put_json(out, NOTE, note),
        Record::Live(options) => put_json(out, LIVE, options),
        Record::Memory(memory) => put_json(out, MEMORY, memory),
    }
}

/// Appends the mark that closes a trace of `records` records.
pub(super) fn put_close(out: &mut Vec<u8>, records: u64) {
    out.push(CLOSE);
    out.extend_from_slice(&records.to_le_bytes());
}

fn put_json<T: serde::Serialize>(out: &mut Vec<u8>, tag: u8, value: &T) {
    // Records are plain structs of numbers and strings: turning them into JSON cannot fail.
    let json = serde_json::to_vec(value).expect("records are serializable");
    out.push(tag);
    out.extend_from_slice(&(json.len() as u32).to_le_bytes());
    out.extend_from_slice(&json);
}

/// Removes the next entry from the front of a block; None if the rest is invalid.
pub(super) fn take(bytes: &mut &[u8]) -> Option<Entry> {
    let (tag, rest) = bytes.split_first()?;
    *bytes = rest;
    let record = match *tag {
        EVENT => Record::Event(Event::decode(chunk::<EVENT_LEN>(bytes)?)?),
        SAMPLE => {
            let mut words = [0; 7];
            for word in &mut words {
                *word = u64::from_le_bytes(*chunk(bytes)?);
            }
            let [time, dirty, writeback, background, hard, written, dirtied] = words;
            let time = Time(time);
            Record::Sample(Sample { time, dirty, writeback, background, hard, written, dirtied })
        }
        HOST => Record::Host(json(bytes)?),
        PROFILE => Record::Profile(json(bytes)?),
        SESSION => Record::Session(json(bytes)?),
        FILE => Record::File(json(bytes)?),
        END => Record::End(json(bytes)?),
        OUTCOME => Record::Outcome(json(bytes)?),
        NOTE => Record::Note(json(bytes)?),
        LIVE => Record::Live(json(bytes)?),
        MEMORY => Record::Memory(json(bytes)?),
        CLOSE => {
            return Some(Entry::Close(u64::from_le_bytes(*chunk(bytes)?)));
        }
        _ => return None,
    };
    Some(Entry::Record(record))
}

/// Removes this many bytes from the front of a block.
fn chunk<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

fn json<T: DeserializeOwned>(bytes: &mut &[u8]) -> Option<T> {
    let length = u32::from_le_bytes(*chunk(bytes)?);
    let (text, rest) = bytes.split_at_checked(length as usize)?;
    *bytes = rest;
    serde_json::from_slice(text).ok()
}
