//! How calls end: codes, their texts, and no panic.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How a call ended. A call that did not end with CAWL_OK has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum cawl_status {
    /// It did what it should.
    CAWL_OK = 0,
    /// A pointer is NULL that must not be.
    CAWL_ERROR_NULL = -1,
    /// A text is not UTF-8.
    CAWL_ERROR_TEXT = -2,
    /// A file of the real machine cannot be read.
    CAWL_ERROR_FILE = -3,
    /// A profile is not one, or no machine could have it.
    CAWL_ERROR_PROFILE = -4,
    /// There is no model of this name.
    CAWL_ERROR_MODEL = -5,
    /// A number is out of its range.
    CAWL_ERROR_VALUE = -6,
    /// The field `size` of a struct was not set to its size.
    CAWL_ERROR_SIZE = -7,
    /// The call begins before one that was made earlier.
    CAWL_ERROR_TIME = -8,
    /// The descriptor is not open, or not one of this process.
    CAWL_ERROR_DESCRIPTOR = -9,
    /// The descriptor was opened for something else.
    CAWL_ERROR_ACCESS = -10,
    /// There is no such file on the modelled machine.
    CAWL_ERROR_NO_FILE = -11,
    /// The file is there already.
    CAWL_ERROR_EXISTS = -12,
    /// A fault of the library. The machine that it happened in can only be freed.
    CAWL_ERROR_INTERNAL = -13,
}
use cawl_status::*;

/// What the codes mean, from CAWL_OK down.
const TEXTS: [&CStr; 14] = [
    c"no error",
    c"a pointer is NULL that must not be",
    c"a text is not UTF-8",
    c"a file cannot be read",
    c"the profile cannot be used",
    c"there is no model of this name",
    c"a number is out of its range",
    c"the field `size` of a struct was not set to its size",
    c"the call begins before one that was made earlier",
    c"the descriptor is not open, or not one of this process",
    c"the descriptor was opened for something else",
    c"there is no such file on the modelled machine",
    c"the file is there already",
    c"a fault of the library; the machine that it happened in can only be freed",
];

/// What a code means; "unknown error" of one that this version does not have. Never NULL, never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_error_text(status: i32) -> *const c_char {
    let text = TEXTS.get(usize::try_from(status.checked_neg().unwrap_or(-1)).unwrap_or(usize::MAX));
    text.copied().unwrap_or(c"unknown error").as_ptr()
}

/// What a code means.
pub fn text_of(status: cawl_status) -> &'static str {
    TEXTS.get(-(status as i32) as usize).and_then(|text| text.to_str().ok()).unwrap_or("unknown error")
}

/// Why a call failed, with what a reader needs to know.
#[derive(Debug)]
pub struct Failure {
    /// The code.
    pub status: cawl_status,
    /// The details, empty where the code says all.
    pub detail: String,
}

/// What an entry comes to. (A failure in a box is a pointer: what is returned fits a register.)
pub type Outcome<T> = Result<T, Box<Failure>>;

impl Failure {
    /// With details.
    #[cold]
    pub fn new(status: cawl_status, detail: impl ToString) -> Box<Failure> {
        Box::new(Failure { status, detail: detail.to_string() })
    }

    /// A panic.
    fn caught(payload: &(dyn Any + Send)) -> Box<Failure> {
        let said = payload.downcast_ref::<String>().map(String::as_str);
        let said = said.or(payload.downcast_ref::<&str>().copied());
        Failure::new(CAWL_ERROR_INTERNAL, said.unwrap_or("a panic"))
    }

    /// Kept for [`cawl_last_error`].
    #[cold]
    fn keep(self) -> cawl_status {
        // Names and texts of the caller's come to a terminal.
        let plain = |letter: char| match letter.is_control() && letter != '\n' {
            true => letter.escape_default().to_string(),
            false => letter.to_string(),
        };
        let detail = CString::new(self.detail.chars().map(plain).collect::<String>()).unwrap_or_default();
        // A thread that ends has none any more.
        let _ = LAST.try_with(|last| *last.borrow_mut() = detail);
        self.status
    }
}

impl From<cawl_status> for Box<Failure> {
    #[cold]
    fn from(status: cawl_status) -> Box<Failure> {
        Failure::new(status, "")
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Details of the latest call of this thread that failed, such as the line of a profile: a text that is valid
/// until the next one fails or the thread ends. "" where the code says all, and before any failed. Never
/// NULL, never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

/// Version of the library, as "0.1.0". Never to be freed.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Does the work of an entry; a panic becomes a code.
#[inline]
pub fn guarded(work: impl FnOnce() -> Outcome<()>) -> cawl_status {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => CAWL_OK,
        Ok(Err(failure)) => failure.keep(),
        Err(payload) => Failure::caught(payload.as_ref()).keep(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: *const c_char) -> String {
        // SAFETY: both functions give texts that end in NUL, and live until the next failure.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn each_code_has_a_text() {
        let all = (-15..=1).map(|code| said(cawl_error_text(code)));
        assert_eq!(all.filter(|text| text == "unknown error").count(), 3);
        assert_eq!(said(cawl_error_text(i32::MIN)), "unknown error");
        assert!(said(cawl_error_text(CAWL_ERROR_INTERNAL as i32)).starts_with("a fault"));
    }

    #[test]
    fn a_panic_is_a_code_and_details_are_of_the_thread() {
        assert_eq!(guarded(|| panic!("one {}", 1)), CAWL_ERROR_INTERNAL);
        assert_eq!(said(cawl_last_error()), "one 1");
        std::thread::spawn(|| assert_eq!(said(cawl_last_error()), "")).join().unwrap();
        assert_eq!(guarded(|| Err(Failure::new(CAWL_ERROR_TEXT, "a\0\x1b\nb"))), CAWL_ERROR_TEXT);
        let told = "a\\u{0}\\u{1b}\nb".to_owned();
        assert_eq!((guarded(|| Ok(())), said(cawl_last_error())), (CAWL_OK, told));
    }
}
