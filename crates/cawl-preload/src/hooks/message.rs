//! Functions that compose what they write themselves: error messages, password files, statistics. How much
//! it was is asked of the kernel, which counts for each thread what it wrote. That costs some
//! microseconds; these calls are rare.

use crate::base::{clock, counters, guard, real};
use crate::hooks::emit::stream::after;
use crate::hooks::emit::{Place, happened, wrote_deep};
use crate::session;
use crate::state::glibc_file::{Stream, look_from_afar};
use crate::state::stream_table::{Before, standard_error, standard_output};
use cawl_wire::{FileKind, Op, flag};
use core::ffi::{c_char, c_int, c_uint, c_void};
use libc::FILE;

type Arguments = *mut c_void;
type Strings = *const *const c_char;

/// The state of the world before such a call.
#[repr(C)]
pub struct Moment {
    start: u64,
    wchar: u64,
    /// What the stream held, and whether the kernel's count is known.
    pending: u32,
    known: u32,
}

impl Moment {
    #[inline(never)]
    fn before(stream: Option<Stream>) -> Moment {
        let wchar = guard::keeping_errno(|| counters::wchar().thread);
        let pending = stream.map_or(0, Stream::pending);
        Moment { start: clock::now(), wchar: wchar.unwrap_or(0), pending, known: u32::from(wchar.is_some()) }
    }

    /// Bytes that this thread wrote since, `less` excepted; and whether that is an estimate.
    fn written(&self, less: u64) -> (u64, u32) {
        match guard::keeping_errno(|| counters::wchar().thread) {
            Some(now) if self.known != 0 => (now.saturating_sub(self.wchar).saturating_sub(less), 0),
            _ => (0, flag::ESTIMATED),
        }
    }

    /// The call is over: what it gave to the stream is what the kernel got and what is still pending.
    fn after(&self, stream: Stream, elsewhere: u64) {
        let (written, flags) = self.written(elsewhere);
        let pending = u64::from(stream.pending());
        let accepted = (written + pending).saturating_sub(u64::from(self.pending));
        if accepted > 0 || flags != 0 {
            let before = Before::new(self.start, self.pending);
            after(Op::StreamWrite, stream, before, accepted, accepted as i64, flags);
        }
    }

    /// The call is over: the bytes that the kernel got went straight to a descriptor.
    fn after_fd(&self, fd: c_int) {
        let (written, flags) = self.written(0);
        if written > 0 || flags != 0 {
            wrote_deep(Op::Write, self.start, fd, Place::Own, written, written as i64, flags);
        }
    }
}

macro_rules! to_stream {
    ($stream:expr, $call:expr) => {{
        if !session::active() {
            return $call;
        }
        // Where the other arguments are wrong, some of these functions do not look at the stream.
        let stream = look_from_afar($stream).map(|_| Stream::open($stream));
        let moment = Moment::before(stream);
        let returned = $call;
        if let Some(stream) = stream {
            moment.after(stream, 0);
        }
        returned
    }};
}

macro_rules! to_fd {
    ($fd:expr, $call:expr) => {{
        if !session::active() {
            return $call;
        }
        let moment = Moment::before(None);
        let returned = $call;
        moment.after_fd($fd);
        returned
    }};
}

/// Before error() or error_at_line(), which write out standard output first.
///
/// # Safety
/// `moment` must be a valid place.
unsafe extern "C" fn before_error(moment: *mut Moment) -> c_int {
    if !session::active() {
        return 0;
    }
    // SAFETY: the caller's promise; the standard streams are open or were closed by the program, whose
    // call would be wrong then without the tracer, too.
    unsafe {
        moment.write(Moment::before(Stream::if_any(standard_error())));
        let moment = moment.add(1);
        let pending = Stream::if_any(standard_output()).map_or(0, Stream::pending);
        moment.write(Moment { start: clock::now(), wchar: 0, pending, known: 0 });
    }
    1
}

/// After it.
///
/// # Safety
/// `moment` must have been filled by [`before_error`].
unsafe extern "C" fn after_error(moment: *const Moment) {
    // SAFETY: the caller's promise.
    unsafe {
        let (message, output) = (&*moment, &*moment.add(1));
        let mut flushed = 0;
        if output.pending > 0 {
            let stdout = Stream::open(standard_output());
            flushed = u64::from(output.pending.saturating_sub(stdout.pending()));
            let before = Before::new(output.start, output.pending);
            after(Op::StreamFlush, stdout, before, 0, 0, 0);
        }
        message.after(Stream::open(standard_error()), flushed);
    }
}

/// exit, the C library's.
unsafe extern "C" fn leave(status: c_int) -> ! {
    // SAFETY: the caller's call of err() or error() asks for this.
    unsafe { real::exit(status) };
    loop {
        core::hint::spin_loop();
    }
}

/// error() and error_at_line() have no form that takes a list. So all argument registers and the words
/// above the frame are handed on as they came, except that a status is held back: the exit that it asks
/// for follows after the message was counted.
macro_rules! around {
    ($($name:ident => $real:path;)*) => {
        $(
            #[cfg(all(target_arch = "x86_64", not(test)))]
            word!($name => $name);

            #[cfg(all(target_arch = "x86_64", not(test)))]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                core::arch::naked_asm!(
                    "endbr64",
                    "push rbp",
                    "mov rbp, rsp",
                    "sub rsp, 256",
                    "mov [rbp - 8], rdi",
                    "mov [rbp - 16], rsi",
                    "mov [rbp - 24], rdx",
                    "mov [rbp - 32], rcx",
                    "mov [rbp - 40], r8",
                    "mov [rbp - 48], r9",
                    "mov [rbp - 56], rax",
                    "movaps [rbp - 256], xmm0",
                    "movaps [rbp - 240], xmm1",
                    "movaps [rbp - 224], xmm2",
                    "movaps [rbp - 208], xmm3",
                    "movaps [rbp - 192], xmm4",
                    "movaps [rbp - 176], xmm5",
                    "movaps [rbp - 160], xmm6",
                    "movaps [rbp - 144], xmm7",
                    "call {real}",
                    "mov [rbp - 72], rax",
                    "lea rdi, [rbp - 128]",
                    "call {before}",
                    "mov [rbp - 64], eax",
                    // The words above the frame are needed by the real function only.
                    "sub rsp, 256",
                    "lea rsi, [rbp + 16]",
                    "mov rdi, rsp",
                    "mov ecx, 32",
                    "cld",
                    "rep movsq",
                    "xor edi, edi",
                    "cmp dword ptr [rbp - 64], 0",
                    "jne 2f",
                    "mov rdi, [rbp - 8]",
                    "2:",
                    "mov rsi, [rbp - 16]",
                    "mov rdx, [rbp - 24]",
                    "mov rcx, [rbp - 32]",
                    "mov r8, [rbp - 40]",
                    "mov r9, [rbp - 48]",
                    "mov rax, [rbp - 56]",
                    "movaps xmm0, [rbp - 256]",
                    "movaps xmm1, [rbp - 240]",
                    "movaps xmm2, [rbp - 224]",
                    "movaps xmm3, [rbp - 208]",
                    "movaps xmm4, [rbp - 192]",
                    "movaps xmm5, [rbp - 176]",
                    "movaps xmm6, [rbp - 160]",
                    "movaps xmm7, [rbp - 144]",
                    "call qword ptr [rbp - 72]",
                    "lea rsp, [rbp - 128]",
                    "cmp dword ptr [rbp - 64], 0",
                    "je 3f",
                    "lea rdi, [rbp - 128]",
                    "call {after}",
                    "mov edi, [rbp - 8]",
                    "test edi, edi",
                    "je 3f",
                    "call {exit}",
                    "3:",
                    "leave",
                    "ret",
                    real = sym $real,
                    before = sym before_error,
                    after = sym after_error,
                    exit = sym leave,
                );
            }
        )*
    };
}

around! {
    error => real::address_of_error;
    error_at_line => real::address_of_error_at_line;
}

/// getopt writes only when it finds fault with an option.
macro_rules! options {
    ($call:expr) => {{
        if !session::active() || opterr == 0 {
            return $call;
        }
        let stream = Stream::if_any(standard_error());
        let moment = Moment::before(stream);
        let returned = $call;
        if returned == c_int::from(b'?')
            && let Some(stream) = stream
        {
            moment.after(stream, 0);
        }
        returned
    }};
}

unsafe extern "C" {
    static opterr: c_int;
}

hooks! {
    word fn getopt(count: c_int, arguments: Strings, options: *const c_char) -> c_int =
        options!(real::getopt(count, arguments, options));

    word fn __posix_getopt(count: c_int, arguments: Strings, options: *const c_char) -> c_int =
        options!(real::__posix_getopt(count, arguments, options));

    word fn getopt_long(
        count: c_int, arguments: Strings, options: *const c_char, long: *const c_void, at: *mut c_int,
    ) -> c_int = options!(real::getopt_long(count, arguments, options, long, at));

    word fn getopt_long_only(
        count: c_int, arguments: Strings, options: *const c_char, long: *const c_void, at: *mut c_int,
    ) -> c_int = options!(real::getopt_long_only(count, arguments, options, long, at));

    word fn vwarn(format: *const c_char, list: Arguments) -> () =
        to_stream!(standard_error(), real::vwarn(format, list));

    word fn vwarnx(format: *const c_char, list: Arguments) -> () =
        to_stream!(standard_error(), real::vwarnx(format, list));

    // By their definition a warning and then exit.
    word fn verr(status: c_int, format: *const c_char, list: Arguments) -> ! {
        vwarn(format, list);
        leave(status)
    }

    word fn verrx(status: c_int, format: *const c_char, list: Arguments) -> ! {
        vwarnx(format, list);
        leave(status)
    }

    word fn psignal(number: c_int, text: *const c_char) -> () =
        to_stream!(standard_error(), real::psignal(number, text));

    word fn psiginfo(info: *const c_void, text: *const c_char) -> () =
        to_stream!(standard_error(), real::psiginfo(info, text));

    word fn malloc_stats() -> () = to_stream!(standard_error(), real::malloc_stats());

    word fn malloc_info(options: c_int, stream: *mut FILE) -> c_int =
        to_stream!(stream, real::malloc_info(options, stream));

    word fn putpwent(entry: *const c_void, stream: *mut FILE) -> c_int =
        to_stream!(stream, real::putpwent(entry, stream));

    word fn putspent(entry: *const c_void, stream: *mut FILE) -> c_int =
        to_stream!(stream, real::putspent(entry, stream));

    word fn putgrent(entry: *const c_void, stream: *mut FILE) -> c_int =
        to_stream!(stream, real::putgrent(entry, stream));

    word fn putsgent(entry: *const c_void, stream: *mut FILE) -> c_int =
        to_stream!(stream, real::putsgent(entry, stream));

    word fn addmntent(stream: *mut FILE, entry: *const c_void) -> c_int =
        to_stream!(stream, real::addmntent(stream, entry));

    word fn herror(text: *const c_char) -> () = to_fd!(libc::STDERR_FILENO, real::herror(text));

    word fn backtrace_symbols_fd(list: *const *mut c_void, count: c_int, fd: c_int) -> () =
        to_fd!(fd, real::backtrace_symbols_fd(list, count, fd));

    // A new semaphore is a small file that the C library writes, in memory.
    fn sem_open(name: *const c_char, flags: c_int, mode: c_uint, value: c_uint) -> *mut c_void {
        if !session::active() || flags & libc::O_CREAT == 0 {
            return real::sem_open(name, flags, mode, value);
        }
        let moment = Moment::before(None);
        let semaphore = real::sem_open(name, flags, mode, value);
        let (written, flags) = moment.written(0);
        if written > 0 {
            happened(Op::Write, moment.start, written as i64, |event| {
                event.requested = written;
                event.flags |= flags;
                event.kind = FileKind::Other;
            });
        }
        semaphore
    }
}

inlets! {
    "cawl_vwarn" => super::vwarn;
    "cawl_vwarnx" => super::vwarnx;
    "cawl_verr" => super::verr;
    "cawl_verrx" => super::verrx;
}

#[cfg(not(test))]
unsafe extern "C" {
    fn cawl_c_warn();
    fn cawl_c_warnx();
    fn cawl_c_err();
    fn cawl_c_errx();
}

word!(warn => cawl_c_warn);
word!(warnx => cawl_c_warnx);
word!(err => cawl_c_err);
word!(errx => cawl_c_errx);
