//! The functions that the library puts in the place of the C library's.
//!
//! Each is declared through `hooks!`, which says only what a definition by hand would say a hundred
//! times over: the exported names (several for one body), the calling convention, and that the name is
//! not exported while the crate tests itself.

macro_rules! hooks {
    ($(
        $(#[$meta:meta])*
        fn $first:ident $(, $alias:ident)* ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty $body:block
    )*) => {
        $( hooks!(@each [$first $($alias)*] ($($arg : $ty),*) $ret, $body); )*
    };
    (@each [$($name:ident)*] $args:tt $ret:ty, $body:block) => {
        $( hooks!(@one $name $args $ret, $body); )*
    };
    (@one $name:ident ($($arg:ident : $ty:ty),*) $ret:ty, $body:block) => {
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[allow(non_snake_case, clippy::too_many_arguments, dead_code)]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller keeps the contract of the C library's function of this name, and the
            // arguments go on to it unchanged; what else the body does with them is said there.
            unsafe { $body }
        }
    };
}

mod copy;
mod fd;
mod names;
mod open;
mod printf;
pub mod process;
mod spawn;
mod stdio;
mod stream;
mod sync;
mod wide;
mod write;
