//! Unwinding of the copied stacks of one process.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cawl_model::record::Frame;
use cawl_wire::stack::StackRecord;
use framehop::{FrameAddress, Unwinder};

use crate::interpreter::spliced;
use crate::jit::PerfMap;
use crate::maps::Mapping;
use crate::modules::{Module, Modules};

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64 as Cache, UnwindRegsAarch64, UnwinderAarch64 as Native};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64, UnwinderX86_64 as Native};

/// Most frames of a stack, and mappings of a process.
const FRAMES: usize = 128;
const MAPPINGS: usize = 16_384;
/// Least time between two looks at what a process has mapped, or at its map for perf; and the part of all
/// time that these looks may take, as one in so many.
const AGAIN: Duration = Duration::from_millis(10);
const SHARE: u32 = 10;
/// Looks at what a process has mapped that are not limited by the two.
const UNLIMITED: u32 = 200;

/// A copied stack. Its bytes go nowhere else, a log included.
#[derive(Clone)]
pub struct RawStack {
    registers: [u64; 4],
    stack: Vec<u8>,
    interpreter: Box<[u8]>,
}

impl From<&StackRecord<'_>> for RawStack {
    fn from(record: &StackRecord<'_>) -> RawStack {
        let StackRecord { ip, sp, fp, lr, stack, interpreter, .. } = *record;
        RawStack { registers: [ip, sp, fp, lr], stack: stack.to_vec(), interpreter: interpreter.into() }
    }
}

/// Its bytes are not left in memory.
impl Drop for RawStack {
    fn drop(&mut self) {
        self.stack.fill(0);
        self.interpreter.fill(0);
        std::hint::black_box((&self.stack, &self.interpreter));
    }
}

impl std::fmt::Debug for RawStack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawStack").finish_non_exhaustive()
    }
}

impl RawStack {
    fn word(&self, address: u64) -> Result<u64, ()> {
        let at = address.checked_sub(self.registers[1]).and_then(|at| usize::try_from(at).ok()).ok_or(())?;
        let bytes = self.stack.get(at..).and_then(|rest| rest.first_chunk()).ok_or(())?;
        Ok(u64::from_le_bytes(*bytes))
    }
}

/// Where a frame's code is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// At this place of a file, told by its number ([`Modules::find`]).
    File(u32, u64),
    /// In code that was made as the program ran, and has a name.
    Named(Frame),
    /// In code that was made as the program ran: of a process, told by a number, at this address.
    Made(u64, u64),
}

/// How the program came to a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Way {
    /// Innermost first, from the function that called the C library.
    pub spots: Vec<Spot>,
    interpreter: Box<[u8]>,
    /// The outer frames are not known.
    pub truncated: bool,
}

impl Way {
    /// True if some code has no name yet, which the process may still give it.
    pub fn has_unnamed(&self) -> bool {
        self.spots.iter().any(|spot| matches!(spot, Spot::Made(..)))
    }

    /// Its frames as far as they are known without a look at a file.
    pub fn plain(&self, modules: &Modules) -> Vec<Frame> {
        let frame = |spot: &Spot| match spot {
            Spot::File(number, offset) => modules.plain(*number, *offset),
            Spot::Named(frame) => frame.clone(),
            Spot::Made(..) => Frame::default(),
        };
        spliced(self.spots.iter().map(frame).collect(), &self.interpreter)
    }

    /// Its frames with their names. May wait for a filesystem.
    pub fn named(&self, modules: &Modules, map: Option<&PerfMap>) -> Vec<Frame> {
        let mut frames = Vec::new();
        for spot in &self.spots {
            if frames.len() >= 2 * FRAMES {
                break;
            }
            match spot {
                Spot::File(number, offset) => frames.extend(modules.name(*number, *offset)),
                Spot::Named(frame) => frames.push(frame.clone()),
                Spot::Made(_, address) => {
                    frames.push(map.and_then(|map| map.find(*address)).unwrap_or_default());
                }
            }
        }
        spliced(frames, &self.interpreter)
    }
}

/// What is missing to unwind a stack, each of which may wait for a filesystem.
#[derive(Clone, Debug)]
pub enum Need {
    /// The tables of the file of this mapping: [`Process::has`].
    File(Mapping),
    /// What the process has mapped by now: [`Process::mapped`].
    Mappings,
    /// The process's map for perf: [`Process::has_map`].
    Map,
}

/// A process whose stacks are unwound.
pub struct Process {
    number: u64,
    mappings: Vec<Place>,
    unwinder: Native<Arc<[u8]>>,
    cache: Cache,
    looked: Looks,
    map: Option<Arc<PerfMap>>,
    mapped: Looks,
}

/// Looks at what may have changed.
#[derive(Default)]
struct Looks {
    began: Option<Instant>,
    next: Option<Instant>,
    count: u32,
}

impl Looks {
    /// True if it is time for another look, which begins.
    fn begin(&mut self) -> bool {
        let now = Instant::now();
        let is_time = self.next.is_none_or(|next| now >= next);
        if is_time {
            self.began = Some(now);
        }
        is_time
    }

    fn end(&mut self) {
        let took = self.began.take().map_or(Duration::ZERO, |began| began.elapsed());
        self.next = Some(Instant::now() + AGAIN.max(took * SHARE));
        self.count = self.count.saturating_add(1);
    }
}

struct Place {
    mapping: Mapping,
    /// The number of its file, once that was looked for; None of one that cannot be told.
    file: Option<Option<u32>>,
}

impl Process {
    /// One of which nothing is known, told from others by a number.
    pub fn new(number: u64) -> Process {
        Process {
            number,
            mappings: Vec::new(),
            unwinder: Native::new(),
            cache: Cache::new(),
            looked: Looks::default(),
            map: None,
            mapped: Looks::default(),
        }
    }

    /// Stacks are to be unwound that were copied before now: what a look shows now is all that they were in.
    /// So each such batch has a look, as long as there were few.
    pub fn begin_batch(&mut self) {
        if self.looked.count < UNLIMITED {
            self.looked.next = None;
        }
    }

    /// Lines of /proc/PID/maps as the process told them: they replace what was where they are.
    pub fn set_maps(&mut self, lines: &[u8]) {
        self.add(crate::maps::parse(lines));
    }

    /// The whole of /proc/PID/maps, read now; none if the process has ended.
    pub fn mapped(&mut self, lines: Option<&[u8]>) {
        self.looked.end();
        let Some(lines) = lines else { return };
        let now: Vec<Mapping> = crate::maps::parse(lines).collect();
        self.retain(|place| now.contains(&place.mapping));
        self.add(now.into_iter());
    }

    fn retain(&mut self, keep: impl Fn(&Place) -> bool) {
        if self.mappings.iter().all(&keep) {
            return;
        }
        let (kept, gone): (Vec<Place>, Vec<Place>) =
            std::mem::take(&mut self.mappings).into_iter().partition(keep);
        gone.iter().for_each(|place| self.unwinder.remove_module(place.mapping.range.start));
        self.mappings = kept;
    }

    fn add(&mut self, mappings: impl Iterator<Item = Mapping>) {
        for mapping in mappings {
            let at = self.mappings.partition_point(|place| place.mapping.range.start < mapping.range.start);
            let is_known = self.mappings.get(at).is_some_and(|place| place.mapping == mapping);
            if is_known {
                continue;
            }
            let Range { start, end } = mapping.range;
            self.retain(|place| place.mapping.range.end <= start || end <= place.mapping.range.start);
            if self.mappings.len() < MAPPINGS {
                let at = self.mappings.partition_point(|place| place.mapping.range.start < start);
                self.mappings.insert(at, Place { mapping, file: None });
            }
        }
    }

    fn place(&mut self, address: u64) -> Option<&mut Place> {
        let end = self.mappings.partition_point(|place| place.mapping.range.start <= address);
        let place = self.mappings.get_mut(..end)?.last_mut()?;
        place.mapping.range.contains(&address).then_some(place)
    }

    /// The file of a mapping was looked for.
    pub fn has(&mut self, mapping: &Mapping, file: Option<Found>) {
        let Some(place) = self.place(mapping.range.start).filter(|place| place.mapping == *mapping) else {
            return;
        };
        place.file = Some(file.as_ref().map(|found| found.file.number));
        if let Some(tables) = file.and_then(|found| found.tables) {
            self.unwinder.add_module(tables);
        }
    }

    /// Looks for the file of a mapping, of the process with this number; for [`Process::has`]. May wait for a
    /// filesystem.
    pub fn look_for(modules: &Modules, pid: u32, mapping: &Mapping) -> Option<Found> {
        let file = modules.find(pid, mapping)?;
        let tables = modules.unwinding(&file).and_then(|unwinding| unwinding.of(mapping));
        Some(Found { file, tables })
    }

    /// The process's map for perf was looked for.
    pub fn has_map(&mut self, map: Option<PerfMap>) {
        self.mapped.end();
        self.map = map.map(Arc::new).or(self.map.take());
    }

    /// The latest map.
    pub fn map(&self) -> Option<Arc<PerfMap>> {
        self.map.clone()
    }

    /// Unwinds a stack, or says what is missing for that. The frames of the file that the innermost one is
    /// in, the tracer's own, are left out.
    pub fn unwind(&mut self, raw: &RawStack) -> Result<Way, Need> {
        let [ip, sp, fp, lr] = raw.registers;
        #[cfg(target_arch = "x86_64")]
        let mut registers = {
            let _ = lr;
            UnwindRegsX86_64::new(ip, sp, fp)
        };
        #[cfg(target_arch = "aarch64")]
        let mut registers = UnwindRegsAarch64::new(lr, sp, fp);
        let mut address = FrameAddress::from_instruction_pointer(ip);
        let mut spots = Vec::new();
        let mut own = None;
        let truncated = loop {
            let spot = self.spot(address.address_for_lookup())?;
            let file = match spot {
                Some(Spot::File(number, _)) => Some(number),
                _ => None,
            };
            let own = *own.get_or_insert(file);
            match spot {
                None => break true,
                Some(_) if own.is_some() && file == own => {}
                Some(_) if spots.len() >= FRAMES => break true,
                Some(spot) => spots.push(spot),
            }
            let next = match self.through_trampoline(address, &mut registers, raw) {
                Some(next) => Ok(next),
                None => {
                    let mut read = |address| raw.word(address);
                    self.unwinder.unwind_frame(address, &mut registers, &mut self.cache, &mut read)
                }
            };
            match next.map(|next| next.and_then(FrameAddress::from_return_address)) {
                Ok(Some(next)) => address = next,
                Ok(None) => break false,
                Err(_) => break true,
            }
        };
        Ok(Way { spots, interpreter: raw.interpreter.clone(), truncated })
    }

    /// Where an address is; None if there is no code.
    fn spot(&mut self, address: u64) -> Result<Option<Spot>, Need> {
        let number = self.number;
        let Some(place) = self.place(address) else {
            return if self.looked.begin() { Err(Need::Mappings) } else { Ok(None) };
        };
        let Mapping { range, offset, path, .. } = &place.mapping;
        match (path, place.file) {
            (Some(_), None) => Err(Need::File(place.mapping.clone())),
            (Some(_), Some(Some(file))) => Ok(Some(Spot::File(file, address - range.start + offset))),
            // Beyond the files that are told apart.
            (Some(_), Some(None)) => Ok(Some(Spot::Named(Frame::default()))),
            (None, _) => match self.map.as_ref().and_then(|map| map.find(address)) {
                Some(frame) => Ok(Some(Spot::Named(frame))),
                None if self.mapped.begin() => Err(Need::Map),
                None => Ok(Some(Spot::Made(number, address))),
            },
        }
    }

    /// The return address of a trampoline of CPython's: it calls with 8 bytes of padding below its own.
    #[cfg(target_arch = "x86_64")]
    fn through_trampoline(
        &mut self,
        address: FrameAddress,
        registers: &mut UnwindRegsX86_64,
        raw: &RawStack,
    ) -> Option<Option<u64>> {
        let (address, map) = (address.address_for_lookup(), self.map.clone()?);
        // Of one that is not in the map yet, its neighbours tell.
        let made = |place: &&mut Place| place.mapping.path.is_none();
        let among = self.place(address).filter(made).map(|place| place.mapping.range.clone())?;
        let is_one = map.is_trampoline(address) || map.find(address).is_none() && map.has_trampolines(among);
        if !is_one {
            return None;
        }
        let next = raw.word(registers.sp().wrapping_add(8)).ok()?;
        registers.set_sp(registers.sp().wrapping_add(16));
        registers.set_ip(next);
        Some(Some(next))
    }

    #[cfg(target_arch = "aarch64")]
    fn through_trampoline(
        &self,
        _address: FrameAddress,
        _registers: &mut UnwindRegsAarch64,
        _raw: &RawStack,
    ) -> Option<Option<u64>> {
        // It has a frame pointer there.
        None
    }
}

/// The file of a mapping.
pub struct Found {
    file: Arc<Module>,
    /// The unwinder's view of it, if it has tables.
    tables: Option<framehop::Module<Arc<[u8]>>>,
}
