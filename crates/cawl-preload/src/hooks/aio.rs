//! Asynchronous writes: POSIX aio and libaio. Bytes are counted when they are handed over, because their
//! completion belongs to nobody's call; so each event is an estimate. The control blocks are read before
//! the call: once handed over, another thread may have had the answer and freed them.

use crate::guard::{self, UNSEEN};
use crate::record::did;
use crate::{real, sys, uplink};
use cawl_wire::{Op, flag};
use core::ffi::{c_int, c_long, c_void};
use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use libc::{aiocb, iovec};

/// Control blocks looked at in one call; further ones are counted as unseen.
const AT_ONCE: usize = 64;
/// `aux` of an event: the C library's threads write, and the kernel counts that in `wchar`.
const BY_THREADS: u32 = 1;
/// The kernel writes by itself, and counts nothing.
const BY_KERNEL: u32 = 2;

const LIO_WRITE: c_int = 1;

/// libaio's control block.
#[repr(C)]
pub struct Block {
    data: *mut c_void,
    key: [u32; 2],
    opcode: i16,
    priority: i16,
    fd: c_int,
    buffer: *const c_void,
    length: u64,
    offset: i64,
}
const KERNEL_WRITE: i16 = 1;
const KERNEL_WRITEV: i16 = 8;

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

/// The writes of one call.
pub struct Requests {
    list: [Request; AT_ONCE],
    /// The number of the control block that each came from, plus one.
    block: [c_long; AT_ONCE],
    count: usize,
    left_out: u64,
}

impl Requests {
    const fn new() -> Requests {
        let none = Request { fd: -1, offset: 0, length: 0 };
        Requests { list: [none; AT_ONCE], block: [0; AT_ONCE], count: 0, left_out: 0 }
    }

    fn add(&mut self, block: c_long, request: Request) {
        match (self.list.get_mut(self.count), self.block.get_mut(self.count)) {
            (Some(place), Some(number)) => {
                (*place, *number) = (request, block + 1);
                self.count += 1;
            }
            _ => self.left_out += 1,
        }
    }

    /// # Safety
    /// `block` must be null or a control block of the program's.
    unsafe fn add_posix(&mut self, number: c_long, block: *const aiocb) {
        if block.is_null() {
            return;
        }
        // SAFETY: the caller's promise.
        let request = unsafe {
            Request {
                fd: (*block).aio_fildes,
                offset: (*block).aio_offset as u64,
                length: (*block).aio_nbytes as u64,
            }
        };
        self.add(number, request);
    }

    /// The writes among libaio's control blocks.
    ///
    /// # Safety
    /// As io_submit takes them.
    pub unsafe fn of_kernel(count: c_long, blocks: *const *const Block) -> Requests {
        let mut requests = Requests::new();
        // SAFETY: the caller's promise.
        unsafe {
            for number in 0..count.max(0) {
                let block = if blocks.is_null() { core::ptr::null() } else { *blocks.add(number as usize) };
                if block.is_null() {
                    break;
                }
                let block = &*block;
                let length = match block.opcode {
                    KERNEL_WRITE => block.length,
                    KERNEL_WRITEV => {
                        let parts = block.buffer.cast::<iovec>();
                        (0..block.length as usize).map(|at| (*parts.add(at)).iov_len as u64).sum()
                    }
                    _ => continue,
                };
                requests.add(number, Request { fd: block.fd, offset: block.offset as u64, length });
            }
        }
        requests
    }

    /// Records the writes of the first `accepted` control blocks.
    pub fn record(&self, start: u64, accepted: c_long, aux: u32) {
        if accepted <= 0 {
            return;
        }
        UNSEEN.fetch_add(self.left_out, Relaxed);
        for (request, block) in self.list.iter().zip(&self.block).take(self.count) {
            if *block > accepted {
                break;
            }
            did(Op::AioWrite, start, request.fd, request.length as i64, |event| {
                event.requested = request.length;
                event.offset = request.offset;
                event.aux = aux;
                event.flags |= flag::ESTIMATED;
            });
        }
    }

    /// The same for the kernel's own.
    pub fn record_kernel(&self, start: u64, accepted: c_long) {
        self.record(start, accepted, BY_KERNEL);
    }
}

hooks! {
    fn aio_write, aio_write64(block: *mut aiocb) -> c_int {
        if !uplink::active() {
            return real::aio_write(block);
        }
        let mut requests = Requests::new();
        requests.add_posix(0, block);
        let start = sys::now();
        let returned = real::aio_write(block);
        requests.record(start, c_long::from(returned == 0), BY_THREADS);
        returned
    }

    // A barrier that is asked for and not waited for: no bytes, and no time to compare.
    fn aio_fsync, aio_fsync64(operation: c_int, block: *mut aiocb) -> c_int {
        if !uplink::active() || block.is_null() {
            return real::aio_fsync(operation, block);
        }
        let fd = (*block).aio_fildes;
        let start = sys::now();
        let returned = real::aio_fsync(operation, block);
        did(Op::AioWrite, start, fd, i64::from(returned), |event| event.flags |= flag::ESTIMATED);
        returned
    }

    fn lio_listio, lio_listio64(
        mode: c_int, list: *const *mut aiocb, count: c_int, event: *mut c_void,
    ) -> c_int {
        if !uplink::active() || list.is_null() {
            return real::lio_listio(mode, list, count, event);
        }
        let mut requests = Requests::new();
        for number in 0..usize::try_from(count).unwrap_or(0) {
            let block = *list.add(number);
            if !block.is_null() && (*block).aio_lio_opcode == LIO_WRITE {
                requests.add_posix(number as c_long, block);
            }
        }
        let start = sys::now();
        let returned = real::lio_listio(mode, list, count, event);
        // EIO: some were accepted and failed later; EAGAIN: some were not, and nobody says which.
        if returned == 0 || guard::errno() == libc::EIO {
            requests.record(start, c_long::from(count), BY_THREADS);
        }
        returned
    }

    // libaio's; other programs have no function of this name.
    fn io_submit(context: *mut c_void, count: c_long, blocks: *const *const Block) -> c_int {
        if !uplink::active() {
            return real::io_submit(context, count, blocks);
        }
        let requests = Requests::of_kernel(count, blocks);
        let start = sys::now();
        let returned = real::io_submit(context, count, blocks);
        // Some versions of libaio go through syscall(), whose hook has recorded it then.
        if !HANDED_ON.load(Relaxed) {
            requests.record_kernel(start, c_long::from(returned));
        }
        returned
    }
}
