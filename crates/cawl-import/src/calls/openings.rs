//! Calls that open, close, copy, name and look: what they do to tables, and the event some become.
//!
//! The law: **the tables follow every call, the trace only those that matter to writing.** A call on a
//! descriptor that cannot write changes what is known and becomes no event, unless it is about a lock.

use cawl_core::host_text::unescape;
use cawl_core::{EndKind, Language};
use cawl_wire::{Event, FileKind, Op, flag, lock};

use super::events::{CallKind, Caller, Closing, Pending, Target, pointed, unnamed};
use super::tables::{self, Description};
use super::text::{self, Call, Outcome};
use super::{Calls, birth, names};
use crate::{SkipReason, open_bits};

/// What Go's runtime reads before anything else (runtime/os_linux.go, `getHugePageSize`; Go 1.9 to 1.26).
const READ_BY_GO: &str = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
/// Sizes of files known from stat alone, at most.
const MAX_STATS: usize = 64;

impl Calls {
    pub(super) fn apply_open(&mut self, caller: &Caller, name: &str, call: &Call<'_>) {
        let (directory, path, flags) = match name {
            "creat" => (None, call.arg(0), "O_WRONLY|O_CREAT|O_TRUNC"),
            "open" => (None, call.arg(0), call.arg(1)),
            _ => (Some(call.arg(0)), call.arg(1), call.arg(2)),
        };
        let flags = flags.split_once("flags=").map_or(flags, |(_, flags)| flags);
        let flags = &flags[..flags.find([',', '}']).unwrap_or(flags.len())];
        let has = |name: &str| flags.split('|').any(|flag| flag == name);
        let Outcome::Value(fd, shown) = call.result else { return };
        let Ok(fd) = i32::try_from(fd) else { return };
        let annotation = text::annotation(shown);
        let path = match annotation {
            Some(shown) => Some(unescape(tables::bare(shown)).into_owned()),
            None => self.path(caller, directory, path),
        };
        let is_unnamed = path.is_none();
        let path = path.unwrap_or_else(|| unnamed(caller.pid, fd));
        if path == READ_BY_GO
            && let Some(process) = self.processes.get_mut(&caller.pid)
        {
            process.language = Some(Language::Go);
        }
        let kind = match tables::kind_of_path(annotation.unwrap_or(&path)) {
            FileKind::Regular if has("O_DIRECTORY") && !has("O_TMPFILE") => FileKind::Directory,
            kind => kind,
        };
        let nameless = has("O_TMPFILE") || text::is_deleted(shown);
        let created = has("O_CREAT") && has("O_EXCL");
        let file = match () {
            () if nameless || is_unnamed => self.files.nameless(&path, kind),
            () if created => self.files.fresh(&path, kind),
            () => self.files.named(&path, kind),
        };
        if is_unnamed && !nameless {
            file.borrow_mut().unnamed = Some(caller.start);
            self.unnamed += 1;
        }
        let bits = if has("O_PATH") { 0 } else { open_bits(flags) };
        let recent = self.stats.iter().rfind(|(known, _)| *known == path).map(|(_, size)| *size);
        let description = Description::new(file, bits & !(flag::TRUNC | flag::TMPFILE));
        tables::install(&caller.table, fd, &description, has("O_CLOEXEC"));
        let target = Target::of(fd, Some(description));
        let is_settled =
            target.file.as_ref().is_some_and(|file| file.borrow().size_known || file.borrow().met);
        if nameless || created || (bits & flag::TRUNC != 0 && bits & flag::WRITABLE != 0) {
            target.resize(0);
        } else if let (false, Some(size)) = (is_settled, recent) {
            target.resize(size);
        }
        if bits & (flag::WRITABLE | flag::TRUNC) == 0 {
            return self.skip(SkipReason::ReadOnly);
        }
        let mut event = self.event(Op::Open, caller, &target);
        event.flags |= bits;
        event.returned = i64::from(fd);
        if let Some(file) = &target.file {
            let file = file.borrow();
            event.requested = file.size;
            event.flags |= if file.size_known { 0 } else { flag::ESTIMATED };
        }
        self.emit(event);
    }

    /// Takes a descriptor out of the table while its close is under way.
    pub(super) fn take_closing(&mut self, tid: u32, text: &str) -> Option<Event> {
        let caller = &self.caller(tid, self.now, Some(0))?;
        let target = self.target(caller, text.split([',', ')']).next()?.trim());
        let event = self.closing(caller, &target);
        if event.is_some() {
            self.announce(caller.pid);
        }
        tables::change(&caller.table).remove(&target.fd);
        event
    }

    /// The event of a close, if it is wanted.
    fn closing(&mut self, caller: &Caller, target: &Target) -> Option<Event> {
        (target.flags() & flag::WRITABLE != 0).then(|| self.event(Op::Close, caller, target))
    }

    pub(super) fn apply_close(&mut self, caller: &Caller, call: &Call<'_>, closing: Closing) {
        let event = match closing {
            Closing::Begun(event) => event,
            Closing::AtOnce => {
                let target = self.target(caller, call.arg(0));
                let event = self.closing(caller, &target);
                if !matches!(call.result, Outcome::Failed(9)) {
                    tables::change(&caller.table).remove(&target.fd);
                }
                event
            }
        };
        let Some(mut event) = event else { return self.skip(SkipReason::ReadOnly) };
        Self::settle(&mut event, call.result);
        (event.duration, event.flags) = (caller.duration, event.flags | caller.flags);
        self.emit(event);
    }

    /// fcntl, unless it makes a descriptor.
    pub(super) fn apply_control(&mut self, caller: &Caller, call: &Call<'_>) {
        let command = call.arg(1);
        if command.contains("_SETLK") {
            return self.apply_lock(caller, call);
        }
        let Outcome::Value(_, shown) = call.result else { return };
        let target = self.target(caller, call.arg(0));
        let flags = match command {
            "F_SETFD" => {
                if let Some(descriptor) = tables::change(&caller.table).get_mut(&target.fd) {
                    descriptor.close_on_exec = call.arg(2).contains("FD_CLOEXEC");
                }
                None
            }
            "F_SETFL" => Some(call.arg(2)),
            "F_GETFL" => shown.strip_prefix("(flags ").and_then(|text| text.strip_suffix(')')),
            _ => None,
        };
        if let (Some(flags), Some(description)) = (flags, &target.description) {
            let told = if command == "F_GETFL" { flag::SYNC | flag::DSYNC | flag::WRITABLE } else { 0 };
            let mask = flag::APPEND | flag::DIRECT | told;
            let known = &mut description.borrow_mut().flags;
            *known = *known & !mask | open_bits(flags) & mask;
        }
        self.skip(SkipReason::ReadOnly);
    }

    /// A lock of fcntl or of flock. A range that is counted from elsewhere than the file's begin is not
    /// known.
    pub(super) fn apply_lock(&mut self, caller: &Caller, call: &Call<'_>) {
        let (command, range) = (call.arg(1), call.arg(2));
        let target = self.target(caller, call.arg(0));
        let mut event = self.event(Op::Lock, caller, &target);
        Self::settle(&mut event, call.result);
        let field = |name: &str| {
            let (_, rest) = range.split_once(name)?;
            Some(&rest[..rest.find([',', '}']).unwrap_or(rest.len())])
        };
        let number = |name| field(name).and_then(names::integer).unwrap_or(0) as u64;
        if range.starts_with("0x") {
            return self.skip(SkipReason::Hidden("lock of fcntl".to_owned()));
        }
        if range.is_empty() {
            (event.offset, event.requested) = (0, 0);
            event.aux = names::bits(command, names::LOCK) | lock::FLOCK | lock::DESCRIPTION;
        } else {
            if field("l_whence=") == Some("SEEK_SET") {
                (event.offset, event.requested) = (number("l_start="), number("l_len="));
            }
            let holder = if command.starts_with("F_OFD") { lock::DESCRIPTION } else { 0 };
            event.aux = names::bits(field("l_type=").unwrap_or(""), names::LOCK) | holder;
        }
        self.emit(event);
    }

    pub(super) fn apply_dup(&mut self, caller: &Caller, call: &Call<'_>) {
        let Outcome::Value(value, _) = call.result else { return };
        let target = self.target(caller, call.arg(0));
        let Ok(to) = i32::try_from(value) else { return };
        let close_on_exec = call.arg(1) == "F_DUPFD_CLOEXEC" || call.arg(2).contains("O_CLOEXEC");
        match &target.description {
            Some(description) if to != target.fd => {
                tables::install(&caller.table, to, description, close_on_exec);
            }
            Some(_) => {}
            None => drop(tables::change(&caller.table).remove(&to)),
        }
        if target.flags() & flag::WRITABLE == 0 {
            return self.skip(SkipReason::ReadOnly);
        }
        let mut event = self.event(Op::Dup, caller, &target);
        event.returned = value;
        self.emit(event);
    }

    pub(super) fn apply_seek(&mut self, caller: &Caller, name: &str, call: &Call<'_>) {
        let Outcome::Value(value, _) = call.result else { return };
        let position = match name {
            "_llseek" => call.args.iter().find_map(|arg| pointed(arg)),
            _ => u64::try_from(value).ok(),
        };
        let Some(position) = position else { return self.skip(SkipReason::Unreadable) };
        let target = self.target(caller, call.arg(0));
        let mut event = self.event(Op::Seek, caller, &target);
        (event.offset, event.returned) = (position, value);
        if let Some(description) = &target.description {
            let mut description = description.borrow_mut();
            description.position = position;
            description.flags &= !flag::ESTIMATED;
        }
        if call.args.contains(&"SEEK_END") && call.arg(1) == "0" {
            target.resize(position);
        }
        if event.has(flag::WRITABLE) { self.emit(event) } else { self.skip(SkipReason::ReadOnly) }
    }

    pub(super) fn apply_name(&mut self, caller: &Caller, name: &str, kind: CallKind, call: &Call<'_>) {
        let at = name.contains("at");
        let directory = |place: usize| if at { Some(call.arg(place)) } else { None };
        let first = self.path(caller, directory(0), call.arg(usize::from(at)));
        if kind == CallKind::Unlink && call.arg(2).contains("AT_REMOVEDIR") {
            return self.skip(SkipReason::ReadOnly);
        }
        let Some(first) = first else { return self.apply_nameless(caller, name, kind) };
        if kind == CallKind::Unlink {
            let file = self.files.named(&first, tables::kind_of_path(&first));
            let mut event = self.event(Op::Unlink, caller, &Target { file: Some(file), ..Target::NONE });
            event.aux = self.files.unlink(&first);
            return self.emit(event);
        }
        let place = if at { 3 } else { 1 };
        let Some(second) = self.path(caller, directory(2), call.arg(place)) else {
            return self.apply_nameless(caller, name, kind);
        };
        if kind == CallKind::Link {
            self.files.link(&first, &second);
            return self.skip(SkipReason::ReadOnly);
        }
        if call.arg(4).contains("RENAME_EXCHANGE") {
            let aside = format!("{second}\u{0}exchange");
            self.files.rename(&second, &aside);
            self.files.rename(&first, &second);
            self.files.rename(&aside, &first);
            let event = self.event(Op::Rename, caller, &Target::NONE);
            self.emit(event);
            self.came(&first, caller.start);
            return self.came(&second, caller.start);
        }
        let replaced = self.files.find(&second).filter(|_| first != second);
        let mut event = self.event(Op::Rename, caller, &Target { file: replaced, ..Target::NONE });
        if first != second {
            event.aux = self.files.unlink(&second);
            self.files.rename(&first, &second);
        }
        self.emit(event);
        self.came(&second, caller.start);
    }

    /// A name was taken away or given, and is not known.
    fn apply_nameless(&mut self, caller: &Caller, name: &str, kind: CallKind) {
        let op = match kind {
            CallKind::Unlink => Op::Unlink,
            CallKind::Rename => Op::Rename,
            _ => return self.skip(SkipReason::ReadOnly),
        };
        self.skip(SkipReason::Nameless(name.to_owned()));
        let event = self.event(op, caller, &Target::NONE);
        self.emit(event);
    }

    pub(super) fn apply_exec(&mut self, caller: &Caller, name: &str, call: &Call<'_>) {
        let list = call.args.iter().position(|arg| arg.starts_with('['));
        let mut arguments = list.map(|at| text::strings(call.args[at])).unwrap_or_default();
        let path = text::string(call.arg(usize::from(name == "execveat"))).unwrap_or_default();
        let program = if arguments.is_empty() { path } else { arguments.remove(0) };
        let ended = caller.start.saturating_add(caller.duration);
        if self.processes.get(&caller.pid).is_some_and(|process| process.session != 0) {
            let event = self.event(Op::Exec, caller, &Target::NONE);
            self.emit(event);
            self.close_session(caller.pid, ended, EndKind::Exec);
        }
        let Some(process) = self.processes.get_mut(&caller.pid) else { return };
        process.table = tables::executed(&process.table);
        (process.program, process.arguments, process.language) = (program, arguments, None);
        (process.born, process.session) = (ended, 0);
        // Whatever other threads there were are gone.
        self.threads
            .retain(|tid, thread| thread.pid != caller.pid || *tid == caller.tid || *tid == caller.pid);
    }

    pub(super) fn apply_child(&mut self, caller: &Caller, name: &str, call: &Call<'_>) {
        let Outcome::Value(child, _) = call.result else { return self.skip(SkipReason::Failed) };
        let Ok(child) = u32::try_from(child) else { return self.skip(SkipReason::Unreadable) };
        let flags = format!("{name} {}", call.args.join(","));
        if !self.threads.contains_key(&child) && child != 0 {
            self.born(child, caller.tid, &flags, caller.start);
        }
        let made = self.threads.get_mut(&child);
        // A new process goes first, to its exec, if clone3 made it for posix_spawn.
        let is_thread = made.is_some_and(|thread| {
            thread.doubtful &= thread.seen || !self.gaps.durations;
            thread.pid != child
        });
        if is_thread || flags.contains("CLONE_THREAD") {
            return self.skips.count_other(name, self.line);
        }
        let mut event = self.event(birth(&flags), caller, &Target::NONE);
        event.returned = i64::from(child);
        self.emit(event);
    }

    /// A clone returned another child than the one that was taken for its own.
    pub(super) fn adopt_result(&mut self, parent: u32, pending: &Pending, text: &str) {
        let Some(Call { result: Outcome::Value(child, _), .. }) = text::call(text) else { return };
        let (Ok(child), Some(guess)) = (u32::try_from(child), pending.child) else { return };
        if child != guess && !self.threads.contains_key(&child) {
            self.born(child, parent, &format!("{} {text}", pending.name), pending.start);
        }
    }

    /// Calls that only tell or make something that is no file.
    pub(super) fn apply_other(&mut self, caller: &Caller, name: &str, kind: CallKind, call: &Call<'_>) {
        let Outcome::Value(value, shown) = call.result else { return };
        let close_on_exec = call.args.iter().any(|arg| arg.contains("_CLOEXEC"));
        match kind {
            CallKind::Stat => self.learn_stat(caller, name, call),
            CallKind::Directory => {
                let path = if name == "chdir" {
                    self.path(caller, None, call.arg(0))
                } else {
                    self.target(caller, call.arg(0)).file.map(|file| file.borrow().path.clone())
                };
                if let (Some(path), Some(process)) = (path, self.processes.get_mut(&caller.pid)) {
                    process.cwd = path;
                }
            }
            CallKind::Pair(kind) => {
                let list = call.args.iter().find(|arg| arg.starts_with('[')).copied().unwrap_or("");
                if self.gaps.pointers && list.is_empty() {
                    for fd in tables::free(&caller.table, 2) {
                        self.install_special(caller, fd, None, kind, close_on_exec);
                    }
                }
                for end in list.trim_matches(['[', ']']).split(", ") {
                    if let Some((fd, path)) = text::descriptor(end) {
                        self.install_special(caller, fd, path, kind, close_on_exec);
                    }
                }
            }
            CallKind::Special(kind) => {
                if let Ok(fd) = i32::try_from(value) {
                    self.install_special(caller, fd, text::annotation(shown), kind, close_on_exec);
                }
            }
            CallKind::Map => {
                let shared = call.arg(3).contains("MAP_SHARED") && call.arg(2).contains("PROT_WRITE");
                let file = self.target(caller, call.arg(4)).file;
                if shared && file.is_some_and(|file| file.borrow().kind == FileKind::Regular) {
                    let what = "mmap of a file, shared and writable".to_owned();
                    return self.skip(SkipReason::Unmodelled(what));
                }
            }
            CallKind::Ioctl if call.arg(1).contains("FICLONE") => {
                return self.skip(SkipReason::Unmodelled("ioctl(FICLONE)".to_owned()));
            }
            _ => {}
        }
        self.skips.count_other(name, self.line);
    }

    fn install_special(
        &mut self,
        caller: &Caller,
        fd: i32,
        path: Option<&str>,
        kind: FileKind,
        on_exec: bool,
    ) {
        let path =
            path.map_or_else(|| format!("{kind:?}").to_lowercase(), |path| unescape(path).into_owned());
        let file = match path.contains('[') {
            true => self.files.named(&path, kind),
            false => self.files.nameless(&path, kind),
        };
        tables::install(&caller.table, fd, &Description::new(file, flag::WRITABLE), on_exec);
    }

    /// What stat says of a file's size and kind, if nothing better is known.
    fn learn_stat(&mut self, caller: &Caller, name: &str, call: &Call<'_>) {
        let Some(facts) = call.args.iter().find(|arg| arg.starts_with('{')) else { return };
        let (mode, size) = match name {
            "statx" => ("stx_mode=S_IF", "stx_size"),
            _ => ("st_mode=S_IF", "st_size"),
        };
        let Some((_, mode)) = facts.split_once(mode) else { return };
        let size = text::member(facts, size).filter(|_| mode.starts_with("REG"));
        let empty = call.arg(1) == "\"\"";
        let file = if name.starts_with("fstat") && !name.contains("at6") || empty {
            self.target(caller, call.arg(0)).file
        } else {
            let by_path = name.starts_with("stat") && name != "statx";
            let (directory, path) = if by_path { (None, 0) } else { (Some(call.arg(0)), 1) };
            let Some(path) = self.path(caller, directory, call.arg(path)) else { return };
            let file = self.files.find(&path);
            if let (None, Some(size)) = (&file, size) {
                self.stats.retain(|(known, _)| *known != path);
                self.stats.push_back((path, size));
                if self.stats.len() > MAX_STATS {
                    self.stats.pop_front();
                }
            }
            file
        };
        let Some(file) = file else { return };
        let mut file = file.borrow_mut();
        match size {
            Some(size) => (file.size, file.size_known) = (size, true),
            None if mode.starts_with("DIR") => file.kind = FileKind::Directory,
            None if mode.starts_with("CHR") => file.kind = FileKind::Char,
            None if mode.starts_with("BLK") => file.kind = FileKind::Block,
            None if mode.starts_with("IFO") => file.kind = FileKind::Fifo,
            None => {}
        }
    }

    /// The path an argument names, below the directory descriptor or the working directory.
    pub(super) fn path(&self, caller: &Caller, directory: Option<&str>, argument: &str) -> Option<String> {
        let path = text::string(argument)?;
        if path.starts_with('/') {
            return Some(tables::join("", &path));
        }
        if let Some(shown) = directory.and_then(text::annotation) {
            return Some(tables::join(&unescape(shown), &path));
        }
        let opened =
            directory.and_then(text::descriptor).and_then(|(fd, _)| tables::description(&caller.table, fd));
        Some(match opened {
            Some(opened) => tables::join(&opened.borrow().file.borrow().path, &path),
            None => tables::join(self.processes.get(&caller.pid).map_or("", |process| &process.cwd), &path),
        })
    }
}
