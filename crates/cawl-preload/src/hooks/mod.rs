//! The functions that the library puts in the place of the C library's.
//!
//! Each is declared through `hooks!`, which says only what a definition by hand would say a hundred
//! times over: the exported names (several for one body), the calling convention, and that the name is
//! not exported while the crate tests itself. A body that is one expression follows an equals sign. `word fn`
//! is one of `base::words`, whose name may mean something else. In a body with several names, `next` is the
//! real function of the name that was called: another library's may call one of the others.

macro_rules! hooks {
    () => {};
    (
        word fn $first:ident $(, $alias:ident)* ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty = $body:expr;
        $($rest:tt)*
    ) => {
        hooks!(@words [$first $($alias)*] ($($arg : $ty),*) $ret, { $body });
        hooks! { $($rest)* }
    };
    (
        word fn $first:ident $(, $alias:ident)* ( $($arg:ident : $ty:ty),* $(,)? ) -> $ret:ty $body:block
        $($rest:tt)*
    ) => {
        hooks!(@words [$first $($alias)*] ($($arg : $ty),*) $ret, $body);
        hooks! { $($rest)* }
    };
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
    (@words $names:tt $args:tt $ret:ty, $body:block) => {
        hooks!(@named [] $names $args $ret, $body);
        hooks!(@exported $names);
    };
    (@exported [$($name:ident)*]) => {
        $( word!($name => $name); )*
    };
    (@each $names:tt $args:tt $ret:ty, $body:block) => {
        hooks!(@named [cfg_attr(not(test), unsafe(no_mangle))] $names $args $ret, $body);
    };
    (@named $exported:tt [$name:ident] $args:tt $ret:ty, $body:block) => {
        hooks!(@body $exported $name $args $ret, $body);
    };
    (@named $exported:tt [$($name:ident)*] $args:tt $ret:ty, $body:block) => {
        $( hooks!(@body $exported $name $args $ret, { use crate::base::real::$name as next; $body }); )*
    };
    (@body [$($exported:meta)?] $name:ident ($($arg:ident : $ty:ty),*) $ret:ty, $body:block) => {
        $( #[$exported] )?
        #[allow(non_snake_case, clippy::too_many_arguments, dead_code)]
        pub unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> $ret {
            // SAFETY: the caller keeps the contract of the C library's function of this name, and the
            // arguments go on to it unchanged; what else the body does with them is said there.
            unsafe { $body }
        }
    };
}

/// Exports a name of `base::words`, with its body if no other library's function is meant.
macro_rules! word {
    ($name:ident => $body:ident) => {
        #[cfg(not(test))]
        const _: () = {
            use crate::base::words::{TARGETS, Word, first_call};

            #[unsafe(export_name = stringify!($name))]
            #[unsafe(naked)]
            unsafe extern "C" fn chosen() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    "endbr64",
                    "mov r11, [rip + {targets} + {at}]",
                    "test r11, r11",
                    "je 2f",
                    "jmp r11",
                    "2:",
                    "mov r11d, {word}",
                    "lea r10, [rip + {body}]",
                    "jmp {first}",
                    targets = sym TARGETS,
                    at = const Word::$name as usize * 8,
                    word = const Word::$name as usize,
                    body = sym $body,
                    first = sym first_call,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "adrp x16, {targets}",
                    "add x16, x16, :lo12:{targets}",
                    "ldr x16, [x16, #{at}]",
                    "cbz x16, 2f",
                    "br x16",
                    "2:",
                    "mov x16, #{word}",
                    "adrp x17, {body}",
                    "add x17, x17, :lo12:{body}",
                    "b {first}",
                    targets = sym TARGETS,
                    at = const Word::$name as usize * 8,
                    word = const Word::$name as usize,
                    body = sym $body,
                    first = sym first_call,
                );
            }
        };
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

/// Exports names whose functions are jumped to: the one that `choose` tells by the first arguments. Nothing
/// is between the caller and that function, and all arguments are as they came.
macro_rules! chooses {
    ($($name:ident => $choose:ident;)*) => {
        $(
            #[cfg(not(test))]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                core::arch::naked_asm!(
                    "endbr64",
                    "push rdi",
                    "push rsi",
                    "push rdx",
                    "push rcx",
                    "push r8",
                    "push r9",
                    "sub rsp, 8",
                    "call {choose}",
                    "add rsp, 8",
                    "pop r9",
                    "pop r8",
                    "pop rcx",
                    "pop rdx",
                    "pop rsi",
                    "pop rdi",
                    "jmp rax",
                    choose = sym $choose,
                );
                #[cfg(target_arch = "aarch64")]
                core::arch::naked_asm!(
                    "stp x29, x30, [sp, #-80]!",
                    "mov x29, sp",
                    "stp x0, x1, [sp, #16]",
                    "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]",
                    "stp x6, x7, [sp, #64]",
                    "bl {choose}",
                    "mov x16, x0",
                    "ldp x0, x1, [sp, #16]",
                    "ldp x2, x3, [sp, #32]",
                    "ldp x4, x5, [sp, #48]",
                    "ldp x6, x7, [sp, #64]",
                    "ldp x29, x30, [sp], #80",
                    "br x16",
                    choose = sym $choose,
                );
            }
        )*
    };
}

mod aio;
pub mod confine;
mod copy;
pub mod emit;
mod fd;
mod load;
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
mod stat;
mod stdio;
mod stream;
mod sync;
mod take;
mod wide;
mod write;

inlets! {
    "cawl_find" => crate::base::symbols::find_for_c;
}
