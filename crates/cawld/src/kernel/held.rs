//! What is told of processes that the tracer's library may tell of, too.
//!
//! The library's session is known a moment after its first call. Until then what the probes saw is held; it
//! is taken back if the library has it, so that no call counts twice.

use std::collections::VecDeque;
use std::time::Duration;

use cawl_core::Time;
use tokio::time::Instant;

use crate::engine::Input;

/// From a process's begin until it is taken for one without the library, if it was started with it.
const STARTS_WITHIN: Duration = Duration::from_secs(1);
/// From a call until the library's session would be known: in a copy of a process it begins late. Less than
/// the engine waits for late calls.
const KNOWN_WITHIN: Duration = Duration::from_millis(100);

/// What is held of a session of the probes.
pub struct Held {
    /// The process.
    pub pid: u32,
    /// When its image began and ended; 0: before it was met.
    pub image: (Time, Option<Time>),
    /// Something of it was told: it was taken for one without the library.
    pub is_told: bool,
    until: Instant,
    inputs: VecDeque<(Instant, Input)>,
}

impl Held {
    /// A process whose image begins, if it may have the library: by its environment, or as a copy of one that
    /// has (`of_traced`: its parent). The environment of one that has ended already cannot be read.
    pub fn new(pid: u32, began: Time, of_traced: bool, is_copy: bool) -> Option<Held> {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let starts_it = |variable: &[u8]| {
            variable.starts_with(b"LD_PRELOAD=") && variable.windows(4).any(|part| part == b"cawl")
        };
        let may_begin = environment.split(|byte| *byte == 0).any(starts_it)
            || of_traced && (is_copy || environment.is_empty());
        let within = if may_begin { STARTS_WITHIN } else { KNOWN_WITHIN };
        (may_begin || environment.is_empty()).then(|| Held {
            pid,
            image: (began, None),
            is_told: false,
            until: Instant::now() + within,
            inputs: VecDeque::new(),
        })
    }

    /// Holds this.
    pub fn push(&mut self, input: Input) {
        self.inputs.push_back((Instant::now(), input));
    }

    /// The next that the library would have told by now; None: the next.
    pub fn pop(&mut self, now: Option<Instant>) -> Option<Input> {
        let until = self.until;
        let is_due =
            |(since, _): &mut (Instant, Input)| now.is_none_or(|now| now >= until.max(*since + KNOWN_WITHIN));
        let (_, input) = self.inputs.pop_front_if(is_due)?;
        self.is_told = true;
        Some(input)
    }

    /// Nothing more will come, and nothing is left.
    pub fn is_over(&self) -> bool {
        self.image.1.is_some() && self.inputs.is_empty()
    }

    /// What is left of it when the library's session began then: of one that was told, the calls before.
    pub fn take_back(self, began: Time) -> impl Iterator<Item = Input> {
        let before = move |(_, mut input): (Instant, Input)| {
            if let Input::Events { batch, .. } = &mut input {
                batch.events.retain(|event| event.start < began.0);
            }
            input
        };
        self.inputs.into_iter().filter(move |_| self.is_told).map(before)
    }
}
