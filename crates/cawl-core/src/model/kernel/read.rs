//! Reads, and opening and closing.

use cawl_wire::{Event, Op, UNKNOWN_OFFSET};

use super::{Call, Kernel};
use crate::cause::Cause;

impl Kernel {
    /// read, pread, fread and relatives.
    pub(super) fn read_call(&mut self, call: &mut Call, event: &Event) {
        let bytes = event.returned.max(0) as u64;
        if bytes == 0 {
            return call.spend_empty_call(self.constants.empty_read);
        }
        call.spend_empty_call(self.constants.read_call);
        let copying = bytes as f64 * self.constants.read_byte;
        call.pass(copying);
        call.spent[Cause::Copy] += copying;
        if event.offset != UNKNOWN_OFFSET {
            let page = self.constants.page;
            let end = event.offset.saturating_add(bytes).div_ceil(page);
            self.machine.cache.read(call.file, event.offset / page, end);
        }
    }

    /// open, fopen and close.
    pub(super) fn open_or_close(&mut self, call: &mut Call, event: &Event) {
        let cost = match event.op {
            Op::Close => self.constants.close,
            _ => self.constants.open,
        };
        call.spend_empty_call(cost);
        if event.op != Op::Close {
            self.opened(call.file, event);
        }
    }
}
