//! What the tracer knows of the program's files: descriptors and positions, streams, mappings, and which
//! names the daemon was told. It tells names, and makes no events.

pub mod birth;
pub mod creation;
pub mod descriptors;
pub mod destinations;
pub mod directory;
pub mod glibc_file;
pub mod mappings;
pub mod names;
pub mod residency;
pub mod stream_table;
