//! The printf family. The forms with `...` are caught by a jump into the C half, which turns their
//! arguments into a `va_list` and comes back here; the real function called is the `v` form either way.

use crate::base::real;
use crate::hooks::emit::stream::after;
use crate::hooks::emit::{Place, around_moving, wrote_deep};
use crate::session;
use crate::state::glibc_file::Stream;
use crate::state::stream_table::{before, standard_output};
use cawl_wire::{Op, flag};
use core::ffi::{c_char, c_int, c_void};
use libc::wchar_t;

/// A `va_list`: on the platforms supported, it is passed as a pointer.
type Arguments = *mut c_void;

/// Makes a call that prints to a stream, and records it.
#[inline(always)]
fn printing(stream: Stream, flags: u32, call: impl FnOnce() -> c_int) -> c_int {
    if !session::active() {
        return call();
    }
    let before = before(stream);
    let returned = call();
    after(Op::StreamWrite, stream, before, returned.max(0) as u64, i64::from(returned), flags);
    returned
}

/// Makes a call that prints to a descriptor, and records it.
#[inline(always)]
fn printing_to(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    around_moving(fd, call, |start, returned| {
        wrote_deep(Op::Write, start, fd, Place::Own, returned.max(0) as u64, i64::from(returned), 0);
    })
}

hooks! {
    fn vfprintf, _IO_vfprintf(
        stream: Stream, format: *const c_char, args: Arguments,
    ) -> c_int = printing(stream, 0, || next(stream.file(), format, args));

    fn __vfprintf_chk(
        stream: Stream, level: c_int, format: *const c_char, args: Arguments,
    ) -> c_int = printing(stream, 0, || real::__vfprintf_chk(stream.file(), level, format, args));

    fn vprintf(format: *const c_char, args: Arguments) -> c_int {
        let stream = Stream::open(standard_output());
        printing(stream, 0, || real::vfprintf(stream.file(), format, args))
    }

    fn __vprintf_chk(level: c_int, format: *const c_char, args: Arguments) -> c_int {
        let stream = Stream::open(standard_output());
        printing(stream, 0, || real::__vfprintf_chk(stream.file(), level, format, args))
    }

    fn vdprintf(fd: c_int, format: *const c_char, args: Arguments) -> c_int =
        printing_to(fd, || real::vdprintf(fd, format, args));

    fn __vdprintf_chk(
        fd: c_int, level: c_int, format: *const c_char, args: Arguments,
    ) -> c_int = printing_to(fd, || real::__vdprintf_chk(fd, level, format, args));

    fn vfwprintf(stream: Stream, format: *const wchar_t, args: Arguments) -> c_int =
        printing(stream, flag::ESTIMATED, || real::vfwprintf(stream.file(), format, args));

    fn __vfwprintf_chk(
        stream: Stream, level: c_int, format: *const wchar_t, args: Arguments,
    ) -> c_int =
        printing(stream, flag::ESTIMATED, || real::__vfwprintf_chk(stream.file(), level, format, args));

    fn vwprintf(format: *const wchar_t, args: Arguments) -> c_int {
        let stream = Stream::open(standard_output());
        printing(stream, flag::ESTIMATED, || real::vfwprintf(stream.file(), format, args))
    }

    fn __vwprintf_chk(
        level: c_int, format: *const wchar_t, args: Arguments,
    ) -> c_int {
        let stream = Stream::open(standard_output());
        printing(stream, flag::ESTIMATED, || real::__vfwprintf_chk(stream.file(), level, format, args))
    }
}

inlets! {
    "cawl_vprintf" => super::vprintf;
    "cawl_vfprintf" => super::vfprintf;
    "cawl_vdprintf" => super::vdprintf;
    "cawl_vwprintf" => super::vwprintf;
    "cawl_vfwprintf" => super::vfwprintf;
    "cawl_vprintf_chk" => super::__vprintf_chk;
    "cawl_vfprintf_chk" => super::__vfprintf_chk;
    "cawl_vdprintf_chk" => super::__vdprintf_chk;
    "cawl_vwprintf_chk" => super::__vwprintf_chk;
    "cawl_vfwprintf_chk" => super::__vfwprintf_chk;
}

jumps! {
    printf => cawl_c_printf;
    _IO_printf => cawl_c_printf;
    fprintf => cawl_c_fprintf;
    _IO_fprintf => cawl_c_fprintf;
    dprintf => cawl_c_dprintf;
    wprintf => cawl_c_wprintf;
    fwprintf => cawl_c_fwprintf;
    __printf_chk => cawl_c_printf_chk;
    __fprintf_chk => cawl_c_fprintf_chk;
    __dprintf_chk => cawl_c_dprintf_chk;
    __wprintf_chk => cawl_c_wprintf_chk;
    __fwprintf_chk => cawl_c_fwprintf_chk;
}
