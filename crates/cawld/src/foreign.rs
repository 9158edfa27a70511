//! Files of which only a guest told.

use cawl_wire::FileId;

/// Of a birth: the file is a guest's, as it said.
pub const FOREIGN: u32 = 1 << 31;

/// True of a file that only a guest told of: its device and number are that program's words.
pub fn is_foreign(file: FileId) -> bool {
    file.birth & FOREIGN != 0
}
