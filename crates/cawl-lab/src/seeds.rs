//! Data of the documents that cawl grew from, and how its models do on them. docs/science/SEEDS.md has the
//! results.

pub mod iomodel;
