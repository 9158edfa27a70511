//! Constants of a filesystem whose files are elsewhere.

use serde::{Deserialize, Serialize};

use super::Measured;
use crate::named::named;
use crate::table::{Retired, constants};
use crate::units::{Bytes, Nanos, Rate};

named! {
    /// What the page cache of the client keeps (Hicks, "Improving I/O Bandwidth With Cray DVS Client-Side
    /// Caching", III). In FUSE: `FOPEN_DIRECT_IO`, none, the default, `FUSE_WRITEBACK_CACHE`
    /// (fs/fuse/file.c, 6.18); NFS writes back.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    CachePolicy {
        /// Nothing: each call goes to the server.
        None = "none",
        /// What was read. Writes go to the server.
        ReadOnly = "read-only",
        /// What was read and written. Writes go to the server, too, before they return.
        WriteThrough = "write-through",
        /// What was read and written; the flusher, fsync and close take it to the server.
        WriteBack = "write-back",
    }
}

crate::table::name!(CachePolicy);

constants! {
    /// A way over a network, and what the client does to avoid it. A round trip takes `device.latency`, a
    /// byte `device.write` or `device.read`; what the flusher, fsync and close send is answered at
    /// `device.writeback`, since several requests are under way at a time. Beyond the data a synchronous
    /// write takes `device.sync_call`, fsync `device.fsync`, and `device.flush` after no write.
    #[derive(Clone, Debug, PartialEq)]
    NetworkConstants retired activate {
        /// What the page cache keeps.
        policy: CachePolicy => setting;
        /// Most bytes of a request that writes (`wsize`; `max_write` of FUSE).
        request: Bytes;
        /// Most bytes of a request that reads (`rsize`; `max_read`). None: as `request`.
        read_request: Option<Bytes>;
        /// Requests that are under way at a time when the flusher, fsync or close send them (`max_background`
        /// of FUSE, 12 by default).
        #[serde(default = "in_flight")]
        in_flight: u32;
        /// Dirty bytes in a row that the call which completes them sends, with write-back: the "optimal
        /// number" of DVS (Hicks, IV.A.2). None: that is left to the flusher, as FUSE and NFS do (6.18).
        push: Option<Bytes>;
        /// Close sends what is dirty and waits for it (`fuse_flush`, `nfs_file_flush`, 6.18).
        #[serde(default = "yes")]
        close_flushes: bool => setting;
        /// Open keeps the clean pages of a file that has not changed on the server (`FOPEN_KEEP_CACHE`;
        /// `nfs_revalidate_mapping`, 6.18). If not, it drops them.
        #[serde(default)]
        open_keeps: bool => setting;
        /// A page that is written in part is read first, if it is not cached and not behind the end
        /// (`iomap_write_begin`, 6.18). NFS keeps which bytes of it are dirty instead, in files that are open
        /// for writing only (`nfs_want_read_modify_write`).
        #[serde(default = "yes")]
        reads_partial: bool => setting;
        /// Opening a file that exists. None: `device.latency`.
        open: Option<Measured<Nanos>> = "open over the network";
        /// Opening one that does not exist yet. None: twice `device.latency`, for its name is looked up
        /// first.
        create: Option<Measured<Nanos>> = "open of a new file";
        /// Closing a file of which nothing is dirty. None: `device.latency`.
        close: Option<Measured<Nanos>> = "close";
        /// What a close takes longer after the file was written to with write-back, beyond the data
        /// (`fuse_flush_times`; a COMMIT of NFS). None: `device.latency`.
        commit: Option<Measured<Nanos>> = "close after writes";
        /// Taking a name away (`fuse_unlink`, 6.18). None: `device.latency`.
        unlink: Option<Measured<Nanos>> = "unlink";
        /// Renaming a file over another one (`fuse_rename_common`). None: `device.latency`.
        rename: Option<Measured<Nanos>> = "rename over a file";
        /// Changing a file's length (`fuse_do_setattr`). None: `device.latency`.
        truncate: Option<Measured<Nanos>> = "truncate";
        /// Taking a cached page out of the cache, as open, unlink and truncate do (`invalidate_inode_pages2`,
        /// `truncate_inode_pages`). None: nothing.
        drop_page: Option<Measured<Nanos>> = "dropping a cached page";
        /// A write into the page cache, without the pages. None: `calls.write`.
        call: Option<Measured<Nanos>> = "write into the cache there";
        /// Writing new pages into the cache, one page at a time. None: `memory.fresh`.
        fresh: Option<Measured<Rate>> = "fresh pages there";
        /// Writing over cached pages with data from the processor's cache. None: as `memory`'s.
        cached: Option<Measured<Rate>> = "cached pages there";
        /// Writing over cached pages of a file of up to 1 MiB, from the processor's cache. None: as `cached`.
        near: Option<Measured<Rate>> = "the same, files of up to 1 MiB";
        /// A read from the page cache, without the bytes. None: `calls.read`.
        read_call: Option<Measured<Nanos>> = "read call there";
        /// Reading cached pages of a file that is in the processor's cache. None: as `memory`'s.
        read: Option<Measured<Rate>> = "read of cached pages there";
        /// Reading cached pages of a file of up to 1 MiB. None: as `read`.
        read_near: Option<Measured<Rate>> = "the same, files of up to 1 MiB";
    }
}

impl NetworkConstants {
    /// A way whose other constants follow from the device's.
    pub fn new(policy: CachePolicy, request: Bytes) -> NetworkConstants {
        NetworkConstants {
            policy,
            request,
            read_request: None,
            in_flight: in_flight(),
            push: None,
            close_flushes: true,
            open_keeps: false,
            reads_partial: true,
            open: None,
            create: None,
            close: None,
            commit: None,
            unlink: None,
            rename: None,
            truncate: None,
            drop_page: None,
            call: None,
            fresh: None,
            cached: None,
            near: None,
            read_call: None,
            read: None,
            read_near: None,
            activate: Retired,
        }
    }

    pub(super) fn is_sound(&self) -> bool {
        let requests = [Some(self.request), self.read_request, self.push];
        self.in_flight > 0 && requests.into_iter().flatten().all(|bytes| !bytes.is_zero())
    }
}

/// The default of FUSE (`FUSE_DEFAULT_MAX_BACKGROUND`, 6.18).
const fn in_flight() -> u32 {
    12
}

const fn yes() -> bool {
    true
}
