//! One record as bytes: a tag, then a fixed layout for what there is much of, or a length and JSON.

use cawl_core::{Nanos, Record, RunDelay, Sample, Time};
use cawl_wire::{EVENT_LEN, Event};
use serde::de::DeserializeOwned;

const EVENT: u8 = 1;
const SAMPLE: u8 = 2;
const RUN_DELAY: u8 = 3;
/// Closes a complete trace; followed by the number of records as u64.
const CLOSE: u8 = 255;

/// The records that are JSON, by tag.
macro_rules! described {
    ($($tag:literal $kind:ident)*) => {
        fn put_described(out: &mut Vec<u8>, record: &Record) {
            match record {
                $(Record::$kind(value) => put_json(out, $tag, value),)*
                Record::Event(_) | Record::Sample(_) | Record::RunDelay(_) => {}
            }
        }

        fn take_described(tag: u8, bytes: &mut &[u8]) -> Option<Record> {
            match tag {
                $($tag => Some(Record::$kind(json(bytes)?)),)*
                _ => None,
            }
        }
    };
}

described! { 16 Host 17 Profile 18 Session 19 File 20 End 21 Outcome 22 Note 23 Live 24 Memory 25 Device 26 Doubt 27 Stack }

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
        Record::RunDelay(delay) => {
            out.push(RUN_DELAY);
            let RunDelay { pid, tid, from, to, ran, delayed } = *delay;
            let thread = u64::from(pid) | u64::from(tid) << 32;
            for word in [thread, from.0, to.0, ran.get() as u64, delayed.get() as u64] {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
        described => put_described(out, described),
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
            let [time, dirty, writeback, background, hard, written, dirtied] = words(bytes)?;
            let time = Time(time);
            Record::Sample(Sample { time, dirty, writeback, background, hard, written, dirtied })
        }
        RUN_DELAY => {
            let [thread, from, to, ran, delayed] = words(bytes)?;
            let [ran, delayed] = [ran, delayed].map(|ns| Nanos::new(ns as f64));
            let (pid, tid) = (thread as u32, (thread >> 32) as u32);
            Record::RunDelay(RunDelay { pid, tid, from: Time(from), to: Time(to), ran, delayed })
        }
        CLOSE => {
            let [records] = words(bytes)?;
            return Some(Entry::Close(records));
        }
        described => take_described(described, bytes)?,
    };
    Some(Entry::Record(record))
}

/// Removes this many bytes from the front of a block.
fn chunk<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(first)
}

/// Removes this many numbers from the front of a block.
fn words<const N: usize>(bytes: &mut &[u8]) -> Option<[u64; N]> {
    let mut words = [0; N];
    for word in &mut words {
        *word = u64::from_le_bytes(*chunk(bytes)?);
    }
    Some(words)
}

fn json<T: DeserializeOwned>(bytes: &mut &[u8]) -> Option<T> {
    let length = u32::from_le_bytes(*chunk(bytes)?);
    let (text, rest) = bytes.split_at_checked(length as usize)?;
    *bytes = rest;
    serde_json::from_slice(text).ok()
}
