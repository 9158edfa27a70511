//! What explaining takes: analyses that explain nothing, causes only, and all (densities and patterns too)
//! take the same calls in turns; printed are the medians of the turns and of their differences, in ns a call.
//!
//! Usage: cargo bench -p cawld --bench causes [-- nothing|causes|all]
//!
//! With a word only that analysis takes 100 000 calls, for a profiler.

use std::hint::black_box;
use std::time::Instant;

use cawl_core::{Analysis, AnalysisOptions, Bytes, DirtyLimits, Explaining, HostProfile, Mode, Record};
use cawl_wire::{Event, FileKind, Op};

const TURNS: usize = 400;
const CALLS: u64 = 5_000;
const BLOCK: u64 = 4096;

/// Writes of 4 KiB over the first `blocks` of a file again and again.
struct Load {
    analysis: Analysis,
    event: Event,
    blocks: u64,
    random: u64,
}

impl Load {
    fn new(explaining: Explaining, blocks: u64) -> Load {
        let models = vec!["kernel".to_owned()];
        let options = AnalysisOptions { models, mode: Mode::Lockstep, explaining, ..Default::default() };
        let mut profile = HostProfile::uncalibrated();
        profile.kernel.limits = DirtyLimits { background: Bytes(1 << 40), hard: Bytes(1 << 41) };
        let analysis = Analysis::with(&profile, &options).expect("a known model");
        let mut event = Event::new(Op::Write);
        (event.kind, event.dev, event.ino, event.fd) = (FileKind::Regular, 1, 7, 3);
        (event.pid, event.tid) = (1, 1);
        (event.offset, event.requested, event.returned) = (0, BLOCK, BLOCK as i64);
        Load { analysis, event, blocks, random: 1 }
    }

    /// Takes the next calls; ns for each of them.
    fn turn(&mut self) -> f64 {
        let records: Vec<Record> = (0..CALLS).map(|_| self.next()).collect();
        let began = Instant::now();
        for record in &records {
            black_box(self.analysis.take(record));
        }
        began.elapsed().as_nanos() as f64 / CALLS as f64
    }

    /// The next call, which takes 400 to 1424 ns.
    fn next(&mut self) -> Record {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.event.offset = (self.event.offset + BLOCK) % (self.blocks * BLOCK);
        self.event.start = self.event.end() + 100;
        self.event.duration = 400 + self.random % 1024;
        Record::Event(self.event)
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let depths = [Explaining::Nothing, Explaining::Causes, Explaining::All];
    let again = ("4 KiB over the same 64 MB", 16_384);
    let wanted = ["nothing", "causes", "all"].map(|word| std::env::args().any(|of| of == word));
    if let Some(depth) = wanted.iter().position(|wanted| *wanted) {
        let mut load = Load::new(depths[depth], again.1);
        return (0..20).for_each(|_| _ = load.turn());
    }
    println!("{:32}{:>10}{:>10}{:>24}", "ns a call", "nothing", "+ causes", "+ densities, patterns");
    for (label, blocks) in [again, ("4 KiB at the end of a file", 1 << 40)] {
        let mut loads = depths.map(|depth| Load::new(depth, blocks));
        loads.iter_mut().for_each(|load| _ = load.turn());
        let turns: Vec<[f64; 3]> = (0..TURNS).map(|_| loads.each_mut().map(Load::turn)).collect();
        let of = |value: fn(&[f64; 3]) -> f64| median(turns.iter().map(value).collect());
        let (nothing, causes, rest) = (of(|t| t[0]), of(|t| t[1] - t[0]), of(|t| t[2] - t[1]));
        println!("{label:32}{nothing:10.0}{causes:10.0}{rest:24.0}");
    }
}
