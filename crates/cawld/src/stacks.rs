//! The stacks of calls: unwound as they are read, named beside.
//!
//! The law of this module: **calls do not wait for names.** A call gets the number of its stack when it is
//! read; the functions behind the number follow as a record of their own, after a look at files that may take
//! long. What may wait for a filesystem is done [aside](Aside), within a time limit. All is bounded:
//! different stacks of the daemon, frames, what is read of a file. A copied stack is dropped once it is
//! unwound.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use cawl_core::{Frame, Stack};
use cawl_symbols::{Modules, Need, PerfMap, Process, RawStack, Way};
use rustc_hash::{FxHashMap, FxHashSet};
use tokio::time::Instant;

use crate::aside::{Aside, Late, Pending};
use crate::batch::Batch;
use crate::lock;

/// Most different stacks of the daemon; further calls have none.
const STACKS: usize = 16_384;
/// Most different stacks of a session, so that one program does not use up those of the others.
const OF_A_SESSION: usize = 4096;
/// Most bytes of names, roughly; further stacks have places in files only.
const NAMES: usize = 64 << 20;
/// Time limit for a look at a file.
const LOOK: Duration = Duration::from_secs(5);
/// Time limit for the names of some stacks, and for those that a session's end waits for.
const NAMING: Duration = Duration::from_secs(10);
/// Stacks that are named together: the end of a session waits for all before.
const TOGETHER: usize = 64;
/// Most looks for one stack: two for each frame, and some.
const LOOKS: usize = 300;
/// Numbers of stacks whose calls have not come.
const WAITING: usize = 4096;
/// Most bytes of /proc/PID/maps.
const MAPS: u64 = 16 << 20;

/// All stacks of the daemon.
#[derive(Default)]
pub struct Stacks {
    modules: Arc<Modules>,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    numbers: FxHashMap<Arc<Way>, u32>,
    named: FxHashMap<u32, Arc<Stack>>,
    /// Bytes of the names told so far.
    bytes: usize,
}

impl Stacks {
    /// The number of a stack; None beyond so many, or of a new one if there may be none.
    fn number(&self, way: &Arc<Way>, may_be_new: bool) -> Option<u32> {
        let mut known = lock(&self.known);
        let next = known.numbers.len() as u32 + 1;
        if let Some(number) = known.numbers.get(way) {
            return Some(*number);
        }
        if known.numbers.len() >= STACKS || !may_be_new {
            return None;
        }
        known.numbers.insert(Arc::clone(way), next);
        Some(next)
    }

    fn named(&self, number: u32) -> Option<Arc<Stack>> {
        lock(&self.known).named.get(&number).cloned()
    }

    /// Keeps the names of a stack, unless code may be named later.
    fn keep(&self, way: &Way, stack: Stack) -> Arc<Stack> {
        let stack = Arc::new(stack);
        if !way.has_unnamed() {
            lock(&self.known).named.insert(stack.id, Arc::clone(&stack));
        }
        stack
    }
}

/// The stacks of a process image.
pub struct SessionStacks<'a> {
    all: Arc<Stacks>,
    aside: &'a Aside,
    /// Its number here, in its own namespace, and its user's.
    pid: u32,
    inner: u32,
    uid: u32,
    process: Process,
    /// It has ended, and its number may be another's.
    gone: bool,
    /// The stacks of calls that have not come.
    waiting: FxHashMap<u32, u32>,
    told: FxHashSet<u32>,
    /// Stacks that are to be named, and those of code that may get its names until the process ends.
    unnamed: Vec<(u32, Arc<Way>)>,
    late: Vec<(u32, Arc<Way>)>,
    naming: Option<Naming>,
    /// Calls beyond the stacks that are told apart.
    pub beyond: u64,
}

struct Naming {
    ways: Vec<(u32, Arc<Way>)>,
    pending: Pending<Vec<Arc<Stack>>>,
}

impl<'a> SessionStacks<'a> {
    /// None yet, of a session with this number.
    pub fn new(
        session: u32,
        (pid, inner, uid): (u32, u32, u32),
        all: &Arc<Stacks>,
        aside: &'a Aside,
    ) -> Self {
        SessionStacks {
            all: Arc::clone(all),
            aside,
            pid,
            inner,
            uid,
            process: Process::new(session.into()),
            gone: false,
            waiting: FxHashMap::default(),
            told: FxHashSet::default(),
            unnamed: Vec::new(),
            late: Vec::new(),
            naming: None,
            beyond: 0,
        }
    }

    /// Unwinds the stacks of a batch, and gives its calls the numbers of theirs.
    pub async fn take(&mut self, batch: &mut Batch) {
        batch.modules.drain(..).for_each(|lines| self.process.set_maps(&lines));
        self.process.begin_batch();
        for (token, raw) in std::mem::take(&mut batch.stacks) {
            let Some(way) = self.unwind(&raw).await else { continue };
            drop(raw);
            let way = Arc::new(way);
            let number = self.all.number(&way, self.told.len() < OF_A_SESSION);
            let Some(number) = number else {
                self.beyond += 1;
                continue;
            };
            if self.waiting.len() >= WAITING {
                self.waiting.clear();
            }
            self.waiting.insert(token, number);
            if self.told.insert(number) {
                let list = if way.has_unnamed() { &mut self.late } else { &mut self.unnamed };
                list.push((number, way));
            }
        }
        for event in batch.events.iter_mut().filter(|event| event.stack != 0) {
            event.stack = self.waiting.remove(&event.stack).unwrap_or(0);
        }
    }

    /// None of a stack without a frame of the program's.
    async fn unwind(&mut self, raw: &RawStack) -> Option<Way> {
        for _ in 0..LOOKS {
            match self.process.unwind(raw) {
                Ok(way) => return Some(way).filter(|way| !way.spots.is_empty()),
                Err(need) => self.read_missing(need).await,
            }
        }
        None
    }

    /// Looks for what is missing. What hangs, or finds no place aside, is taken for not there.
    async fn read_missing(&mut self, need: Need) {
        let (pid, inner, uid) = (self.pid, self.inner, self.uid);
        match need {
            Need::File(mapping) => {
                let (modules, wanted) = (Arc::clone(&self.all.modules), mapping.clone());
                let found = self.done(move || Process::look_for(&modules, pid, &wanted)).await.flatten();
                self.process.has(&mapping, found);
            }
            Need::Mappings => {
                let read = move || read_maps(pid);
                let lines = if self.gone { None } else { self.done(read).await.flatten() };
                self.process.mapped(lines.as_deref());
            }
            Need::Map => {
                let map = self.done(move || PerfMap::read(pid, inner, uid)).await.flatten();
                self.process.has_map(map);
            }
        }
    }

    async fn done<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.aside.begin(LOOK, work)?.done().await.ok()
    }

    /// The stacks whose functions were found meanwhile; begins to look for those of others.
    pub fn named(&mut self) -> Vec<Arc<Stack>> {
        let mut found = Vec::new();
        if let Some(naming) = &mut self.naming
            && let Some(named) = naming.pending.ready()
        {
            found = self.end_naming(named);
        }
        if self.naming.is_none() {
            self.begin_naming(&mut found);
        }
        found
    }

    fn end_naming(&mut self, named: Result<Vec<Arc<Stack>>, Late>) -> Vec<Arc<Stack>> {
        let ways = self.naming.take().map(|naming| naming.ways).unwrap_or_default();
        named.unwrap_or_else(|_| ways.iter().map(|(id, way)| self.plain(*id, way)).collect())
    }

    fn begin_naming(&mut self, found: &mut Vec<Arc<Stack>>) {
        let mut ways = Vec::new();
        while ways.len() < TOGETHER
            && let Some((id, way)) = self.unnamed.pop()
        {
            match self.all.named(id) {
                Some(stack) => found.push(stack),
                None => ways.push((id, way)),
            }
        }
        if ways.is_empty() {
            return;
        }
        let (all, map, wanted) = (Arc::clone(&self.all), self.process.map(), ways.clone());
        let name = move || wanted.iter().map(|(id, way)| all.name(*id, way, map.as_deref())).collect();
        match self.aside.begin(NAMING, name) {
            Some(pending) => self.naming = Some(Naming { ways, pending }),
            // All places are taken by what hangs, or for a moment.
            None => self.unnamed.append(&mut ways),
        }
    }

    /// True if no stack waits for its functions, but those of code that may get names later.
    pub fn is_settled(&self) -> bool {
        self.naming.is_none() && self.unnamed.is_empty()
    }

    /// The process has ended, or the daemon ends: the functions of all stacks that have not been told, within
    /// this time; then without functions. `goes_on` is called each second.
    pub async fn finish(&mut self, limit: Duration, goes_on: impl Fn()) -> Vec<Arc<Stack>> {
        self.gone = true;
        let until = Instant::now() + limit;
        if !self.late.is_empty() {
            self.read_missing(Need::Map).await;
            let late = std::mem::take(&mut self.late);
            self.unnamed.extend(late);
        }
        let mut found = self.named();
        while !self.is_settled() && Instant::now() < until {
            let second = (Instant::now() + Duration::from_secs(1)).min(until);
            match &mut self.naming {
                Some(naming) => {
                    if let Ok(named) = tokio::time::timeout_at(second, naming.pending.done()).await {
                        found.extend(self.end_naming(named));
                    }
                }
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            goes_on();
            found.extend(self.named());
        }
        let left = self.naming.take().map(|naming| naming.ways).unwrap_or_default();
        let left = left.into_iter().chain(std::mem::take(&mut self.unnamed));
        found.extend(left.map(|(id, way)| self.plain(id, &way)).collect::<Vec<_>>());
        found
    }

    fn plain(&self, id: u32, way: &Way) -> Arc<Stack> {
        Arc::new(Stack { id, frames: way.plain(&self.all.modules), truncated: way.truncated })
    }
}

impl Stacks {
    /// May wait for a filesystem.
    fn name(&self, id: u32, way: &Way, map: Option<&PerfMap>) -> Arc<Stack> {
        let is_full = lock(&self.known).bytes > NAMES;
        let frames = if is_full { way.plain(&self.modules) } else { way.named(&self.modules, map) };
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let bytes = |frame: &Frame| {
            size_of::<Frame>() + length(&frame.function) + length(&frame.file) + length(&frame.module)
        };
        lock(&self.known).bytes += frames.iter().map(bytes).sum::<usize>();
        self.keep(way, Stack { id, frames, truncated: way.truncated })
    }
}

/// The whole of /proc/PID/maps.
fn read_maps(pid: u32) -> Option<Vec<u8>> {
    use std::io::Read;
    let mut lines = Vec::new();
    std::fs::File::open(format!("/proc/{pid}/maps")).ok()?.take(MAPS).read_to_end(&mut lines).ok()?;
    Some(lines).filter(|lines| !lines.is_empty())
}
