//! A modelled machine: a model, and what a kernel knows of files and descriptors.
//!
//! What a call is follows from the descriptor it is made on: which file, where in it, through which flags.
//! The model is shown the event that the tracer would have made of it, and nothing else. Its answer is passed
//! on as it is.

use cawl_model::{Bytes, CostModel, DirtyLimits, HostProfile, Time, build};
use cawl_wire::{Event, FileId, FileKind, MAX_BYTES, Op, flag};
use rustc_hash::FxHashMap;

use crate::cost::cawl_cost;
use crate::status::{Failure, Outcome, cawl_status::*};

/// cawl_open: to read from.
pub const CAWL_READ: u32 = 1;
/// cawl_open: to write to.
pub const CAWL_WRITE: u32 = 2;
/// cawl_open: the file is made if it is not there (O_CREAT).
pub const CAWL_CREATE: u32 = 4;
/// cawl_open: the file is cut off to nothing (O_TRUNC).
pub const CAWL_TRUNCATE: u32 = 8;
/// cawl_open: each write goes to the end of the file (O_APPEND).
pub const CAWL_APPEND: u32 = 16;
/// cawl_open: data and metadata are on the device when a write returns (O_SYNC).
pub const CAWL_SYNC: u32 = 32;
/// cawl_open: data are on the device when a write returns (O_DSYNC).
pub const CAWL_DSYNC: u32 = 64;
/// cawl_open: past the page cache (O_DIRECT).
pub const CAWL_DIRECT: u32 = 128;
/// cawl_open: a stream of the C library, as fopen makes one: only for cawl_fwrite, cawl_fflush, cawl_seek and
/// cawl_close.
pub const CAWL_STREAM: u32 = 256;

/// Who makes a call: numbers of the caller's choice. A thread belongs to one process.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct cawl_task {
    /// Whose descriptors and streams are used.
    pub process: u32,
    /// Which thread is held back when it has dirtied too much.
    pub thread: u32,
}

/// A file of the modelled machine: numbers of the caller's choice.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct cawl_file {
    /// The device that it lies on. One that the profile does not know by number has the constants of its
    /// `device`.
    pub device: u64,
    /// Which of the device's files.
    pub inode: u64,
}

/// A file that has a name or a descriptor.
#[derive(Clone, Copy, Default)]
struct Node {
    id: FileId,
    size: u64,
    descriptors: u32,
    unlinked: bool,
}

#[derive(Clone, Copy)]
struct Descriptor {
    node: usize,
    process: u32,
    /// As given to cawl_open.
    opened: u32,
    /// The same as [`flag`].
    flags: u32,
    offset: u64,
}

/// A modelled machine.
pub struct cawl_machine {
    model: Box<dyn CostModel>,
    /// When the latest call began, in ns.
    latest: u64,
    names: FxHashMap<cawl_file, usize>,
    nodes: Vec<Node>,
    free_nodes: Vec<usize>,
    descriptors: Vec<Option<Descriptor>>,
    free_descriptors: Vec<usize>,
    /// Files made so far.
    births: u32,
    /// Bytes of a page.
    page: u64,
    /// The model is at work, or a panic left it there.
    at_work: bool,
}

impl cawl_machine {
    pub fn new(profile: &HostProfile, model: &str) -> Outcome<cawl_machine> {
        let built = build(model, profile).ok_or_else(|| {
            let models = cawl_model::MODELS.join(", ");
            Failure::new(CAWL_ERROR_MODEL, format!("there is no model `{model}`; the models are {models}"))
        })?;
        Ok(cawl_machine::of(built, profile.kernel.page.0))
    }

    fn of(model: Box<dyn CostModel>, page: u64) -> cawl_machine {
        cawl_machine {
            model,
            latest: 0,
            names: FxHashMap::default(),
            nodes: Vec::new(),
            free_nodes: Vec::new(),
            descriptors: Vec::new(),
            free_descriptors: Vec::new(),
            births: 0,
            page,
            at_work: false,
        }
    }

    pub fn fork(&self) -> Outcome<cawl_machine> {
        self.sound()?;
        Ok(cawl_machine {
            model: self.model.fork(),
            names: self.names.clone(),
            nodes: self.nodes.clone(),
            free_nodes: self.free_nodes.clone(),
            descriptors: self.descriptors.clone(),
            free_descriptors: self.free_descriptors.clone(),
            ..*self
        })
    }

    fn sound(&self) -> Outcome<()> {
        if self.at_work { Err(Failure::new(CAWL_ERROR_INTERNAL, "an earlier call failed")) } else { Ok(()) }
    }

    /// What the model does; nothing more if it panics.
    #[inline(always)]
    pub fn with_model<T>(&mut self, work: impl FnOnce(&mut dyn CostModel) -> T) -> Outcome<T> {
        self.sound()?;
        self.at_work = true;
        let result = work(self.model.as_mut());
        self.at_work = false;
        Ok(result)
    }

    #[inline(always)]
    fn may_begin(&self, now: u64) -> Outcome<()> {
        if now >= self.latest {
            return self.sound();
        }
        Err(Failure::new(CAWL_ERROR_TIME, format!("{now} ns is before {} ns", self.latest)))
    }

    /// Lets time pass; calls begin no earlier afterwards.
    pub fn advance(&mut self, now: u64) -> Outcome<()> {
        self.with_model(|model| model.advance(Time(now)))?;
        self.latest = self.latest.max(now);
        Ok(())
    }

    /// Shows the model a call that begins at `now`, in ns, and fills in the cost. (A prediction is a
    /// kilobyte: it is read where the model puts it.)
    #[inline(always)]
    fn step(&mut self, event: &mut Event, now: u64, bytes: u64, cost: &mut cawl_cost) -> Outcome<()> {
        self.may_begin(now)?;
        event.start = now;
        // As `with_model` does, which is not inlined.
        self.at_work = true;
        let prediction = self.model.step(event);
        cost.fill(prediction.as_ref(), now, bytes);
        (self.at_work, self.latest) = (false, now);
        Ok(())
    }

    #[inline(always)]
    fn event(op: Op, task: cawl_task, id: FileId) -> Event {
        let (pid, tid, kind) = (task.process, task.thread, FileKind::Regular);
        let FileId { dev, ino, birth } = id;
        Event { pid, tid, kind, dev, ino, birth, ..Event::new(op) }
    }

    #[inline(always)]
    fn descriptor(&self, task: Option<cawl_task>, number: i32) -> Outcome<Descriptor> {
        let found = self.descriptors.get(number as usize).copied().flatten();
        let is_own = |of: &Descriptor| task.is_none_or(|task| task.process == of.process);
        Ok(found.filter(is_own).ok_or(CAWL_ERROR_DESCRIPTOR)?)
    }

    /// A descriptor that was opened for this.
    #[inline(always)]
    fn opened_for(&self, access: u32, (task, number): (cawl_task, i32)) -> Outcome<Descriptor> {
        let of = self.descriptor(Some(task), number)?;
        if of.opened & access != access || (of.opened ^ access) & CAWL_STREAM != 0 {
            return Err(CAWL_ERROR_ACCESS.into());
        }
        Ok(of)
    }

    /// The event of a call on a descriptor.
    #[inline(always)]
    fn on(&self, op: Op, (task, number): (cawl_task, i32), of: &Descriptor) -> Event {
        let event = cawl_machine::event(op, task, self.nodes[of.node].id);
        Event { fd: number, flags: of.flags, ..event }
    }

    fn node(&self, file: cawl_file) -> Outcome<usize> {
        Ok(*self.names.get(&file).ok_or(CAWL_ERROR_NO_FILE)?)
    }

    fn make(&mut self, file: cawl_file, size: u64) -> usize {
        self.births = self.births % (i32::MAX as u32) + 1;
        let id = FileId { dev: file.device, ino: file.inode, birth: self.births };
        let at = self.free_nodes.pop().unwrap_or(self.nodes.len());
        self.nodes.resize(self.nodes.len().max(at + 1), Node::default());
        self.nodes[at] = Node { id, size, ..Node::default() };
        self.names.insert(file, at);
        at
    }

    /// A file that was there before, of which all or nothing is cached.
    pub fn add_file(&mut self, file: cawl_file, size: u64, cached: bool) -> Outcome<()> {
        if self.names.contains_key(&file) {
            return Err(CAWL_ERROR_EXISTS.into());
        }
        check_end(size, 0)?;
        self.sound()?;
        let at = self.make(file, size);
        // The kernel's answer in 64 ranges of whole pages, as the tracer tells it.
        let mut event =
            cawl_machine::event(Op::Resident, cawl_task { process: 0, thread: 0 }, self.nodes[at].id);
        event.start = self.latest;
        event.offset = size.div_ceil(64).max(1).next_multiple_of(self.page);
        if cached && size > 0 {
            event.requested = u64::MAX >> (64 - size.div_ceil(event.offset));
            event.returned = size as i64;
        }
        self.with_model(|model| _ = model.step(&event))
    }

    pub fn open(
        &mut self,
        task: cawl_task,
        file: cawl_file,
        opened: u32,
        now: u64,
        cost: &mut cawl_cost,
    ) -> Outcome<i32> {
        let writable = opened & CAWL_WRITE != 0;
        if opened >= 2 * CAWL_STREAM || opened & (CAWL_READ | CAWL_WRITE) == 0 {
            return Err(Failure::new(CAWL_ERROR_VALUE, format!("no way to open a file: {opened:#x}")));
        }
        if !writable && opened & (CAWL_TRUNCATE | CAWL_APPEND | CAWL_STREAM) != 0 {
            let why = "CAWL_TRUNCATE, _APPEND and _STREAM go with CAWL_WRITE";
            return Err(Failure::new(CAWL_ERROR_VALUE, why));
        }
        let number = self.free_descriptors.last().copied().unwrap_or(self.descriptors.len());
        let fd = i32::try_from(number).map_err(|_| CAWL_ERROR_VALUE)?;
        let known = self.node(file);
        let created = known.is_err();
        if created && opened & CAWL_CREATE == 0 {
            return Err(CAWL_ERROR_NO_FILE.into());
        }
        let bits = [
            (CAWL_WRITE, flag::WRITABLE),
            (CAWL_APPEND, flag::APPEND),
            (CAWL_SYNC, flag::SYNC),
            (CAWL_DSYNC, flag::DSYNC),
            (CAWL_DIRECT, flag::DIRECT),
        ];
        let flags = bits.iter().filter(|(bit, _)| opened & bit != 0).fold(0, |all, (_, flag)| all | flag);
        let op = if opened & CAWL_STREAM != 0 { Op::StreamOpen } else { Op::Open };
        self.may_begin(now)?;
        let node = known.unwrap_or_else(|_| self.make(file, 0));
        let mut event = cawl_machine::event(op, task, self.nodes[node].id);
        (event.fd, event.returned, event.flags) = (fd, fd.into(), flags);
        if created {
            event.flags |= flag::CREATED;
        } else if opened & CAWL_TRUNCATE != 0 {
            event.flags |= flag::TRUNC;
            event.offset = std::mem::take(&mut self.nodes[node].size);
        }
        event.requested = self.nodes[node].size;
        self.step(&mut event, now, 0, cost)?;
        let descriptor = Descriptor { node, process: task.process, opened, flags, offset: 0 };
        self.descriptors.resize(self.descriptors.len().max(number + 1), None);
        self.descriptors[number] = Some(descriptor);
        self.free_descriptors.pop();
        self.nodes[node].descriptors += 1;
        Ok(fd)
    }

    pub fn close(&mut self, task: cawl_task, number: i32, now: u64, cost: &mut cawl_cost) -> Outcome<()> {
        let of = self.descriptor(Some(task), number)?;
        let op = if of.opened & CAWL_STREAM != 0 { Op::StreamClose } else { Op::Close };
        let mut event = self.on(op, (task, number), &of);
        let node = self.nodes[of.node];
        if node.descriptors == 1 {
            event.flags |= flag::LAST | if node.unlinked { flag::GONE } else { 0 };
        }
        self.step(&mut event, now, 0, cost)?;
        self.descriptors[number as usize] = None;
        self.free_descriptors.push(number as usize);
        self.nodes[of.node].descriptors -= 1;
        self.forget(of.node)
    }

    /// Nothing leads to the file any more, if so.
    fn forget(&mut self, at: usize) -> Outcome<()> {
        let node = self.nodes[at];
        if node.unlinked && node.descriptors == 0 {
            self.free_nodes.push(at);
            self.with_model(|model| model.gone(node.id))?;
        }
        Ok(())
    }

    /// write at the descriptor's position, or pwrite `at` a place of its own; or fwrite. All in bytes.
    #[inline(always)]
    pub fn write(
        &mut self,
        op: Op,
        on: (cawl_task, i32),
        bytes: u64,
        at: Option<u64>,
        now: u64,
        cost: &mut cawl_cost,
    ) -> Outcome<()> {
        let stream = if op == Op::StreamWrite { CAWL_STREAM } else { 0 };
        let of = self.opened_for(CAWL_WRITE | stream, on)?;
        let mut event = self.on(op, on, &of);
        let end_of_file = self.nodes[of.node].size;
        let appends = of.opened & CAWL_APPEND != 0;
        // pwrite appends, too, if the descriptor does.
        event.offset = if appends { end_of_file } else { at.unwrap_or(of.offset) };
        let end = check_end(event.offset, bytes)?;
        (event.requested, event.returned) = (bytes, bytes as i64);
        self.step(&mut event, now, bytes, cost)?;
        if let (None, Some(descriptor)) = (at, &mut self.descriptors[on.1 as usize]) {
            descriptor.offset = end;
        }
        if bytes > 0 {
            self.nodes[of.node].size = end_of_file.max(end);
        }
        Ok(())
    }

    /// read at the descriptor's position, or pread `at` a place of its own, up to the end of the file. In
    /// bytes.
    pub fn read(
        &mut self,
        on: (cawl_task, i32),
        bytes: u64,
        at: Option<u64>,
        now: u64,
        cost: &mut cawl_cost,
    ) -> Outcome<()> {
        let op = if at.is_some() { Op::Pread } else { Op::Read };
        let of = self.opened_for(CAWL_READ, on)?;
        let mut event = self.on(op, on, &of);
        event.offset = at.unwrap_or(of.offset);
        check_end(event.offset, bytes)?;
        let got = bytes.min(self.nodes[of.node].size.saturating_sub(event.offset));
        (event.requested, event.returned) = (bytes, got as i64);
        self.step(&mut event, now, got, cost)?;
        if let (None, Some(descriptor)) = (at, &mut self.descriptors[on.1 as usize]) {
            descriptor.offset += got;
        }
        Ok(())
    }

    /// A call on a descriptor that moves nothing of the caller's: fsync, fdatasync, fflush.
    pub fn flush(&mut self, op: Op, on: (cawl_task, i32), now: u64, cost: &mut cawl_cost) -> Outcome<()> {
        let of = if op == Op::StreamFlush {
            self.opened_for(CAWL_STREAM, on)?
        } else {
            // A stream's, too.
            self.descriptor(Some(on.0), on.1)?
        };
        let mut event = self.on(op, on, &of);
        self.step(&mut event, now, 0, cost)
    }

    pub fn seek(&mut self, number: i32, offset: u64) -> Outcome<()> {
        self.descriptor(None, number)?;
        check_end(offset, 0)?;
        if let Some(descriptor) = &mut self.descriptors[number as usize] {
            descriptor.offset = offset;
        }
        Ok(())
    }

    pub fn truncate(
        &mut self,
        task: cawl_task,
        file: cawl_file,
        size: u64,
        now: u64,
        cost: &mut cawl_cost,
    ) -> Outcome<()> {
        let at = self.node(file)?;
        let mut event = cawl_machine::event(Op::Truncate, task, self.nodes[at].id);
        event.offset = size;
        check_end(size, 0)?;
        self.step(&mut event, now, 0, cost)?;
        self.nodes[at].size = size;
        Ok(())
    }

    pub fn unlink(
        &mut self,
        task: cawl_task,
        file: cawl_file,
        now: u64,
        cost: &mut cawl_cost,
    ) -> Outcome<()> {
        let at = self.node(file)?;
        let node = self.nodes[at];
        let mut event = cawl_machine::event(Op::Unlink, task, node.id);
        event.requested = node.size;
        event.flags = if node.descriptors > 0 { flag::HELD } else { 0 };
        self.step(&mut event, now, 0, cost)?;
        self.lose_name(file, at)
    }

    fn lose_name(&mut self, file: cawl_file, at: usize) -> Outcome<()> {
        self.names.remove(&file);
        self.nodes[at].unlinked = true;
        self.forget(at)
    }

    /// A file gets another name: that of `replaced`, which loses it, or one that was free.
    pub fn rename(
        &mut self,
        task: cawl_task,
        file: cawl_file,
        replaced: Option<cawl_file>,
        now: u64,
        cost: &mut cawl_cost,
    ) -> Outcome<()> {
        let renamed = self.nodes[self.node(file)?].id;
        // Of two names of one file neither goes.
        let Some(replaced) = replaced.filter(|replaced| *replaced != file) else {
            let mut event = cawl_machine::event(Op::Rename, task, renamed);
            (event.offset, event.buffer, event.aux) = (renamed.ino, renamed.birth, 1);
            return self.step(&mut event, now, 0, cost);
        };
        if replaced.device != file.device {
            return Err(Failure::new(CAWL_ERROR_VALUE, "a rename does not go from device to device"));
        }
        let at = self.node(replaced)?;
        let node = self.nodes[at];
        let mut event = cawl_machine::event(Op::Rename, task, node.id);
        (event.offset, event.buffer, event.requested) = (renamed.ino, renamed.birth, node.size);
        event.flags = if node.descriptors > 0 { flag::HELD } else { 0 };
        self.step(&mut event, now, 0, cost)?;
        self.lose_name(replaced, at)
    }

    /// The dirty limits are now these, in bytes.
    pub fn set_limits(&mut self, background: u64, hard: u64) -> Outcome<()> {
        if background >= hard {
            let why = format!("limits of {background} and {hard} bytes: background must be below hard");
            return Err(Failure::new(CAWL_ERROR_VALUE, why));
        }
        let limits = DirtyLimits { background: Bytes(background), hard: Bytes(hard) };
        self.with_model(|model| model.set_limits(limits))
    }
}

/// Where so many bytes at this place end, if there are such calls and files.
#[inline(always)]
fn check_end(offset: u64, bytes: u64) -> Outcome<u64> {
    let end = offset.checked_add(bytes).filter(|end| *end <= i64::MAX as u64 && bytes <= MAX_BYTES as u64);
    let far = || format!("{bytes} bytes at {offset}: a call moves at most 2^40, and a file ends below 2^63");
    end.ok_or_else(|| Failure::new(CAWL_ERROR_VALUE, far()))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
