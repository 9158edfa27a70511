//! Maps and sets that the laws and the analysis keep.

pub use crate::cache::Map;
pub use crate::lru::LruMap;
pub use crate::pages::PageSet;
