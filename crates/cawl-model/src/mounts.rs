//! Which filesystem the files of a device number have, by the mounts that a trace tells of.

use crate::filesystem::FilesystemKind;
use crate::record::Filesystem;

/// A mount whose files have other laws than those of an ordinary one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mounted {
    dev: u64,
    kind: FilesystemKind,
    over: Option<u64>,
    volatile: bool,
    delays_replacements: bool,
}

/// The filesystems of a machine, by the device number of their files.
#[derive(Clone, Debug, Default)]
pub struct Filesystems(Vec<Mounted>);

impl Filesystems {
    /// Those of these mounts.
    pub fn of(mounts: &[Filesystem]) -> Filesystems {
        let mounted = |mount: &Filesystem| {
            let has = |wanted: &str| mount.options.split(',').any(|option| option == wanted);
            Mounted {
                dev: mount.dev,
                kind: FilesystemKind::of(&mount.kind),
                over: mount.over,
                volatile: has("volatile"),
                delays_replacements: has("noauto_da_alloc"),
            }
        };
        Filesystems(mounts.iter().map(mounted).collect())
    }

    fn mount(&self, dev: u64) -> Option<&Mounted> {
        self.0.iter().find(|mount| mount.dev == dev)
    }

    /// Which one a device has, if it is known.
    pub fn kind(&self, dev: u64) -> Option<FilesystemKind> {
        self.mount(dev).map(|mount| mount.kind)
    }

    /// The device that files with this number lie on: that of the upper layer, of an overlay.
    pub fn below(&self, dev: u64) -> u64 {
        self.mount(dev).and_then(|mount| mount.over).unwrap_or(dev)
    }

    /// Nothing there is ever waited for: an overlay mounted with `volatile` (`ovl_should_sync`).
    pub fn is_volatile(&self, dev: u64) -> bool {
        self.mount(dev).is_some_and(|mount| mount.volatile && mount.kind == FilesystemKind::Overlay)
    }

    /// Files that replace others are not begun to be written (`EXT4_MOUNT_NO_AUTO_DA_ALLOC`).
    pub fn delays_replacements(&self, dev: u64) -> bool {
        self.mount(dev).is_some_and(|mount| mount.delays_replacements)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(dev: u64, kind: &str, options: &str, over: Option<u64>) -> Filesystem {
        Filesystem { dev, kind: kind.into(), options: options.into(), over, ..Filesystem::default() }
    }

    #[test]
    fn kinds_by_name() {
        let kinds = ["ext3", "xfs", "ramfs", "fuse.sshfs", "nfs4", "f2fs"].map(FilesystemKind::of);
        use FilesystemKind::*;
        assert_eq!(kinds, [Ext4, Xfs, Tmpfs, Fuse, Nfs, Other]);
    }

    #[test]
    fn an_overlay_lies_on_the_device_of_its_upper_layer() {
        let all = Filesystems::of(&[
            mount(1, "xfs", "rw", None),
            mount(2, "overlay", "rw,upperdir=/u,workdir=/w", Some(1)),
            mount(3, "overlay", "rw,upperdir=/u2,volatile", None),
            mount(4, "ext4", "rw,volatile", None),
        ]);
        assert_eq!([1, 2, 3, 9].map(|dev| all.below(dev)), [1, 1, 3, 9]);
        assert_eq!([2, 3, 4, 9].map(|dev| all.is_volatile(dev)), [false, true, false, false]);
        assert_eq!((all.kind(2), all.kind(9)), (Some(FilesystemKind::Overlay), None));
    }
}
