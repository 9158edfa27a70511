//! The laws of what writes and reads cost on Linux.
//!
//! A [`CostModel`] is the page cache, the flusher, the throttle and the devices of one machine, as a program
//! meets them. It is shown the program's calls one after another, and says of each what it should cost, and
//! why. A [`HostProfile`] holds what was measured of the machine: rates, latencies, the dirty limits. Neither
//! knows anything of the run but its calls.
//!
//! The law of this crate: **pure and deterministic.** Nothing here opens a file, asks a clock or starts
//! a thread; time comes only inside the calls. Equal calls to equal models have equal costs, bit by bit.
//!
//! # Example
//!
//! A machine with limits of 64 and 128 MiB and a device that writes back 100 MB/s. A program writes 40 MiB to
//! a file, 4 MiB at a time. How much is dirty then, and what would another call cost?
//!
//! ```
//! use cawl_model::{Bytes, CallState, Cause, DirtyLimits, HostProfile, Nanos, Rate, build};
//! use cawl_wire::{Event, FileKind, Op};
//!
//! let mut profile = HostProfile::uncalibrated();
//! profile.kernel.limits = DirtyLimits { background: Bytes::mib(64), hard: Bytes::mib(128) };
//! profile.device.writeback.value = Rate::mb_per_second(100.0);
//! let mut model = build("kernel", &profile).expect("one of cawl_model::MODELS");
//!
//! let mut call = Event::new(Op::Write);
//! (call.kind, call.dev, call.ino) = (FileKind::Regular, 1, 42);
//! (call.offset, call.requested, call.returned) = (0, 4 << 20, 4 << 20);
//! for _ in 0..10 {
//!     let prediction = model.step(&call).expect("writes to files have a cost");
//!     assert_eq!(prediction.state, CallState::Free);
//!     // The next call begins where this one ended, as predicted.
//!     call.start += prediction.cost.get() as u64;
//!     call.offset += 4 << 20;
//! }
//! assert_eq!(model.state().dirty, Bytes::mib(40));
//!
//! // A copy looks ahead; the model itself stays where it is. The program goes on to 160 MiB: too much is
//! // dirty, and the kernel holds the writer back.
//! let mut ahead = model.fork();
//! let mut last = None;
//! for _ in 10..40 {
//!     let prediction = ahead.step(&call).expect("writes to files have a cost");
//!     call.start += prediction.cost.get() as u64;
//!     call.offset += 4 << 20;
//!     last = Some(prediction);
//! }
//! let last = last.expect("calls were made");
//! assert_eq!(last.state, CallState::Throttle);
//! assert!(last.parts[Cause::Throttle] > Nanos::millis(10.0));
//! assert_eq!(model.state().dirty, Bytes::mib(40));
//! ```
//!
//! [`OpenLoop`] keeps the clocks of several threads, so that a simulator need not. The models are [`MODELS`]:
//! `kernel` follows the laws of Linux ([`Kernel`]), `cawl` those of the CAWL paper, `naive` divides bytes by
//! a rate.
#![forbid(unsafe_code)]

mod block;
mod cache;
pub mod call;
pub mod cause;
mod cawl;
pub mod collections;
mod constants;
mod cost_model;
mod doubt;
pub mod filesystem;
mod folios;
mod kernel;
mod language;
pub mod limits;
mod lru;
mod memory;
pub mod mode;
mod models;
pub mod mounts;
mod naive;
pub mod named;
mod open_loop;
mod pages;
mod prediction;
pub mod profile;
pub mod quantity;
mod readahead;
pub mod record;
pub mod release;
mod share;
mod sparse;
mod stack;
pub mod stdio;
pub mod table;
mod throttle;
pub mod units;
pub mod work;
mod writeback;

pub use cause::{Cause, CostParts};
pub use cost_model::{CostModel, Disturbance, LONGEST_PAUSE, ModelState, Regime};
pub use kernel::{Conservation, Kernel, passed_over, settled_base_rate};
pub use limits::DirtyLimits;
pub use models::{MODELS, build};
pub use open_loop::OpenLoop;
pub use prediction::{CallState, Prediction};
pub use profile::HostProfile;
pub use units::{Bytes, Nanos, Rate, Seconds, Time};
