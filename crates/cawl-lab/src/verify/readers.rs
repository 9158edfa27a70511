//! Programs that read, on emulated disks: what `cawl-cli run` makes of them as calibrated, and a reader
//! beside a writer.
//!
//! A run of the two is a trace. `cargo test` replays those in crates/cawl-lab/recordings.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use cawl_core::{Analysis, Bytes, DirtyLimits, HostProfile, Measured, Mode, Rate, Record};
use cawl_wire::{FileKind, Op};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde_json::Value;

use super::calibrate::calibrate;
use super::traces::{keep, recorded};
use super::writers::{first, listen};
use super::{Bench, Figure};
use crate::command::run;
use crate::emulated::Lab;
use crate::{Filesystem, lowered_limits};

/// The dirty limits beside a writer.
const LIMITS: (Bytes, Bytes) = (Bytes::mib(48), Bytes::mib(96));

/// What a run takes of the page cache at most.
const WARM: Bytes = Bytes::mib(1024);

/// A disk, and how much is read and written on it.
pub(super) struct Stage {
    name: &'static str,
    disk: &'static str,
    /// MiB of the file to read.
    file: u64,
    /// MiB that are written beside it.
    written: u64,
    /// Reads at random places.
    random: u64,
}

pub(super) const SSD: Stage =
    Stage { name: "ssd", disk: "ssd,size=3", file: 256, written: 500, random: 2000 };
pub(super) const HDD: Stage = Stage { name: "hdd", disk: "hdd,size=3", file: 128, written: 200, random: 200 };

/// Programs that read, what they need, and how they are called in a folder with `big`, `tree` and `db`.
const PROGRAMS: &[(&str, &str, &str)] = &[
    ("cat", "cat", "cat big > /dev/null"),
    ("cp", "cp", "cp -r tree copy"),
    ("tar c", "tar", "tar cf - tree | cat > /dev/null"),
    ("sqlite by index", "sqlite3", "sqlite3 db < queries > /dev/null"),
    ("sqlite scan", "sqlite3", "sqlite3 db 'select sum(length(b)) from t' > /dev/null"),
    ("random 4 KiB", "true", "LAB read big --block 4096 --calls RANDOM"),
    ("dd of 4 KiB", "dd", "dd if=big of=/dev/null bs=4k status=none"),
    ("dd of 4 KiB, direct", "dd", "dd if=big of=/dev/null bs=4k iflag=direct count=4000 status=none"),
];

/// Makes what is read.
const PREPARE: &str = "set -e
head -c FILEM /dev/zero > big
mkdir tree
for d in 1 2 3 4 5 6 7 8 9 10; do
    mkdir tree/$d
    for f in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do head -c $((f * f * 300)) /dev/urandom > tree/$d/$f; done
done
if command -v sqlite3 > /dev/null; then
    sqlite3 db 'create table t(a integer primary key, b text, c integer);
        with recursive n(i) as (select 1 union all select i+1 from n where i<80000)
        insert into t select i, hex(randomblob(110)), i * 7919 % 80000 from n; create index i on t(c);'
    for i in $(seq 300); do echo \"select b from t where c >= $((i * 263 % 80000)) order by c limit 3;\"; done > queries
fi
sync";

/// A disk with what is read, and a profile of it.
fn set_up(bench: &Bench, home: &Path, stage: &Stage) -> anyhow::Result<Lab> {
    let disk = bench.disk(stage.disk.parse()?, Filesystem::Ext4)?;
    let options = ["--quick", "--max-seconds=14", "--max-bytes=1G", "--lower-limits", "--output", "PROFILE"];
    let profile = home.join("profile.toml").display().to_string();
    let options = options.map(|option| if option == "PROFILE" { profile.as_str() } else { option });
    calibrate(bench, &disk.ready.mount, home, &options)?;
    // What the disk's own process copies there is warm when the reader comes.
    let mut found = HostProfile::from_toml(&fs::read_to_string(&profile)?)?;
    found.memory.cold = None;
    fs::write(&profile, found.to_toml())?;
    let script = PREPARE.replace("FILE", &stage.file.to_string());
    run(Command::new("sh").args(["-c", &script]).current_dir(&disk.ready.mount))?;
    Ok(disk)
}

/// Drops the files in a folder, and in those in it, from the page cache.
fn drop_cached(folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            drop_cached(&entry.path())?;
        } else if entry.file_type()?.is_file() {
            posix_fadvise(&fs::File::open(entry.path())?, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
    }
    Ok(())
}

/// Fills the page cache with a file and removes it, so that what a run takes has not been taken back by a
/// virtual machine's host: cold memory has checks of its own, and hides what the disk does.
fn warm_memory(folder: &Path) -> anyhow::Result<()> {
    const PIECE: usize = 4 << 20;
    let file = tempfile::tempfile_in(folder)?;
    let data = vec![1; PIECE];
    (0..WARM.0).step_by(PIECE).try_for_each(|at| file.write_all_at(&data, at))?;
    Ok(())
}

/// Runs a command of the shell in the folder, cold, under `cawl-cli run`, whose trace and report go to
/// `home`.
pub(super) fn run_cold(bench: &Bench, home: &Path, folder: &Path, command: &str) -> anyhow::Result<()> {
    run(Command::new("sync").arg("-f").arg(folder))?;
    drop_cached(folder)?;
    let command = command.replace("LAB", &bench.lab.display().to_string());
    let files = [("--profile", "profile.toml"), ("--trace", "trace"), ("--report", "report.json")];
    let files = files.map(|(option, name)| format!("{option}={}", home.join(name).display()));
    let arguments = ["run", "--no-save"].into_iter().chain(files.iter().map(String::as_str));
    bench.cawl(home, folder, arguments.chain(["--", "sh", "-c", &command])).map(drop)
}

/// Programs that read, one after the other.
pub(super) fn programs(bench: &Bench, stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let home = tempfile::tempdir()?;
    let disk = set_up(bench, home.path(), stage)?;
    let mut figures = Vec::new();
    for (name, needs, command) in PROGRAMS {
        if run(Command::new("sh").args(["-c", &format!("command -v {needs}")])).is_err() {
            eprintln!("SKIPPED: {name}: {needs} is not installed");
            continue;
        }
        let command = command.replace("RANDOM", &stage.random.to_string());
        run_cold(bench, home.path(), &disk.ready.mount, &command)?;
        let report: Value = serde_json::from_slice(&fs::read(home.path().join("report.json"))?)?;
        let model = &report["models"][0];
        let [observed, live, calibrated] =
            [&model["observed_s"], &model["predicted_s"], &model["calibrated"]["predicted_s"]]
                .map(|figure| figure.as_f64().unwrap_or(f64::NAN));
        eprintln!("{} {name}: {observed:.3} s, live {live:.3}, as calibrated {calibrated:.3}", stage.name);
        if let Some(folder) = std::env::var_os("CAWL_KEEP") {
            let at = Path::new(&folder).join(format!("{}-{}", stage.name, name.replace(' ', "-")));
            fs::copy(home.path().join("trace"), at)?;
            fs::copy(home.path().join("profile.toml"), Path::new(&folder).join(stage.name))?;
        }
        let what = format!("{name}: predicted as calibrated / observed");
        figures.push(Figure::new(what, 1.0, calibrated / observed, 0.1, 0.0));
    }
    Ok(figures)
}

/// A writer that is held back, alone and beside a reader.
pub(super) fn beside_a_writer(bench: &Bench, stage: &Stage) -> anyhow::Result<Vec<Figure>> {
    let home = tempfile::tempdir()?;
    let disk = set_up(bench, home.path(), stage)?;
    let folder = &disk.ready.mount;
    let trace = listen()?;
    let writer = format!("dd if=/dev/zero of=out bs=1M count={} status=none", stage.written);
    let reader = "dd if=big of=/dev/null bs=256k status=none";
    let [alone, beside] = [writer.clone(), format!("{writer} & {reader}; wait")].map(|command| {
        // The first run finds none.
        drop(fs::remove_file(folder.join("out")));
        warm_memory(home.path())?;
        let limits = lowered_limits(&bench.lab, LIMITS.0, LIMITS.1)?;
        drop(trace.take()?);
        run_cold(bench, home.path(), folder, &command)?;
        let told = trace.take()?;
        drop(limits);
        let limit = Bytes(first(&told, "bdi", "limit=").context("nobody was held back")? * 4096);
        let base = first(&told, "bdi", "dirty_ratelimit=").context("a rate")? as f64 * 1024.0;
        let name = if command == writer { "writer-alone" } else { "beside" };
        let kept = home.path().join(format!("{name}-{}.cawl", stage.name));
        // What the kernel went by when it first held the writer back, which no file tells: its limit follows
        // the lowered one slowly, its rate is that of earlier writers.
        keep(&home.path().join("trace"), &kept, |profile| {
            profile.device.base_rate = Some(Measured::assumed(Rate::per_second(base)));
            profile.kernel.limits = DirtyLimits { background: LIMITS.0, hard: limit.max(LIMITS.1) };
        })?;
        if let Some(folder) = bench.recordings()? {
            fs::copy(&kept, folder.join(kept.file_name().context("a file has a name")?))?;
        }
        Beside::of(&kept)
    });
    let (alone, beside) = (alone?, beside?);
    eprintln!("{}: alone {alone:.3?}, beside a reader {beside:.3?}", stage.name);
    Ok(beside.figures(&alone))
}

/// Time of all calls, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// As it was.
    pub observed: f64,
    /// As calibrated, in lockstep.
    pub followed: f64,
    /// As calibrated, in open loop.
    pub open: f64,
}

/// A run of a writer, and of a reader beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Beside {
    /// The reader's.
    pub reads: Times,
    /// The writer's.
    pub writes: Times,
}

impl Beside {
    /// The run of a trace, by the kernel model as calibrated.
    pub fn of(trace: &Path) -> anyhow::Result<Beside> {
        Beside::changed(trace, |_| ())
    }

    /// The run of a trace, by the kernel model with a changed profile.
    pub fn changed(trace: &Path, change: impl FnOnce(&mut HostProfile)) -> anyhow::Result<Beside> {
        let (records, mut profile) = recorded(trace)?;
        change(&mut profile);
        let mut found = Beside::default();
        for mode in [Mode::Lockstep, Mode::OpenLoop] {
            let mut analysis = Analysis::new(&profile, &["kernel".to_owned()], mode)?;
            for record in &records {
                let shown = analysis.take(record);
                let (Record::Event(event), [Some(told)]) = (record, shown.predictions) else { continue };
                let times = match event.op {
                    Op::Read | Op::Pread if event.kind == FileKind::Regular => &mut found.reads,
                    Op::Write | Op::Pwrite if event.kind == FileKind::Regular => &mut found.writes,
                    _ => continue,
                };
                match mode {
                    Mode::OpenLoop => times.open += told.cost.as_seconds(),
                    _ => {
                        times.observed += event.duration as f64 * 1e-9;
                        times.followed += told.cost.as_seconds();
                    }
                }
            }
        }
        ensure!(found.writes.observed > 0.0, "nothing was written");
        Ok(found)
    }

    /// By what the reader slows the writer, in the model and in the run.
    pub fn slowed(&self, alone: &Beside) -> (f64, f64) {
        (self.writes.open / alone.writes.open, self.writes.observed / alone.writes.observed)
    }

    fn figures(&self, alone: &Beside) -> Vec<Figure> {
        let ratio = |what: &str, found: f64| Figure::new(what, 1.0, found, 0.1, 0.0);
        let (modelled, observed) = self.slowed(alone);
        vec![
            ratio("writes alone, open loop / observed", alone.writes.open / alone.writes.observed),
            ratio("reads beside, open loop / observed", self.reads.open / self.reads.observed),
            ratio("writes beside, open loop / observed", self.writes.open / self.writes.observed),
            Figure::new("writes slowed, modelled / observed", 1.0, modelled / observed, 0.2, 0.0),
        ]
    }
}
