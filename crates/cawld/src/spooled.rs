//! What the folders of files that others take away tell of themselves.

use cawl_client::protocol::OutputStatus;
use cawl_host::spool::{Shared, lock};

/// The status of a folder; `waiting`: rows dropped that its writer has not counted yet.
pub fn status_of(status: &Shared, to: String, room: u64, waiting: u64) -> OutputStatus {
    let status = lock(status).clone();
    OutputStatus {
        to,
        rows: status.rows_taken + waiting,
        rows_written: status.rows_written,
        rows_dropped: status.rows_dropped + waiting,
        rows_lost: status.rows_lost,
        files_written: status.files_written,
        files_dropped: status.files_dropped,
        rows_refused: status.rows_refused,
        files_refused: status.files_refused,
        bytes: status.bytes,
        room_bytes: room,
        latest: status.latest.map(|path| path.display().to_string()),
        failure: status.failure.or(status.undelivered),
    }
}
