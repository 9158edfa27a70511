//! The printf family. The forms with `...` are caught by a jump into the C half, which turns their
//! arguments into a `va_list` and comes back here; the real function called is the `v` form either way.

use crate::base::{interrupted, real};
use crate::hooks::emit::stream::after;
use crate::hooks::emit::{Place, wrote};
use crate::session;
use crate::state::stream_table::{before, standard_output};
use cawl_wire::{Op, flag};
use core::ffi::{c_char, c_int, c_void};
use libc::{FILE, wchar_t};

/// A `va_list`: on the platforms supported, it is passed as a pointer.
type Arguments = *mut c_void;

macro_rules! stream_body {
    ($call:expr, $stream:ident, $flags:expr) => {{
        if !session::active() {
            return $call;
        }
        let before = before($stream);
        let returned = $call;
        let length = returned.max(0) as u64;
        after(Op::StreamWrite, $stream, before, length, i64::from(returned), $flags);
        returned
    }};
}

macro_rules! fd_body {
    ($call:expr, $fd:ident) => {{
        if !session::active() {
            return $call;
        }
        let start = interrupted::begin($fd);
        let returned = $call;
        wrote(Op::Write, start, $fd, Place::Own, returned.max(0) as u64, i64::from(returned), 0);
        returned
    }};
}

hooks! {
    fn vfprintf, _IO_vfprintf(
        stream: *mut FILE, format: *const c_char, args: Arguments,
    ) -> c_int {
        stream_body!(real::vfprintf(stream, format, args), stream, 0)
    }

    fn __vfprintf_chk(
        stream: *mut FILE, level: c_int, format: *const c_char, args: Arguments,
    ) -> c_int {
        stream_body!(real::__vfprintf_chk(stream, level, format, args), stream, 0)
    }

    fn vprintf(format: *const c_char, args: Arguments) -> c_int {
        let stream = standard_output();
        stream_body!(real::vfprintf(stream, format, args), stream, 0)
    }

    fn __vprintf_chk(level: c_int, format: *const c_char, args: Arguments) -> c_int {
        let stream = standard_output();
        stream_body!(real::__vfprintf_chk(stream, level, format, args), stream, 0)
    }

    fn vdprintf(fd: c_int, format: *const c_char, args: Arguments) -> c_int {
        fd_body!(real::vdprintf(fd, format, args), fd)
    }

    fn __vdprintf_chk(
        fd: c_int, level: c_int, format: *const c_char, args: Arguments,
    ) -> c_int {
        fd_body!(real::__vdprintf_chk(fd, level, format, args), fd)
    }

    fn vfwprintf(stream: *mut FILE, format: *const wchar_t, args: Arguments) -> c_int {
        stream_body!(real::vfwprintf(stream, format, args), stream, flag::ESTIMATED)
    }

    fn __vfwprintf_chk(
        stream: *mut FILE, level: c_int, format: *const wchar_t, args: Arguments,
    ) -> c_int {
        stream_body!(real::__vfwprintf_chk(stream, level, format, args), stream, flag::ESTIMATED)
    }

    fn vwprintf(format: *const wchar_t, args: Arguments) -> c_int {
        let stream = standard_output();
        stream_body!(real::vfwprintf(stream, format, args), stream, flag::ESTIMATED)
    }

    fn __vwprintf_chk(
        level: c_int, format: *const wchar_t, args: Arguments,
    ) -> c_int {
        let stream = standard_output();
        stream_body!(real::__vfwprintf_chk(stream, level, format, args), stream, flag::ESTIMATED)
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
