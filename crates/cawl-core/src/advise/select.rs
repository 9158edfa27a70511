//! Which changes to try: what a report tells of files and causes, as far as time is in it.

use super::words::{self, Scope, file_name};
use super::{Candidate, FILES, Kind, Tried, WORTH, rank};
use crate::cause::Cause;
use crate::limits::DirtyLimits;
use crate::patterns::{FilePatterns, OpPatterns};
use crate::profile::HostProfile;
use crate::quantity::short;
use crate::report::{FileReport, Report};
use crate::units::Bytes;
use crate::whatif::{Ledger, Request, Rewrite, SyncsKept};

/// Candidates at most, since each costs a run through the trace; and combinations.
const MAX: usize = 12;
const COMBINED: usize = 6;
/// A gain that is large enough to look for more beside it.
const LARGE: f64 = 0.2;
/// A change is of one file where so much of the time is in that one.
const ALMOST_ALL: f64 = 0.8;
/// Bytes after which the device is told to begin.
const PACE: u64 = 8 << 20;
/// By how much limits are other ones.
const LIMITS: u64 = 4;
/// Sizes of writes and buffers.
const SIZES: [(u64, &str); 2] = [(64 << 10, "64K"), (1 << 20, "1M")];

const PLAIN: [&str; 4] = ["write", "pwrite", "writev", "pwritev"];
const STREAM: [&str; 4] = ["fwrite", "fflush", "fseek", "fclose"];
const SYNCS: [&str; 2] = ["fsync", "fdatasync"];
const THROTTLE: [Cause; 2] = [Cause::Throttle, Cause::FlusherBeside];
const DEVICE: [Cause; 6] =
    [Cause::Throttle, Cause::Journal, Cause::Queue, Cause::Transfer, Cause::Seek, Cause::DeviceFlush];
const COPY: [Cause; 4] = [Cause::Copy, Cause::NewPages, Cause::ColdMemory, Cause::Throttle];

struct Used<'a> {
    file: &'a FileReport,
    patterns: &'a FilePatterns,
}

impl Used<'_> {
    /// Observed seconds of these operations.
    fn in_ops(&self, ops: &[&str]) -> f64 {
        let of = self.file.ops.iter().filter(|op| ops.contains(&op.op.as_str()));
        of.map(|op| op.observed_s).sum()
    }

    /// Observed seconds of these syncs; none if all failed: no change of their number makes them safe.
    fn in_syncs(&self, ops: &[&str]) -> f64 {
        if self.patterns.syncs.is_some() { self.in_ops(ops) } else { 0.0 }
    }

    /// Observed seconds for these causes.
    fn by(&self, causes: &[Cause]) -> f64 {
        let of = self.file.ops.iter().flat_map(|op| op.causes.iter());
        of.filter(|(name, _)| causes.iter().any(|cause| cause.name() == *name)).map(|(_, s)| s).sum()
    }

    fn pattern(&self, op: &str) -> Option<&OpPatterns> {
        self.patterns.ops.iter().find(|pattern| pattern.op == op)
    }

    /// Seconds in operations whose pattern is such.
    fn where_each(&self, ops: &[&str], is: impl Fn(&OpPatterns) -> bool) -> f64 {
        let of = ops.iter().filter(|op| self.pattern(op).is_some_and(&is));
        of.map(|op| self.in_ops(&[op])).sum()
    }

    /// Writes between two syncs, on average; endless without syncs.
    fn writes_a_sync(&self) -> f64 {
        self.patterns.syncs.map_or(f64::INFINITY, |syncs| syncs.writes.mean)
    }

    /// Part of the writes that come in no sequence.
    fn apart(&self) -> f64 {
        let of = |count: fn(&OpPatterns) -> u64| -> u64 {
            PLAIN.iter().filter_map(|op| self.pattern(op)).map(count).sum()
        };
        of(|op| op.random + op.strided) as f64 / of(|op| op.calls).max(1) as f64
    }

    /// Seconds of small writes, one behind the other.
    fn small_writes(&self, size: u64) -> f64 {
        self.where_each(&PLAIN, |op| {
            op.calls > 1 && op.bytes < op.calls.saturating_mul(size / 2) && op.sequential * 2 >= op.calls
        })
    }

    /// Seconds of streams that are emptied by small writes.
    fn small_buffers(&self, size: u64) -> f64 {
        let of = STREAM.iter().filter_map(|op| self.pattern(op));
        let (calls, bytes) = of.fold((0, 0), |sum, op| (sum.0 + op.calls, sum.1 + op.bytes));
        if calls > 1 && bytes > 0 && bytes < calls * (size / 2) { self.in_ops(&STREAM) } else { 0.0 }
    }

    /// Seconds of writes that are durable when they return.
    fn synchronous(&self) -> f64 {
        let of = self.file.ops.iter().filter(|op| !SYNCS.contains(&op.op.as_str()));
        let of = of.filter(|op| op.states.get("sync").is_some_and(|calls| *calls * 2 > op.calls));
        of.map(|op| op.observed_s).sum()
    }

    /// True if all writes begin and end at blocks, and are large.
    fn is_in_blocks(&self) -> bool {
        let mut all = self.patterns.ops.iter().filter(|op| PLAIN.contains(&op.op.as_str())).peekable();
        all.peek().is_some()
            && all.all(|op| op.block_aligned == op.calls && op.bytes >= op.calls.saturating_mul(SIZES[0].0))
    }
}

/// A trace's report, in search of advice.
pub struct Case<'a> {
    report: &'a Report,
    profile: &'a HostProfile,
    files: Vec<Used<'a>>,
    /// Observed seconds of all calls on files.
    total: f64,
}

impl<'a> Case<'a> {
    /// Of a report with patterns and causes, and the profile that the paper goes by.
    pub fn new(report: &'a Report, profile: &'a HostProfile) -> Case<'a> {
        let used = |file: &'a FileReport| Some(Used { file, patterns: file.patterns.as_ref()? });
        let files: Vec<Used<'_>> = report.files.iter().filter_map(used).collect();
        let total = files.iter().flat_map(|used| &used.file.ops).map(|op| op.observed_s).sum();
        Case { report, profile, files, total }
    }

    /// The files that a change would be of, if it can touch enough time; `seconds`: of a file's calls, those
    /// that it can touch.
    fn scope(&self, seconds: &dyn Fn(&Used<'_>) -> f64) -> Option<Scope> {
        let mut files: Vec<(f64, &Used<'_>)> =
            self.files.iter().map(|used| (seconds(used), used)).filter(|(s, _)| *s > 0.0).collect();
        files.sort_by(|a, b| b.0.total_cmp(&a.0));
        let all: f64 = files.iter().map(|(s, _)| s).sum();
        let (most, first) = files.first()?;
        if all < WORTH * self.total {
            return None;
        }
        let FileReport { path, first_path, .. } = first.file;
        // Calls before a file was renamed are on another name.
        let is_one = *most >= ALMOST_ALL * all && !path.is_empty() && first_path.is_none();
        let named = files.iter().take(if is_one { 1 } else { FILES }).map(|(_, used)| &used.file.path);
        let pid = first.patterns.writers.first().map(|writer| writer.pid);
        // Of the programs that the process ran one after another, the one that wrote.
        let images = self.report.sessions.iter().filter(|session| Some(session.pid) == pid);
        let program = images.max_by_key(|session| session.seen_bytes);
        let bytes = first.patterns.ops.iter().map(|op| op.bytes).sum();
        let is_journal = |path: &str| path.ends_with("-journal") || path.ends_with("-wal");
        let journal_of = |path: &str| {
            self.files.iter().any(|used| used.file.path.strip_prefix(path).is_some_and(is_journal))
        };
        let named: Vec<String> = named.filter(|path| !path.is_empty()).cloned().collect();
        Some(Scope {
            on: is_one.then(|| path.clone()),
            more: if is_one { 0 } else { files.len().saturating_sub(named.len()) as u64 },
            files: named,
            program: program
                .map(|session| file_name(&session.program).to_owned())
                .filter(|name| !name.is_empty()),
            journaled: is_journal(path) || !path.is_empty() && journal_of(path),
            buffered: first.patterns.buffer.as_ref().map(|buffer| buffer.language),
            bytes,
            seconds: all,
        })
    }

    /// The changes to try, those first that can touch most time.
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut all: Vec<(f64, Candidate)> = Vec::new();
        let mut add = |scope: Option<Scope>, kind: Kind, changes: &[(&str, &str)]| {
            all.extend(scope.and_then(|scope| Some((scope.seconds, candidate(kind, &scope, changes)?))));
        };
        for (size, name) in SIZES {
            add(self.scope(&|used| used.small_buffers(size)), Kind::Buffer, &[("buffer", name)]);
            let small = |used: &Used<'_>| {
                if used.writes_a_sync() < 2.0 { 0.0 } else { used.small_writes(size) }
            };
            add(self.scope(&small), Kind::Merge, &[("merge", name)]);
        }
        let synced = self.scope(&|used| used.in_syncs(&SYNCS));
        add(synced.clone(), Kind::SyncEvery, &[("fsync", "every=16")]);
        add(synced, Kind::SyncEnd, &[("fsync", "end")]);
        add(self.scope(&|used| used.in_syncs(&["fsync"])), Kind::Fdatasync, &[("fdatasync", "")]);
        let paired = |used: &Used<'_>| if used.writes_a_sync() <= 2.0 { used.in_ops(&SYNCS) } else { 0.0 };
        add(self.scope(&paired), Kind::Dsync, &[("dsync", "on"), ("fsync", "none")]);
        let off = [("sync", "off"), ("dsync", "off"), ("fsync", "close")];
        add(self.scope(&|used| used.synchronous()), Kind::SyncOff, &off);
        let growing = |used: &Used<'_>| if used.apart() < 0.5 { used.by(&[Cause::Journal]) } else { 0.0 };
        add(self.scope(&growing), Kind::Preallocate, &[("preallocate", "")]);
        let scattered = |used: &Used<'_>| if used.apart() > WORTH { used.by(&DEVICE) } else { 0.0 };
        let scattered = self.scope(&scattered);
        add(scattered.clone(), Kind::Sort, &[("sort", "")]);
        add(scattered, Kind::AppendOnly, &[("append-only", "")]);
        let late = |used: &Used<'_>| {
            let much = used.patterns.syncs.is_some_and(|syncs| syncs.bytes.mean >= 2.0 * PACE as f64);
            used.by(&THROTTLE) + if much { used.in_ops(&SYNCS) } else { 0.0 }
        };
        add(self.scope(&late), Kind::Pace, &[("pace", &short(PACE))]);
        let blocks = |used: &Used<'_>| if used.is_in_blocks() { used.by(&COPY) } else { 0.0 };
        add(self.scope(&blocks), Kind::Direct, &[("direct", "on")]);
        for (_, merged) in all.iter_mut().filter(|(_, candidate)| candidate.kind == Kind::Merge) {
            // What is gathered is not durable yet.
            let is_durable =
                |used: &&Used<'_>| merged.files.contains(&used.file.path) && used.synchronous() > 0.0;
            if self.files.iter().any(|used| is_durable(&used)) {
                merged.risk = Kind::SyncEvery.risk();
            }
        }
        all.extend(self.limits());
        all.extend(self.elsewhere());
        // Of equal ones the order above remains.
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        all.into_iter().map(|(_, candidate)| candidate).take(MAX).collect()
    }

    /// Higher limits, and an earlier flusher.
    fn limits(&self) -> Vec<(f64, Candidate)> {
        let Some(scope) = self.scope(&|used| used.by(&THROTTLE)) else { return Vec::new() };
        let host = self.report.host.as_ref();
        let told = host.map(|host| DirtyLimits { background: host.background, hard: host.hard });
        let now = told.filter(|limits| !limits.hard.is_zero()).unwrap_or(self.profile.kernel.limits);
        let room = host.map_or(u64::MAX, |host| host.memory.0 / 2);
        let whole = |bytes: u64| Bytes((bytes >> 20 << 20).max(1 << 20));
        let higher = DirtyLimits {
            background: whole(now.background.0.saturating_mul(LIMITS)),
            hard: whole(now.hard.0.saturating_mul(LIMITS)),
        };
        let lower = DirtyLimits { background: whole(now.background.0 / LIMITS), hard: whole(now.hard.0) };
        let fits = |limits: &DirtyLimits| {
            *limits != now && limits.background.0 < limits.hard.0 && limits.hard.0 <= room.max(now.hard.0)
        };
        let change = |limits: DirtyLimits| {
            let DirtyLimits { background, hard } = limits;
            let bytes = format!("{}M,{}M", background.0 >> 20, hard.0 >> 20);
            let moved = if hard > now.hard { "higher dirty limits" } else { "an earlier begin of writeback" };
            let of_all = Scope { on: None, ..scope.clone() };
            let candidate = candidate(Kind::Limits, &of_all, &[("limits", &bytes)])?;
            let (what, how) = (moved.to_owned(), words::limits(limits));
            Some((scope.seconds, Candidate { what, how, ..candidate }))
        };
        [lower, higher].into_iter().filter(fits).filter_map(change).collect()
    }

    /// The file that waits most for its device, on the best of the other devices that the trace knows.
    fn elsewhere(&self) -> Option<(f64, Candidate)> {
        let better = |device: &crate::profile::DeviceConstants| {
            device.fsync.value.get() + (64 << 20) as f64 * 1e9 / device.writeback.value.get()
        };
        let others = self.profile.others.iter();
        let other = others.min_by(|a, b| better(&a.constants).total_cmp(&better(&b.constants)))?;
        let scope = self.scope(&|used| if used.file.dev == other.dev { 0.0 } else { used.by(&DEVICE) })?;
        let on = scope.on.clone()?;
        let filesystems = self.report.host.iter().flat_map(|host| &host.filesystems);
        let mount = filesystems.into_iter().find(|one| one.dev == other.dev).map(|one| one.mount.clone());
        let mount = mount?;
        let of_all = Scope { on: None, ..scope.clone() };
        let moved = candidate(Kind::Move, &of_all, &[("move", &format!("{on}={mount}"))])?;
        let how = format!("put {on} below {mount}, which is on another device");
        Some((scope.seconds, Candidate { how, ..moved }))
    }

    /// Several changes at once, after each was tried alone: where the first gain is large.
    pub fn combinations(&self, before: &Ledger, tried: &[Tried]) -> Vec<Candidate> {
        let groups = rank::groups(before, tried, self.profile);
        let firsts: Vec<usize> = groups.iter().filter_map(|group| group.first().copied()).collect();
        let Some(top) = firsts.first().copied() else { return Vec::new() };
        if rank::gain(before, &tried[top].after) < LARGE * before.total.get() {
            return Vec::new();
        }
        let mut all: Vec<Candidate> = Vec::new();
        // Fewer syncs let writes be put together.
        if matches!(tried[top].candidate.kind, Kind::SyncEvery | Kind::SyncEnd | Kind::SyncOff)
            && let Some(scope) = self.scope(&|used| used.small_writes(SIZES[0].0))
        {
            let merged = candidate(Kind::Merge, &scope, &[("merge", SIZES[0].1)]);
            all.extend(merged.map(|merged| together(&[(top, &tried[top].candidate)], Some(&merged))));
        }
        let of = |places: &[usize]| -> Vec<(usize, &Candidate)> {
            places.iter().map(|at| (*at, &tried[*at].candidate)).collect()
        };
        let safe: Vec<usize> =
            firsts.iter().copied().filter(|at| tried[*at].candidate.risk <= Kind::Merge.risk()).collect();
        if safe.len() > 1 {
            all.push(together(&of(&safe), None));
        }
        for other in firsts.iter().skip(1) {
            let pair = [top, *other];
            if safe != pair && !excludes(&tried[top].candidate, &tried[*other].candidate) {
                all.push(together(&of(&pair), None));
            }
        }
        all.truncate(COMBINED);
        all
    }
}

/// Changes of which the one leaves nothing of what the other is about.
fn excludes(one: &Candidate, other: &Candidate) -> bool {
    let is = |candidate: &Candidate, kinds: &[Kind]| kinds.contains(&candidate.kind);
    let syncs = [Kind::SyncEvery, Kind::SyncEnd, Kind::Dsync];
    is(one, &syncs) && is(other, &syncs)
        || is(one, &[Kind::Sort, Kind::AppendOnly]) && is(other, &[Kind::Sort, Kind::AppendOnly])
        || one.changes_limits() && other.changes_limits()
}

/// A change of the files of a scope: one or several, each with its name and value.
fn candidate(kind: Kind, scope: &Scope, changes: &[(&str, &str)]) -> Option<Candidate> {
    if !words::fits(kind, scope) {
        return None;
    }
    let on = scope.on.as_deref().map(|path| ("on", path));
    let words = changes.iter().flat_map(|change| std::iter::once(*change).chain(on));
    let requests = words.map(|(name, value)| Request::of(name, value)).collect::<Result<Vec<_>, _>>();
    let requests = requests.and_then(Request::joined).inspect_err(|error| debug_assert!(false, "{error}"));
    let requests = requests.ok()?;
    let size = match requests.first()?.rewrite() {
        Some(Rewrite::Merge(size) | Rewrite::Pace(size)) => *size,
        Some(Rewrite::Buffer(size)) => u64::from(*size),
        Some(Rewrite::Syncs(SyncsKept::OneIn(count))) => u64::from(*count),
        _ => 0,
    };
    Some(Candidate {
        kind,
        what: words::what(kind, scope, size),
        requests,
        files: scope.files.clone(),
        more_files: scope.more,
        program: scope.program.clone(),
        how: words::how(kind, scope, size),
        parts: Vec::new(),
        risk: kind.risk(),
    })
}

/// Some that were tried, and perhaps another one.
fn together(tried: &[(usize, &Candidate)], more: Option<&Candidate>) -> Candidate {
    let parts: Vec<&Candidate> = tried.iter().map(|(_, candidate)| *candidate).chain(more).collect();
    let join = |of: fn(&Candidate) -> &str, with: &str| {
        parts.iter().map(|part| of(part)).collect::<Vec<_>>().join(with)
    };
    let mut files: Vec<String> = Vec::new();
    for file in parts.iter().flat_map(|part| &part.files) {
        if !files.contains(file) && files.len() < FILES {
            files.push(file.clone());
        }
    }
    Candidate {
        kind: Kind::Together,
        what: join(|part| &part.what, ", and "),
        requests: parts.iter().flat_map(|part| part.requests.clone()).collect(),
        files,
        more_files: parts.iter().map(|part| part.more_files).max().unwrap_or(0),
        program: parts.iter().find_map(|part| part.program.clone()),
        how: join(|part| &part.how, "; "),
        parts: tried.iter().map(|(at, _)| *at).collect(),
        risk: parts.iter().map(|part| part.risk).max().unwrap_or(0),
    }
}
