//! libcawl: the models of [`cawl_model`] as a C library.
//!
//! A C program makes a profile, a machine of it, and tells the machine the calls of its programs, each with
//! the time at which it begins. The answer is what `CostModel::step` says: the C functions only keep what a
//! simulator would have to keep otherwise, which is descriptors with their positions, and lengths of files
//! (`machine`). docs/reference/LIBRARY.md is the page for users, include/cawl.h the reference.
//!
//! # Rules
//!
//! 1. **No panic crosses the boundary**: each entry runs in `status::guarded`. A machine whose model
//!    panicked answers nothing any more.
//! 2. **The ABI grows, and does not change.** A function, a number of an enum or a field keeps its meaning as
//!    long as the library is libcawl.so.1. A struct that is filled has its size as the first field: what is
//!    added comes at its end, and is filled where the caller's has room. New functions get a version of their
//!    own in libcawl.map. tests/abi.rs compares both files with what is built.
//! 3. **Pointers are checked for NULL, and believed otherwise**, as C libraries do. `Option<&T>` is a pointer
//!    that may be NULL; what is written to is a raw pointer, since it may be uninitialized. Safety is one
//!    promise for all entries, which the head of cawl.h asks for: handles are the library's and not freed,
//!    and one thread uses a machine; texts end in NUL; what is filled in has room, and its size set. Each
//!    unsafe block has a SAFETY comment that names the part of it that it needs.
//! 4. **No lock and no global state**, but the text of a thread's latest error. A machine is used by one
//!    thread at a time, different machines by different threads.
#![allow(non_camel_case_types, reason = "the names of C")]

mod calls;
#[doc(hidden)]
pub mod cause;
#[doc(hidden)]
pub mod cost;
#[doc(hidden)]
pub mod handles;
#[doc(hidden)]
pub mod machine;
#[doc(hidden)]
pub mod status;
