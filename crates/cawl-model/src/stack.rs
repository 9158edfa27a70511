//! Where in the program calls came from.

use std::borrow::Cow;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::units::{Nanos, is_zero};

/// The functions that led to a call. Of many calls by the same way there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Its number within the trace, from 1 on, which its calls have ([`cawl_wire::Event::stack`]).
    pub id: u32,
    /// Innermost first, from the function that called the C library.
    pub frames: Vec<Frame>,
    /// The outer frames are not known: more of the stack was in use than is copied, or no unwind information
    /// led on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub truncated: bool,
}

/// A function of a stack, as far as known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// Name, demangled; None without a symbol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Source file, as the debugging information has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// Line of the call in that file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// File that its code was loaded from; None of code made as the program ran, and of interpreted code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub module: Option<String>,
    /// Where in the module's file the code is, in bytes, if there is no symbol.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub at: u64,
    /// It is a part of the next frame's code.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inlined: bool,
}

/// Which calls have their stack copied.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackOptions {
    /// Each call that takes at least as long.
    pub threshold: Nanos,
    /// One in so many of the others.
    pub one_in: NonZeroU32,
}

/// What starts a program or a thread.
const STARTS: [&str; 9] = [
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
    "__clone",
];

impl Frame {
    /// True for what starts any program or thread: it tells a reader nothing.
    pub fn is_start(&self) -> bool {
        let name = self.function.as_deref().unwrap_or_default();
        STARTS.contains(&name.split('@').next().unwrap_or_default())
    }

    /// The function, or where in which file its code is: `libz.so.1+0x1a2b`.
    pub fn name(&self) -> Cow<'_, str> {
        match (&self.function, &self.module) {
            (Some(function), _) => function.as_str().into(),
            (None, Some(module)) => format!("{}+{:#x}", base(module), self.at).into(),
            (None, None) => "?".into(),
        }
    }

    /// The last part of its source file's path, and the line: `pager.c:512`.
    pub fn place(&self) -> Option<String> {
        let file = base(self.file.as_deref()?);
        Some(self.line.map_or(file.to_owned(), |line| format!("{file}:{line}")))
    }
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
