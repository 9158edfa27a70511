//! Asynchronous writes: POSIX aio and libaio. Bytes are counted at submission, because no call returns at
//! their completion; so each event is an estimate. The control blocks are read before the call: after it,
//! another thread may have taken the result and freed them. The kernel has not checked them yet, so they are
//! copied by way of `memory`.

use crate::base::thread::thread;
use crate::base::{clock, guard, memory, real, sys};
use crate::hooks::emit::did;
use crate::session;
use cawl_wire::{Op, flag};
use core::ffi::{c_int, c_long, c_void};
use core::mem::offset_of;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use libc::{aiocb, iovec};

/// Control blocks looked at in one call; further ones are counted as unseen.
const AT_ONCE: usize = 128;
/// Calls under way at the same time that can be followed; further ones are counted as unseen.
const CALLS: usize = 16;
/// Control blocks copied in one piece, on the stack.
const PIECE: usize = 4;
/// Vectors of one call, at most (IOV_MAX); the kernel refuses more.
pub const VECTORS: usize = 1024;
/// `aux` of an event: the C library's threads write, and the kernel counts that in `wchar`.
const BY_THREADS: u32 = 1;
/// The kernel writes by itself, and counts nothing.
const BY_KERNEL: u32 = 2;

const LIO_WRITE: c_int = 1;
/// The length of what is no write.
const NONE: u64 = u64::MAX;

/// What io_submit takes pointers to.
#[repr(C)]
pub struct Block {
    data: *mut c_void,
    key: [u32; 2],
    request: KernelRequest,
}

/// The part of it that says what to do.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelRequest {
    opcode: i16,
    priority: i16,
    fd: c_int,
    buffer: *const c_void,
    length: u64,
    offset: i64,
}
const KERNEL_WRITE: i16 = 1;
const KERNEL_WRITEV: i16 = 8;

/// The first part of an aiocb.
#[repr(C)]
#[derive(Clone, Copy)]
struct PosixRequest {
    fd: c_int,
    opcode: c_int,
    priority: c_int,
    buffer: *const c_void,
    length: usize,
}
const _: () = assert_layout();

const fn assert_layout() {
    let _: [(); offset_of!(aiocb, aio_nbytes)] = [(); offset_of!(PosixRequest, length)];
    let _: [(); offset_of!(aiocb, aio_lio_opcode)] = [(); offset_of!(PosixRequest, opcode)];
}

/// True once an io_submit came through syscall(): if libaio's does, it always does, and a program that
/// makes the call itself has no use for libaio's.
static HANDED_ON: AtomicBool = AtomicBool::new(false);

/// An io_submit came through syscall().
pub fn handed_on() {
    HANDED_ON.store(true, Relaxed);
}

/// One write that was handed over.
#[derive(Clone, Copy)]
struct Request {
    fd: c_int,
    offset: u64,
    length: u64,
}

impl Request {
    const NOTHING: Request = Request { fd: -1, offset: 0, length: NONE };

    /// What an aiocb asks for, with its opcode; None if it cannot be read.
    fn of_posix(block: *const aiocb) -> Option<(c_int, Request)> {
        // SAFETY: numbers and a pointer that is not followed may be any bytes.
        unsafe {
            let head = memory::value(block.cast::<PosixRequest>())?;
            let offset = memory::value(block.wrapping_byte_add(offset_of!(aiocb, aio_offset)).cast::<u64>())?;
            Some((head.opcode, Request { fd: head.fd, offset, length: head.length as u64 }))
        }
    }

    fn of_kernel(block: &KernelRequest) -> Request {
        let length = match block.opcode {
            KERNEL_WRITE => block.length,
            KERNEL_WRITEV => sum(block.buffer.cast(), block.length).unwrap_or(NONE),
            _ => NONE,
        };
        Request { fd: block.fd, offset: block.offset as u64, length }
    }

    fn record(&self, start: u64, aux: u32) {
        if self.length == NONE {
            return;
        }
        did(Op::AioWrite, start, self.fd, self.length as i64, |event| {
            event.requested = self.length;
            event.offset = self.offset;
            event.aux = aux;
            event.flags |= flag::ESTIMATED;
        });
    }
}

/// Bytes of a vector; None if it cannot be read.
fn sum(parts: *const iovec, count: u64) -> Option<u64> {
    let count = usize::try_from(count).unwrap_or(VECTORS).min(VECTORS);
    let mut total = 0u64;
    for at in (0..count).step_by(PIECE) {
        let mut found = [iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; PIECE];
        let from = core::array::from_fn(|step| parts.wrapping_add(at + step));
        let wanted = (count - at).min(PIECE);
        // SAFETY: a pointer that is not followed and a number may be any bytes.
        if !unsafe { memory::values(from, wanted, &mut found) } {
            return None;
        }
        total = found.iter().take(wanted).fold(total, |sum, part| sum.saturating_add(part.iov_len as u64));
    }
    Some(total)
}

/// The writes of a call under way. Not on the stack, of which a hook may take little, but in one of a few
/// places that a thread keeps for the length of a call.
struct Place {
    /// The thread (upper half) and the number of its call; 0 if the place is free.
    owner: AtomicU64,
    list: [[AtomicU64; 3]; AT_ONCE],
}

static PLACES: [Place; CALLS] = [const {
    Place { owner: AtomicU64::new(0), list: [const { [const { AtomicU64::new(0) }; 3] }; AT_ONCE] }
}; CALLS];
/// The number of the next call.
static NEXT: AtomicU32 = AtomicU32::new(1);

impl Place {
    /// A place for this thread. One that it has already is that of a call which this one interrupted, or
    /// which was jumped out of: it is taken over, and the interrupted call will find so. One whose thread has
    /// ended (by cancellation) is free.
    fn claim() -> Option<(&'static Place, u64)> {
        let ids = thread().ids();
        let (tid, pid) = (ids >> 32, ids as u32);
        let mark = tid << 32 | u64::from(NEXT.fetch_add(1, Relaxed));
        let take =
            |place: &&Place, from: u64| place.owner.compare_exchange(from, mark, AcqRel, Relaxed).is_ok();
        let owner = |place: &&Place| place.owner.load(Acquire);
        let is_gone = |owner: u64| !sys::is_thread(pid, (owner >> 32) as u32);
        let mut places = PLACES.iter();
        let own = PLACES.iter().find(|place| owner(place) >> 32 == tid && take(place, owner(place)));
        own.or_else(|| PLACES.iter().find(|place| take(place, 0)))
            .or_else(|| places.find(|place| is_gone(owner(place)) && take(place, owner(place))))
            .map(|place| (place, mark))
    }
}

/// The writes of one call.
pub struct Requests {
    /// Where they are, and by which mark.
    place: Option<(&'static Place, u64)>,
    /// How many control blocks were copied.
    copied: usize,
}

impl Requests {
    fn new() -> Requests {
        Requests { place: Place::claim(), copied: 0 }
    }

    fn add(&mut self, request: Request) {
        if let Some((place, _)) = self.place
            && let Some(words) = place.list.get(self.copied)
        {
            let values = [request.fd as u32 as u64, request.offset, request.length];
            words.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
            self.copied += 1;
        }
    }

    /// The writes among libaio's control blocks: as many as can be read.
    pub fn of_kernel(count: c_long, blocks: *const *const Block) -> Requests {
        let mut requests = Requests::new();
        let count = usize::try_from(count).unwrap_or(0).min(AT_ONCE);
        let nothing = KernelRequest {
            opcode: -1,
            priority: 0,
            fd: -1,
            buffer: core::ptr::null(),
            length: 0,
            offset: 0,
        };
        while requests.place.is_some() && requests.copied < count {
            let wanted = (count - requests.copied).min(PIECE);
            let (mut list, mut found) = ([core::ptr::null::<Block>(); PIECE], [nothing; PIECE]);
            let from = core::array::from_fn(|at| blocks.wrapping_add(requests.copied + at));
            // SAFETY: numbers, and pointers that are not followed, may be any bytes.
            let all = unsafe {
                memory::values(from, wanted, &mut list) && {
                    let places = list.map(|block| block.wrapping_byte_add(offset_of!(Block, request)).cast());
                    memory::values(places, wanted, &mut found)
                }
            };
            if !all {
                break;
            }
            found.iter().take(wanted).for_each(|block| requests.add(Request::of_kernel(block)));
        }
        requests
    }

    /// The writes in a list for lio_listio.
    fn of_posix(count: c_int, list: *const *mut aiocb) -> Requests {
        let mut requests = Requests::new();
        for number in 0..usize::try_from(count).unwrap_or(0).min(AT_ONCE) {
            // SAFETY: a pointer that is not followed may be any bytes.
            let request = match unsafe { memory::value(list.wrapping_add(number)) } {
                Some(block) if block.is_null() => Request::NOTHING,
                Some(block) => match Request::of_posix(block) {
                    Some((LIO_WRITE, request)) => request,
                    Some(_) => Request::NOTHING,
                    None => break,
                },
                None => break,
            };
            requests.add(request);
        }
        requests
    }

    /// Records the writes of the first `accepted` control blocks.
    fn record(self, start: u64, accepted: c_long, aux: u32) {
        let accepted = usize::try_from(accepted).unwrap_or(0);
        let Some((place, mark)) = self.place else {
            guard::UNSEEN.fetch_add(accepted as u64, Relaxed);
            return;
        };
        let mut seen = 0;
        if place.owner.load(Acquire) == mark {
            seen = accepted.min(self.copied);
            for words in place.list.iter().take(seen) {
                let [fd, offset, length] = words.each_ref().map(|word| word.load(Relaxed));
                Request { fd: fd as c_int, offset, length }.record(start, aux);
            }
            let _ = place.owner.compare_exchange(mark, 0, Release, Relaxed);
        }
        guard::UNSEEN.fetch_add((accepted - seen) as u64, Relaxed);
    }

    /// Records the writes of the first `accepted` control blocks of the kernel's own kind (io_submit).
    pub fn record_kernel(self, start: u64, accepted: c_long) {
        self.record(start, accepted, BY_KERNEL);
    }
}

hooks! {
    fn aio_write, aio_write64(block: *mut aiocb) -> c_int {
        if !session::active() {
            return next(block);
        }
        let request = Request::of_posix(block);
        let start = clock::now();
        let returned = next(block);
        match request {
            Some((_, request)) if returned == 0 => request.record(start, BY_THREADS),
            None if returned == 0 => guard::count_unseen(),
            _ => {}
        }
        returned
    }

    // A barrier that is asked for and not waited for: no bytes, and no time to compare.
    fn aio_fsync, aio_fsync64(operation: c_int, block: *mut aiocb) -> c_int {
        if !session::active() {
            return next(operation, block);
        }
        let request = Request::of_posix(block);
        let start = clock::now();
        let returned = next(operation, block);
        if let Some((_, request)) = request {
            did(Op::AioFsync, start, request.fd, i64::from(returned), |event| event.flags |= flag::ESTIMATED);
        }
        returned
    }

    fn lio_listio, lio_listio64(
        mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut c_void,
    ) -> c_int {
        if !session::active() {
            return next(mode, list, count, event);
        }
        let requests = Requests::of_posix(count, list);
        let start = clock::now();
        let returned = next(mode, list, count, event);
        // EIO: some were accepted and failed later; EAGAIN: some were not, and it is unknown which.
        let accepted = if returned == 0 || guard::errno() == libc::EIO { count } else { 0 };
        requests.record(start, c_long::from(accepted), BY_THREADS);
        returned
    }

    // libaio's; other programs have no function of this name.
    fn io_submit(context: *mut c_void, count: c_long, blocks: *const *const Block) -> c_int {
        if !session::active() {
            return real::io_submit(context, count, blocks.cast());
        }
        let requests = Requests::of_kernel(count, blocks);
        let start = clock::now();
        let returned = real::io_submit(context, count, blocks.cast());
        // Some versions of libaio go through syscall(), whose hook has recorded it then.
        let accepted = if HANDED_ON.load(Relaxed) { 0 } else { returned };
        requests.record_kernel(start, c_long::from(accepted));
        returned
    }
}
