//! The files that code is loaded from: opened once, their tables shared by all processes.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use cawl_model::record::Frame;
use framehop::ExplicitModuleSectionInfo;
use rustc_hash::FxHashMap;

use crate::elf::{Elf, open_regular};
use crate::maps::Mapping;
use crate::names::Names;

/// Most files that are told apart.
const MODULES: usize = 16_384;
/// Most bytes of a file's tables for unwinding, and of those kept that no process needs.
const TABLES: u64 = 64 << 20;
const KEPT: usize = 64 << 20;
/// Most bytes of symbols and debugging information that are kept in all.
const NAMES: usize = 512 << 20;
/// Time for which one that needs a file's symbols waits for another that reads them.
const PATIENCE: Duration = Duration::from_secs(8);

/// Locks; what a panic left is whole enough: each entry is replaced as one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which file it is: device, inode number, length, time of the last change, path. A file that was not opened
/// has zeros for its length and time.
type Key = (u64, u64, u64, i128, PathBuf);

/// All files of the daemon.
#[derive(Default)]
pub struct Modules {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    by_key: FxHashMap<Key, Arc<Module>>,
    by_number: Vec<Arc<Module>>,
    /// Those with tables, used last at the end.
    tables: VecDeque<Arc<Module>>,
    names: VecDeque<Arc<Module>>,
}

/// A file that code is loaded from.
pub struct Module {
    /// Its number, unique within [`Modules`].
    pub number: u32,
    path: PathBuf,
    /// Open until its symbols are read.
    file: Mutex<Option<File>>,
    unwinding: Mutex<Option<Arc<Unwinding>>>,
    names: Mutex<Known>,
}

/// What is known of a file's symbols.
enum Known {
    /// They were not looked for.
    Nothing,
    /// They cannot be had.
    Never,
    Names(Box<Names>),
}

/// What unwinding needs of a file.
pub struct Unwinding {
    elf: Elf,
    sections: ExplicitModuleSectionInfo<Arc<[u8]>>,
}

impl Unwinding {
    fn read(file: File) -> Option<Unwinding> {
        let elf = Elf::read(file)?;
        let section = |name| elf.section(name, TABLES);
        let eh_frame = elf.addresses(".eh_frame").map_or(0, |addresses| addresses.start);
        let ends = |bytes: &Arc<[u8]>| crate::expressions::end(bytes, eh_frame);
        let frames = |bytes: &Arc<[u8]>| crate::expressions::end_in_debug_frame(bytes);
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: elf.addresses(".text"),
            got_svma: elf.addresses(".got"),
            eh_frame_svma: elf.addresses(".eh_frame"),
            eh_frame: section(".eh_frame").filter(ends),
            eh_frame_hdr_svma: elf.addresses(".eh_frame_hdr"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            debug_frame: section(".debug_frame").filter(frames),
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Unwinding { elf, sections })
    }

    fn size(&self) -> usize {
        let sections = [&self.sections.eh_frame, &self.sections.eh_frame_hdr, &self.sections.debug_frame];
        sections.into_iter().flatten().map(|section| section.len()).sum()
    }

    /// For a mapping of the file, the unwinder's view of it.
    pub(crate) fn of(&self, mapping: &Mapping) -> Option<framehop::Module<Arc<[u8]>>> {
        let bias = self.elf.bias(mapping.range.start, mapping.offset)?;
        Some(framehop::Module::new(String::new(), mapping.range.clone(), bias, self.sections.clone()))
    }
}

/// Opens the file of a mapping, of a process that may have ended; None if it is not that file any more, or no
/// regular one. Nothing waits here, but for a filesystem that does not answer.
fn open(pid: u32, mapping: &Mapping) -> Option<File> {
    let path = mapping.path.as_deref()?;
    let exact = format!("/proc/{pid}/map_files/{:x}-{:x}", mapping.range.start, mapping.range.end);
    let inside = Path::new("/proc").join(pid.to_string()).join("root").join(path.strip_prefix("/").ok()?);
    [Path::new(&exact), &inside, path].into_iter().find_map(|path| open_as(path, mapping.id))
}

fn open_as(path: &Path, (dev, ino): (u64, u64)) -> Option<File> {
    let file = open_regular(path)?;
    let found = file.metadata().ok()?;
    // Filesystems that put several volumes or layers together show mappings another device.
    let is_same = found.ino() == ino && (found.dev() == dev || is_layered(&file));
    is_same.then_some(file)
}

/// True on btrfs, overlayfs and bcachefs.
fn is_layered(file: &File) -> bool {
    const LAYERED: [u64; 3] = [0x9123_683e, 0x794c_7630, 0xca45_1a4e];
    rustix::fs::fstatfs(file).is_ok_and(|found| LAYERED.contains(&(found.f_type as u64)))
}

impl Modules {
    /// The file of a mapping of this process. None beyond so many files. May wait for a filesystem.
    pub fn find(&self, pid: u32, mapping: &Mapping) -> Option<Arc<Module>> {
        let path = mapping.path.clone()?;
        let file = open(pid, mapping);
        let found = file.as_ref().and_then(|file| file.metadata().ok());
        let changed =
            |found: &std::fs::Metadata| i128::from(found.mtime()) << 32 | i128::from(found.mtime_nsec());
        let (length, changed) = found.map_or((0, 0), |found| (found.len(), changed(&found)));
        let key = (mapping.id.0, mapping.id.1, length, changed, path.clone());
        let mut all = lock(&self.all);
        if let Some(known) = all.by_key.get(&key) {
            return Some(Arc::clone(known));
        }
        if all.by_number.len() >= MODULES {
            return None;
        }
        let module = Arc::new(Module {
            number: all.by_number.len() as u32,
            path,
            file: Mutex::new(file),
            unwinding: Mutex::default(),
            names: Mutex::new(Known::Nothing),
        });
        all.by_number.push(Arc::clone(&module));
        all.by_key.insert(key, Arc::clone(&module));
        Some(module)
    }

    /// What unwinding needs of a file; None if it has none. May wait for a filesystem.
    pub fn unwinding(&self, module: &Arc<Module>) -> Option<Arc<Unwinding>> {
        if let Some(known) = &*lock(&module.unwinding) {
            return Some(Arc::clone(known));
        }
        let file = lock(&module.file).as_ref().and_then(|file| file.try_clone().ok())?;
        let read = guarded(|| Unwinding::read(file)).flatten().map(Arc::new)?;
        *lock(&module.unwinding) = Some(Arc::clone(&read));
        let mut all = lock(&self.all);
        all.tables.push_back(Arc::clone(module));
        let size = |module: &Arc<Module>| lock(&module.unwinding).as_ref().map_or(0, |table| table.size());
        let mut sum: usize = all.tables.iter().map(size).sum();
        while sum > KEPT
            && let Some(oldest) = all.tables.pop_front()
        {
            sum -= size(&oldest);
            *lock(&oldest.unwinding) = None;
        }
        Some(read)
    }

    /// A place in a file without its function.
    pub fn plain(&self, number: u32, offset: u64) -> Frame {
        let module = lock(&self.all).by_number.get(number as usize).cloned();
        let Some(module) = module else { return Frame::default() };
        Frame { module: Some(module.path.to_string_lossy().into_owned()), at: offset, ..Frame::default() }
    }

    /// The functions at a place in a file, innermost first: several where one is a part of the next. May wait
    /// for a filesystem.
    pub fn name(&self, number: u32, offset: u64) -> Vec<Frame> {
        let module = lock(&self.all).by_number.get(number as usize).cloned();
        let Some(module) = module else { return vec![Frame::default()] };
        let path = module.path.to_string_lossy().into_owned();
        let plain = self.plain(number, offset);
        let Some(mut known) = wait_for(&module.names) else { return vec![plain] };
        if let Known::Nothing = *known {
            // A panic, or a thread that hangs, leaves this.
            *known = Known::Never;
            let file = lock(&module.file).take();
            let read = file.and_then(|file| guarded(|| Names::read(file, &module.path)).flatten());
            if let Some(names) = read {
                *known = Known::Names(Box::new(names));
                drop(known);
                self.keep(&module);
                return self.name(number, offset);
            }
        }
        let Known::Names(names) = &mut *known else { return vec![plain] };
        let Some(frames) = guarded(|| names.find(offset)) else {
            *known = Known::Never;
            return vec![plain];
        };
        if frames.is_empty() {
            return vec![plain];
        }
        let in_module = |frame: Frame| Frame { module: Some(path.clone()), ..frame };
        frames.into_iter().map(in_module).collect()
    }

    /// The symbols of a file were read: those of others make room for them, and are not read again.
    fn keep(&self, module: &Arc<Module>) {
        let size = |module: &Arc<Module>| match &module.names.try_lock().as_deref() {
            Ok(Known::Names(names)) => names.size(),
            _ => 0,
        };
        let mut all = lock(&self.all);
        all.names.push_back(Arc::clone(module));
        let mut sum: usize = all.names.iter().map(size).sum();
        while sum > NAMES
            && all.names.len() > 1
            && let Some(oldest) = all.names.pop_front()
        {
            sum -= size(&oldest);
            if let Ok(mut known) = oldest.names.try_lock() {
                *known = Known::Never;
            }
        }
    }
}

/// Locks what another thread may hold while a filesystem does not answer.
fn wait_for<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let until = Instant::now() + PATIENCE;
    loop {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// Reads what may be made to hurt: a panic is a failure.
fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).ok()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;

    fn file_of(bytes: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn program() -> Vec<u8> {
        std::fs::read(cawl_kit::app_with("stacks", &["-O2"])).unwrap()
    }

    /// The place of a function's code in a file.
    fn place(names: &mut Names, function: &str) -> Option<u64> {
        (0x1000..0x4000).find(|at| {
            names.find(*at).last().is_some_and(|frame| frame.function.as_deref() == Some(function))
        })
    }

    #[test]
    fn what_is_not_the_mapped_file_is_not_opened() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, program()).unwrap();
        let found = path.metadata().unwrap();
        let mapping = |ino, path: &Path| Mapping {
            range: 0x1000..0x2000,
            offset: 0x1000,
            id: (found.dev(), ino),
            path: Some(path.to_owned()),
        };
        let nobody = u32::MAX;
        assert!(open(nobody, &mapping(found.ino(), &path)).is_some());
        assert!(open(nobody, &mapping(found.ino() + 1, &path)).is_none());
        // Nothing waits for who writes into a pipe.
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        assert!(open(nobody, &mapping(pipe.metadata().unwrap().ino(), &pipe)).is_none());
        let modules = Modules::default();
        let module = modules.find(nobody, &mapping(found.ino(), &path)).unwrap();
        assert!(modules.unwinding(&module).is_some());
        let other = modules.find(nobody, &mapping(found.ino() + 1, &path)).unwrap();
        assert!(modules.unwinding(&other).is_none() && other.number != module.number);
        let frames = modules.name(other.number, 0x1234);
        assert_eq!((frames.len(), frames[0].at, &frames[0].function), (1, 0x1234, &None));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        /// A file with bytes that are not what they were: symbols or none, and an end.
        #[test]
        fn a_damaged_file_ends_its_own_symbols(
            changes in prop::collection::vec((0..6u8, any::<prop::sample::Index>(), any::<u8>()), 1..40),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = program();
            let length = bytes.len();
            for (kind, at, byte) in changes {
                // Most of them in the headers: of the file, of segments, and of sections at its end.
                let at = match kind {
                    0 => at.index(64),
                    1 => 64 + at.index(800),
                    2 | 3 => length - 1 - at.index(3000.min(length)),
                    _ => at.index(length),
                };
                bytes[at] = byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(length));
            }
            let mapping = Mapping { range: 0x7000_0000..0x7000_4000, offset: 0x1000, id: (0, 0), path: None };
            let unwinding = guarded(|| Unwinding::read(file_of(&bytes)).and_then(|read| read.of(&mapping)));
            drop(unwinding);
            let _ = guarded(|| {
                let names = Names::read(file_of(&bytes), Path::new("/nowhere/stacks"));
                names.map(|mut names| (0x1000..0x1400).step_by(7).map(|at| names.find(at)).count())
            });
        }
    }

    #[test]
    fn a_whole_file_has_its_functions() {
        let mut names = Names::read(file_of(&program()), Path::new("/nowhere/stacks")).unwrap();
        let at = place(&mut names, "save_all").expect("a function");
        let frame = names.find(at + 4).pop().unwrap();
        assert!(frame.line.is_some() && frame.file.unwrap().ends_with("stacks.c"));
    }
}
