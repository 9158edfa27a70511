//! A bounded sample of the latest calls: the most expensive, and an even sample of the others.

use std::collections::VecDeque;

use cawl_client::protocol::{CallStatus, Calls, PROTOCOL};
use cawl_core::{CallState, Cause, Nanos, Prediction, Time, kernel_bytes};
use cawl_host::clock::Clocks;
use cawl_wire::Event;

/// Length of a piece. A piece keeps the `KEPT` most expensive calls and, evenly sampled, up to twice as many
/// of the others. `PIECES` pieces are kept.
const PIECE: Nanos = Nanos::millis(100.0);
const KEPT: usize = 12;
const PIECES: usize = 100;

/// Most calls in an answer.
const ANSWERED: usize = 200;

/// A call with what the answering model says of it.
#[derive(Clone, Copy)]
struct Judged {
    event: Event,
    cost: Nanos,
    state: CallState,
    /// The main cause of its time.
    cause: Option<Cause>,
}

#[derive(Default)]
struct Piece {
    total: u64,
    costliest: Vec<Judged>,
    /// Every `stride`th call.
    even: Vec<Judged>,
    stride: u64,
}

/// The latest calls.
#[derive(Default)]
pub struct CallSample {
    pieces: VecDeque<Piece>,
    /// Pieces begun since the start; the last one is being filled.
    begun: u64,
    since: Time,
}

impl CallSample {
    /// Takes a modelled call.
    pub fn call(&mut self, event: &Event, prediction: &Prediction, cause: Option<Cause>) {
        if let Some(piece) = self.pieces.back_mut() {
            let &Prediction { cost, state, .. } = prediction;
            piece.take(Judged { event: *event, cost, state, cause });
        }
    }

    pub fn pass(&mut self, now: Time) {
        if self.pieces.is_empty() || now.since(self.since) >= PIECE {
            self.since = now;
            self.begun += 1;
            if self.pieces.len() == PIECES {
                self.pieces.pop_front();
            }
            self.pieces.push_back(Piece { stride: 1, ..Piece::default() });
        }
    }

    /// Calls of the complete pieces after number `seen`, and the number to ask with next time; None: no
    /// calls, but the number.
    pub fn answer(&self, seen: Option<u64>, clocks: &Clocks) -> (Calls, u64) {
        let complete = self.begun.saturating_sub(1);
        let seen = seen.unwrap_or(complete);
        let oldest = self.begun - self.pieces.len() as u64;
        let pieces = (seen.max(oldest)..complete).filter_map(|n| self.pieces.get((n - oldest) as usize));
        let mut total = 0;
        let (mut costliest, mut even): (Vec<&Judged>, Vec<&Judged>) = (Vec::new(), Vec::new());
        for piece in pieces {
            total += piece.total;
            costliest.extend(&piece.costliest);
            even.extend(&piece.even);
        }
        costliest.sort_by_key(|call| std::cmp::Reverse(call.event.duration));
        costliest.truncate(ANSWERED / 2);
        let chosen = even.iter().step_by(even.len().div_ceil(ANSWERED / 2).max(1)).copied();
        let mut calls: Vec<&Judged> = costliest.into_iter().chain(chosen).collect();
        let order = |call: &&Judged| (call.event.start, call.event.pid, call.event.tid, call.event.duration);
        calls.sort_by_key(order);
        calls.dedup_by_key(|call| order(call));
        let status = |call: &Judged| CallStatus {
            time_s: clocks.unix_of_monotonic(Time(call.event.start)),
            pid: call.event.pid,
            op: call.event.op.name().to_owned(),
            bytes: kernel_bytes(&call.event),
            observed_s: call.event.duration as f64 / 1e9,
            predicted_s: call.cost.as_seconds(),
            state: call.state.name().to_owned(),
            cause: call.cause.map_or("", Cause::name).to_owned(),
        };
        let calls = calls.into_iter().map(status).collect();
        (Calls { schema: PROTOCOL, total, calls }, complete)
    }
}

impl Piece {
    fn take(&mut self, call: Judged) {
        if self.total.is_multiple_of(self.stride) {
            if self.even.len() == 2 * KEPT {
                let mut keep = false;
                self.even.retain(|_| {
                    keep = !keep;
                    keep
                });
                self.stride *= 2;
            }
            if self.total.is_multiple_of(self.stride) {
                self.even.push(call);
            }
        }
        self.total += 1;
        let cost = call.event.duration;
        if self.costliest.len() < KEPT || self.costliest[KEPT - 1].event.duration < cost {
            let at = self.costliest.partition_point(|other| other.event.duration >= cost);
            self.costliest.insert(at, call);
            self.costliest.truncate(KEPT);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cawl_wire::Op;

    fn call(sample: &mut CallSample, at: u64, duration: u64) {
        let mut event = Event::new(Op::Write);
        (event.start, event.duration, event.returned) = (at, duration, 1);
        sample.call(&event, &Prediction::default(), None);
    }

    #[test]
    fn the_costliest_and_an_even_choice() {
        let mut sample = CallSample::default();
        sample.pass(Time(1));
        for at in 0..100_000 {
            call(&mut sample, at, if at == 31_234 { 1_000_000 } else { at % 10 });
        }
        assert_eq!(sample.answer(Some(0), &Clocks::default()).0.total, 0, "it is not complete yet");
        sample.pass(Time(1_000_000_000));
        let (calls, seen) = sample.answer(Some(0), &Clocks::default());
        assert_eq!((calls.total, seen), (100_000, 1));
        assert!(calls.calls.len() <= 3 * KEPT && calls.calls.len() > KEPT);
        assert!(calls.calls.iter().any(|call| call.observed_s == 1e-3));
        assert!(calls.calls.is_sorted_by_key(|call| call.time_s));
        let even: Vec<f64> = calls.calls.iter().map(|call| call.time_s).collect();
        assert!(even.iter().any(|at| *at > 9e-5) && even.iter().any(|at| *at < 1e-5), "{even:?}");
        assert_eq!(sample.answer(Some(seen), &Clocks::default()).0, Calls { schema: 1, ..Calls::default() });
    }

    #[test]
    fn an_answer_is_bounded_and_so_is_what_is_kept() {
        let mut sample = CallSample::default();
        for piece in 0..1000 {
            sample.pass(Time(piece * 200_000_000));
            for at in 0..100 {
                call(&mut sample, piece * 200_000_000 + at, at);
            }
        }
        assert_eq!(sample.pieces.len(), PIECES);
        let (calls, seen) = sample.answer(Some(0), &Clocks::default());
        assert_eq!((calls.total, seen), ((PIECES as u64 - 1) * 100, 999));
        assert!(calls.calls.len() <= ANSWERED);
    }
}
