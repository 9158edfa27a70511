//! Answers of a daemon, built from the protocol's types.

use cawl_client::protocol::*;
use cawl_core::advise::{Advice, Advised, Kind, Sure};
use cawl_core::{Cause, CauseTimes, Regime};

pub const MIB: u64 = 1 << 20;
/// The time of all this: 2026-01-01 12:00:00 UTC.
pub const NOW: f64 = 1_767_268_800.0;
/// A program with markup as its name, and one that reads backwards.
pub const HOSTILE: [&str; 2] = ["<img src=x onerror=document.title='owned'>", "txt.\u{202e}gpj.sh"];
/// A file with a name of this kind.
pub const HOSTILE_PATH: &str = "/srv/<script>document.title='owned'</script>/a&amp;b";

/// A machine with throttled writers if busy; else an idle one.
pub fn status(busy: bool, time: f64, state: Regime) -> Status {
    let elapsed = time - NOW;
    let throttled = elapsed.max(0.0) * 0.5;
    let spent = cost(6.0 + 1.5 * throttled, 5.0, 3.0 + throttled);
    let device = DeviceStatus {
        device: "254:0".into(),
        name: "vda".into(),
        calls: 4000,
        bytes: 4000 * MIB,
        cost: spent,
        write_rate: Some(2e8),
        busy: Some(0.97),
        ..DeviceStatus::default()
    };
    Status {
        schema: PROTOCOL,
        version: "0.1.0".into(),
        node: "node-7".into(),
        labels: [("rack".into(), "r12".into())].into(),
        time_s: time,
        model: "kernel".into(),
        profile: "lab".into(),
        modelled_dirty_bytes: if busy { 320 * MIB } else { 2 * MIB },
        sampled_dirty_bytes: busy.then_some(310 * MIB),
        background_bytes: 200 * MIB,
        freerun_bytes: 300 * MIB,
        hard_bytes: 400 * MIB,
        state,
        throttled_rate: busy.then_some(2e8),
        dirtying_rate: if busy { 256.0 * MIB as f64 } else { 0.0 },
        error: if busy {
            ErrorStatus { total: Some(0.042), windowed: Some(0.118), dirty: Some(0.02), calls: 1234 }
        } else {
            ErrorStatus::default()
        },
        forecast: Some(Forecast {
            schema: PROTOCOL,
            rate: if busy { 256.0 * MIB as f64 } else { 0.0 },
            background_s: busy.then_some(0.0),
            throttle_s: busy.then_some(12.5),
            clean_s: Some(8.0),
        }),
        sampler: SamplerStatus {
            interval_s: 0.02,
            cpu_fraction: 0.004,
            sources: vec!["vmstat".into(), "bdi".into()],
            pressure: Some(0.3),
            paused_s: busy.then_some(1.5),
            ..SamplerStatus::default()
        },
        clients: if busy { 3 } else { 0 },
        calls: if busy { 4000 } else { 0 },
        cost: if busy { spent } else { Cost::default() },
        causes_s: if busy { causes(6.0 + elapsed, Cause::Throttle) } else { CauseSeconds::default() },
        drops: if busy { 17 } else { 0 },
        uptime_s: 3600.0 + elapsed,
        devices: if busy { vec![device] } else { Vec::new() },
        ..Status::default()
    }
}

/// Half of these seconds by the first cause, the other half by two others.
fn causes(seconds: f64, main: Cause) -> CauseSeconds {
    let ns = |part: f64| (seconds * part * 1e9) as u64;
    let parts = [(main, ns(0.5)), (Cause::Transfer, ns(0.3)), (Cause::ColdMemory, ns(0.2))];
    CauseSeconds::from(&CauseTimes::from(parts))
}

fn cost(observed_s: f64, predicted_s: f64, lost_s: f64) -> Cost {
    Cost { observed_s, predicted_s, throttled_s: lost_s, lost_s, rate: 1e6, ..Cost::default() }
}

pub fn processes(busy: bool) -> Processes {
    let row = |pid, program: &str, bytes, lost| ProcessStatus {
        pid,
        program: program.into(),
        calls: 10,
        bytes,
        cost: cost(4.0, 3.5, lost),
        causes_s: causes(4.0, Cause::Copy),
    };
    let rows =
        vec![row(11, "dd", 3 * MIB, 3.0), row(12, HOSTILE[0], 9 * MIB, 2.0), row(13, HOSTILE[1], MIB, 1.0)];
    Processes {
        schema: PROTOCOL,
        omitted: if busy { 5 } else { 0 },
        more: 0,
        processes: if busy { rows } else { Vec::new() },
    }
}

pub fn files(busy: bool) -> Files {
    let row = FileStatus {
        path: HOSTILE_PATH.into(),
        first_path: None,
        device: "254:0".into(),
        inode: 99,
        calls: 4,
        bytes: MIB,
        estimated_bytes: 0,
        cost: cost(1.0, 1.0, 0.5),
        causes_s: causes(1.0, Cause::Throttle),
    };
    Files { schema: PROTOCOL, omitted: 0, more: 0, files: if busy { vec![row] } else { Vec::new() } }
}

/// Points of equal length that end now; the last third of a busy history is throttled.
pub fn history(busy: bool, last_s: f64, points: usize) -> History {
    let span = last_s / points as f64;
    let point = |at: usize| {
        let late = at * 3 >= points * 2;
        let level = if busy { (at as u64 * 320 * MIB) / points as u64 } else { 2 * MIB };
        HistoryPoint {
            time_s: NOW - last_s + at as f64 * span,
            span_s: span,
            modelled_dirty_bytes: level,
            modelled_dirty_max_bytes: level,
            sampled_dirty_bytes: busy.then_some(level),
            sampled_dirty_max_bytes: busy.then_some(level),
            background_bytes: 200 * MIB,
            hard_bytes: 400 * MIB,
            state: if busy && late { Regime::Throttle } else { Regime::Free },
            calls: if busy { 10 } else { 0 },
            bytes: if busy { 10 * MIB } else { 0 },
            observed_s: if busy { 0.01 } else { 0.0 },
            predicted_s: if busy { 0.008 } else { 0.0 },
            throttled_s: if busy && late { 0.1 } else { 0.0 },
            causes_s: if busy { causes(0.01, Cause::Copy) } else { CauseSeconds::default() },
            ..HistoryPoint::default()
        }
    };
    History { schema: PROTOCOL, points: (0..points).map(point).collect() }
}

/// Calls by several causes; the most expensive is throttled and was predicted well.
pub fn calls() -> Calls {
    let call = |cause: &str, observed_s: f64, predicted_s: f64| CallStatus {
        cause: cause.into(),
        time_s: NOW,
        pid: 11,
        op: if cause == "journal" { "fsync" } else { "write" }.into(),
        bytes: MIB,
        observed_s,
        predicted_s,
        state: "free".into(),
    };
    let calls = vec![
        call("copy", 2e-4, 3e-4),
        call("unexpected", 4e-4, 2e-3),
        call("throttle", 0.2, 0.19),
        call("journal", 0.01, 0.011),
        call("", 1e-6, 1e-6),
    ];
    Calls { schema: PROTOCOL, total: 50, calls }
}

pub fn predicted(bytes: u64, chunk: u64) -> Predicted {
    Predicted {
        schema: PROTOCOL,
        source: Source::Daemon,
        model: "kernel".into(),
        calls: bytes / chunk,
        cost_s: 20.0,
        p10_s: Some(16.0),
        p90_s: Some(25.0),
        worst_call_s: 0.2,
        states_s: [("throttle".into(), 15.0), ("free".into(), 5.0)].into(),
        peak_dirty_bytes: 330 * MIB,
        final_dirty_bytes: 310 * MIB,
        fsync_s: 1.5,
        cold_s: 0.0,
    }
}

pub fn profile() -> ProfileAnswer {
    let constant = ConstantStatus {
        name: "device.writeback".into(),
        unit: "B/s".into(),
        configured: 200.0 * MIB as f64,
        learned: 220.0 * MIB as f64,
        p10: Some(210.0 * MIB as f64),
        p90: Some(230.0 * MIB as f64),
        samples: 4000,
    };
    ProfileAnswer {
        schema: PROTOCOL,
        configured: String::new(),
        learned: "[device]\n".into(),
        constants: vec![constant],
    }
}

/// A change that is worth it, for a program with a hostile name.
pub fn advice(for_s: f64) -> AdviceAnswer {
    let one = Advice {
        kind: Kind::SyncEvery,
        what: "one fsync for 16 records".into(),
        change: "--fsync every=16".into(),
        gain_s: 6.0,
        elapsed_gain_s: 6.0,
        ratio: 0.25,
        interval: [0.2, 0.5],
        files: vec![HOSTILE_PATH.into()],
        more_files: 0,
        program: Some(HOSTILE[0].into()),
        safety: vec!["a crash loses what up to 15 syncs made durable".into()],
        how: "call fsync once per 16 records".into(),
        sure: Sure::Likely,
        alternatives: Vec::new(),
    };
    let advice = Advised { tried: Some(9), paper_s: 8.0, advice: vec![one], more: 2, ..Advised::default() };
    AdviceAnswer { schema: PROTOCOL, for_s, calls: 800, observed_s: 7.5, advice: Some(advice) }
}
