//! The functions that the library puts in the place of the C library's.
//!
//! Each is declared through `hooks!`, which says only what a definition by hand would say a hundred
//! times over: the exported names (several for one body), the calling convention, and that the name is
//! not exported while the crate tests itself. A body that is one expression follows an equals sign.

macro_rules! hooks {
    () => {};
    (
        fn $first:ident $(, $alias:ident)* ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty = $body:expr;
        $($rest:tt)*
    ) => {
        hooks!(@each [$first $($alias)*] ($($arg : $ty),*) $ret, { $body });
        hooks! { $($rest)* }
    };
    (
        fn $first:ident $(, $alias:ident)* ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty $body:block
        $($rest:tt)*
    ) => {
        hooks!(@each [$first $($alias)*] ($($arg : $ty),*) $ret, $body);
        hooks! { $($rest)* }
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

/// Gives the C half names for functions here. They are labels in front of a jump and not exported, as a
/// function named for the linker would be; so no other library can come between the halves.
macro_rules! inlets {
    ($($label:literal => $function:path;)*) => {
        #[cfg(not(test))]
        mod inlets {
            $(
                #[cfg(target_arch = "x86_64")]
                core::arch::global_asm!(
                    concat!(".hidden ", $label, "\n.globl ", $label, "\n.type ", $label, ", @function\n", $label, ":"),
                    "jmp {}",
                    sym $function,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::global_asm!(
                    concat!(".hidden ", $label, "\n.globl ", $label, "\n.type ", $label, ", @function\n", $label, ":"),
                    "b {}",
                    sym $function,
                );
            )*
        }
    };
}

/// Exports names whose definitions are in the C half. The linker would keep those to itself; a jump
/// leaves every register as the caller set it, so the C function sees its own call.
macro_rules! jumps {
    ($($name:ident => $target:ident;)*) => {
        $(
            #[cfg(not(test))]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            #[allow(non_snake_case)]
            pub unsafe extern "C" fn $name() {
                unsafe extern "C" {
                    fn $target();
                }
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!("endbr64", "jmp {}", sym $target);
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!("b {}", sym $target);
            }
        )*
    };
}

mod aio;
pub mod confine;
mod copy;
pub mod emit;
mod fd;
mod lock;
mod login;
mod map;
mod message;
mod names;
mod open;
mod printf;
pub mod process;
mod raw;
mod read;
mod scanf;
mod spawn;
mod stdio;
mod stream;
mod sync;
mod take;
mod wide;
mod write;
