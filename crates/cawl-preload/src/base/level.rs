//! How far a library is trusted with a name (`words` has the names).

/// Which libraries may stand behind a hook.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// All.
    Any,
    /// Those that can pass a call on: they ask for dlsym or dlvsym. And all of the following.
    Passing,
    /// Those that were preloaded (eatmydata, fakeroot), which wrap what they define.
    Preloaded,
    /// The C library alone: nothing is known to wrap these.
    Own,
}
