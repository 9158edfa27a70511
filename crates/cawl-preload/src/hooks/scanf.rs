//! The scanf family, by bytes and by wide characters. The forms with `...` are caught as those of printf are.
//! How much a call took is not told; see `emit::reading`.

use crate::base::real;
use crate::hooks::emit::reading::taking;
use crate::state::glibc_file::Stream;
use crate::state::stream_table::standard_input;
use core::ffi::{c_char, c_int, c_void};
use libc::wchar_t;

/// A `va_list`: on the platforms supported, it is passed as a pointer.
type Arguments = *mut c_void;

#[inline(always)]
fn scanning(stream: Stream, call: impl FnOnce() -> c_int) -> c_int {
    taking(stream, u64::MAX, call, |_| None)
}

hooks! {
    fn vfscanf, __vfscanf(stream: Stream, format: *const c_char, args: Arguments) -> c_int =
        scanning(stream, || next(stream.file(), format, args));

    fn vscanf(format: *const c_char, args: Arguments) -> c_int {
        let stream = Stream::open(standard_input());
        scanning(stream, || real::vfscanf(stream.file(), format, args))
    }

    fn __isoc99_vfscanf(stream: Stream, format: *const c_char, args: Arguments) -> c_int =
        scanning(stream, || real::__isoc99_vfscanf(stream.file(), format, args));

    fn __isoc99_vscanf(format: *const c_char, args: Arguments) -> c_int {
        let stream = Stream::open(standard_input());
        scanning(stream, || real::__isoc99_vfscanf(stream.file(), format, args))
    }

    fn __isoc23_vfscanf(stream: Stream, format: *const c_char, args: Arguments) -> c_int =
        scanning(stream, || real::__isoc23_vfscanf(stream.file(), format, args));

    fn __isoc23_vscanf(format: *const c_char, args: Arguments) -> c_int {
        let stream = Stream::open(standard_input());
        scanning(stream, || real::__isoc23_vfscanf(stream.file(), format, args))
    }

    fn vfwscanf(stream: Stream, format: *const wchar_t, args: Arguments) -> c_int =
        scanning(stream, || real::vfwscanf(stream.file(), format, args));

    fn vwscanf(format: *const wchar_t, args: Arguments) -> c_int {
        let stream = Stream::open(standard_input());
        scanning(stream, || real::vfwscanf(stream.file(), format, args))
    }

    fn __isoc99_vfwscanf(stream: Stream, format: *const wchar_t, args: Arguments) -> c_int =
        scanning(stream, || real::__isoc99_vfwscanf(stream.file(), format, args));

    fn __isoc99_vwscanf(format: *const wchar_t, args: Arguments) -> c_int {
        let stream = Stream::open(standard_input());
        scanning(stream, || real::__isoc99_vfwscanf(stream.file(), format, args))
    }

    fn __isoc23_vfwscanf(stream: Stream, format: *const wchar_t, args: Arguments) -> c_int =
        scanning(stream, || real::__isoc23_vfwscanf(stream.file(), format, args));

    fn __isoc23_vwscanf(format: *const wchar_t, args: Arguments) -> c_int {
        let stream = Stream::open(standard_input());
        scanning(stream, || real::__isoc23_vfwscanf(stream.file(), format, args))
    }
}

inlets! {
    "cawl_vscanf" => super::vscanf;
    "cawl_vfscanf" => super::vfscanf;
    "cawl_vwscanf" => super::vwscanf;
    "cawl_vfwscanf" => super::vfwscanf;
    "cawl_vscanf99" => super::__isoc99_vscanf;
    "cawl_vfscanf99" => super::__isoc99_vfscanf;
    "cawl_vwscanf99" => super::__isoc99_vwscanf;
    "cawl_vfwscanf99" => super::__isoc99_vfwscanf;
    "cawl_vscanf23" => super::__isoc23_vscanf;
    "cawl_vfscanf23" => super::__isoc23_vfscanf;
    "cawl_vwscanf23" => super::__isoc23_vwscanf;
    "cawl_vfwscanf23" => super::__isoc23_vfwscanf;
}

jumps! {
    scanf => cawl_c_scanf;
    fscanf => cawl_c_fscanf;
    wscanf => cawl_c_wscanf;
    fwscanf => cawl_c_fwscanf;
    __isoc99_scanf => cawl_c_scanf99;
    __isoc99_fscanf => cawl_c_fscanf99;
    __isoc99_wscanf => cawl_c_wscanf99;
    __isoc99_fwscanf => cawl_c_fwscanf99;
    __isoc23_scanf => cawl_c_scanf23;
    __isoc23_fscanf => cawl_c_fscanf23;
    __isoc23_wscanf => cawl_c_wscanf23;
    __isoc23_fwscanf => cawl_c_fwscanf23;
}
