//! libcawl as programs in C and C++ use it.
//!
//! - `abi`: header, names and versions of the functions are those committed.
//! - `installed`: built and installed by CMake; examples and hostile calls, shared and static, under
//!   Valgrind; the Debian packages.
#![forbid(unsafe_code)]

mod abi;
mod installed;
