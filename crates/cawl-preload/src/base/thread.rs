//! The thread's own record.

use crate::base::level::Level;
use crate::base::notes::Notes;
use crate::base::{hot, symbols, sys};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

/// What a thread has to itself. Lives in the initial-exec TLS block of the C half, all zero at first.
/// The fields are atomic because of signal handlers, not of other threads.
#[repr(C)]
pub struct Thread {
    /// Where on the stack the tracer was entered; zero outside of it.
    pub busy: AtomicUsize,
    /// Process id (lower half) and thread id, once asked.
    ids: AtomicU64,
    /// The thread's slot (`transport::slot::Slot`), once it has one.
    pub slot: AtomicPtr<c_void>,
    /// What a handler's call and the one that it interrupts tell each other.
    pub notes: Notes,
    /// Where the environments of programs that it starts are put together (`room::Room`).
    pub room: AtomicPtr<c_void>,
    /// The entry of `transport::pending_messages` that it writes or reads, plus one.
    pub entry: AtomicU32,
    /// Looks that `state::destinations` leaves out, and has left out, of short and long reads: a byte each.
    pub looks: AtomicU32,
}

unsafe extern "C" {
    #[cfg(any(not(target_arch = "x86_64"), test))]
    safe fn cawl_thread_here() -> *const Thread;
}

/// The calling thread's record.
#[inline(always)]
pub fn thread() -> &'static Thread {
    #[cfg(all(target_arch = "x86_64", not(test)))]
    let record = {
        let record: *const Thread;
        // SAFETY: the initial-exec sequence of the x86-64 TLS ABI: the thread pointer plus the
        // variable's offset, which the dynamic linker stored in the GOT. Memory is only read.
        unsafe {
            core::arch::asm!(
                "mov {0}, qword ptr fs:[0]",
                "add {0}, qword ptr [rip + cawl_thread@GOTTPOFF]",
                out(reg) record,
                options(pure, readonly, nostack),
            );
        }
        record
    };
    #[cfg(any(not(target_arch = "x86_64"), test))]
    let record = cawl_thread_here();
    // SAFETY: the record is zero-initialised thread-local memory of the layout of `Thread`, and no
    // reference to it leaves the thread or a hook's run, so it outlives every use.
    unsafe { &*record }
}

impl Thread {
    /// The session's process id (lower half) and the thread's id, asked of the kernel once.
    #[inline(always)]
    pub fn ids(&self) -> u64 {
        let ids = self.ids.load(Relaxed);
        if ids == 0 { self.find_ids() } else { ids }
    }

    #[cold]
    #[inline(never)]
    fn find_ids(&self) -> u64 {
        let pid = hot::pid();
        let ids = u64::from(sys::gettid()) << 32 | u64::from(pid);
        // A vfork child has its parent's record, and another number.
        if sys::getpid() == pid {
            self.ids.store(ids, Relaxed);
        }
        ids
    }

    /// True if the thread has been asked, and is not a vfork child that tells another number than its parent.
    pub fn is_known(&self) -> bool {
        self.ids.load(Relaxed) != 0
    }

    /// The thread's id.
    #[inline]
    pub fn tid(&self) -> u32 {
        (self.ids() >> 32) as u32
    }

    /// In a fork child: the thread has a new id, and whatever hook was at work is not.
    pub fn reset(&self) {
        self.ids.store(0, Relaxed);
        self.entry.store(0, Relaxed);
    }
}

/// The stack's height.
#[inline(always)]
pub fn height() -> usize {
    let height: usize;
    // SAFETY: a register is read.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!("mov {}, rsp", out(reg) height, options(nomem, nostack, preserves_flags));
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!("mov {}, sp", out(reg) height, options(nomem, nostack, preserves_flags));
    }
    height
}

/// The function that is called at the end of each thread that asks for it.
static ENDS: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
/// The key by which the C library tells of the end of a thread.
static KEY: AtomicU32 = AtomicU32::new(u32::MAX);
/// pthread_key_create and pthread_setspecific
static CREATE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());
static SET: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

type Create = unsafe extern "C" fn(*mut u32, *const c_void) -> c_int;
type Set = unsafe extern "C" fn(u32, *const c_void) -> c_int;

/// Has `ends` called at the end of each thread that asks for it. Constructor only.
pub fn on_end(ends: unsafe extern "C" fn(*mut c_void)) {
    ENDS.store(ends as *mut c_void, Relaxed);
    may_come();
}

/// A library was loaded: before version 2.34 of the C library, threads were in one of their own.
pub fn may_come() {
    if SET.load(Relaxed).is_null() && !ENDS.load(Relaxed).is_null() {
        let find = |name| symbols::find(name, symbols::hash(name), Level::Own);
        CREATE.store(find(c"pthread_key_create"), Relaxed);
        SET.store(find(c"pthread_setspecific"), Release);
    }
}

/// There are 1024 keys in a process, so the tracer takes one only if a second thread needs it.
#[cold]
fn make_key() {
    let create = CREATE.load(Relaxed);
    if create.is_null() {
        return;
    }
    let mut key = u32::MAX;
    // SAFETY: the C library's function of this name; `key` is a valid place; the destructor has the signature
    // asked for.
    unsafe {
        let create: Create = core::mem::transmute(create);
        create(&mut key, ENDS.load(Relaxed));
    }
    // Two threads may have come here; each one's key serves.
    KEY.store(key, Release);
}

/// Asks for that at the end of the calling thread; false if there can be no such thing. The first thread ends
/// with the process, or leaves what it has until then.
pub fn tell_end() -> bool {
    if thread().tid() == hot::pid() {
        return true;
    }
    let set = SET.load(Acquire);
    if set.is_null() {
        return false;
    }
    if KEY.load(Acquire) == u32::MAX {
        make_key();
    }
    let key = KEY.load(Acquire);
    // SAFETY: the C library's function of this name.
    let set: Set = unsafe { core::mem::transmute(set) };
    // The C library keeps the values of its first 32 keys inside the thread's record; beyond that it would
    // allocate.
    // SAFETY: the key was created by `make_key`; its value is not null and otherwise unused.
    key < 32 && unsafe { set(key, core::ptr::from_ref(thread()).cast()) } == 0
}
