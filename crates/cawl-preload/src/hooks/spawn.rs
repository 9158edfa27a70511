//! Starting programs. The tracer and its settings are carried into the new program's environment,
//! whatever the caller made of it; other preloads and their order are kept.

use crate::env::{self, MAX_PRELOAD, MAX_STRINGS};
use crate::record::happened;
use crate::streams::{closed, closing, opened};
use crate::target::Target;
use crate::{announce, buffer, files, guard, maps, real, record, sys, target, uplink};
use cawl_wire::{Ended, Event, FileKind, Op};
use core::ffi::{CStr, c_char, c_int, c_void};
use libc::{FILE, pid_t};

type Strings = *const *const c_char;

unsafe extern "C" {
    static environ: Strings;
}

/// Room on the stack for a completed environment.
struct Room {
    list: [*const c_char; MAX_STRINGS],
    preload: [u8; MAX_PRELOAD],
}

impl Room {
    const fn new() -> Room {
        Room { list: [core::ptr::null(); MAX_STRINGS], preload: [0; MAX_PRELOAD] }
    }

    /// The environment for a program: `replaces`, if it takes this process's place.
    ///
    /// # Safety
    /// `envp` must be as exec takes it.
    unsafe fn complete(&mut self, envp: Strings, target: impl FnOnce() -> Target, replaces: bool) -> Strings {
        let Some(settings) = env::settings() else { return envp };
        // With children off, only the traced process's own successor is traced too.
        if settings.only_child_of != 0 && !(replaces && sys::getpid() == uplink::pid()) {
            return envp;
        }
        // SAFETY: the caller's promise.
        unsafe { settings.complete(envp, &target(), &mut self.list, &mut self.preload) }
    }
}

/// Before an exec: a vfork child leaves its parent's session alone, any other process ends its own.
///
/// # Safety
/// `path` must be null or what exec was given.
unsafe fn replacing(directory: c_int, path: *const c_char) {
    files::share_all();
    if !uplink::is_ours() {
        // A vfork child: its parent, which waits, is said to have started the program.
        if let Some(inside) = guard::enter() {
            let now = sys::now();
            let mut event = record::event(&inside, Op::Spawn, now, now);
            event.returned = i64::from(sys::getpid());
            // SAFETY: the caller's promise.
            unsafe { identify(&mut event, directory, path) };
            buffer::push(&inside, &event);
        }
        return;
    }
    // SAFETY: the caller's promise.
    happened(Op::Exec, sys::now(), 0, |event| unsafe { identify(event, directory, path) });
    if let Some(inside) = guard::enter() {
        maps::sample_all(&inside);
        uplink::goodbye(&inside, Ended::Exec, 0);
    }
}

/// Says which file a program is.
///
/// # Safety
/// `path` must be null or what exec was given.
unsafe fn identify(event: &mut Event, directory: c_int, path: *const c_char) {
    if path.is_null() {
        return;
    }
    // SAFETY: the caller's promise; and a path that the kernel could read is a string.
    unsafe {
        let Some(stat) = sys::stat_path(directory, path, true) else { return };
        let name = CStr::from_ptr(path).to_bytes();
        if name.contains(&b'/') {
            announce::named_file(&stat, directory, name);
            (event.dev, event.ino) = (stat.st_dev, stat.st_ino);
            event.kind = FileKind::from_mode(stat.st_mode);
        }
    }
}

/// # Safety
/// `path` must be null or what the function was given.
unsafe fn spawned(start: u64, path: *const c_char, child: i64, failure: c_int) {
    happened(Op::Spawn, start, child, |event| {
        // SAFETY: the caller's promise.
        unsafe { identify(event, libc::AT_FDCWD, path) };
        event.errno = failure as u16;
    });
}

/// # Safety
/// As execve, or execvpe if `search`.
unsafe fn exec(path: *const c_char, argv: Strings, envp: Strings, search: bool) -> c_int {
    // SAFETY: the caller's promise; the completed environment lives until the call returns.
    unsafe {
        if !uplink::active() {
            return if search { real::execvpe(path, argv, envp) } else { real::execve(path, argv, envp) };
        }
        let mut found: target::Found = [0; size_of::<target::Found>()];
        let program = if search { target::search(path, environ, &mut found) } else { path };
        replacing(libc::AT_FDCWD, program);
        let mut room = Room::new();
        let envp = room.complete(envp, || target::at(libc::AT_FDCWD, program), true);
        if search { real::execvpe(path, argv, envp) } else { real::execve(path, argv, envp) }
    }
}

hooks! {
    fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
        exec(path, argv, envp, false)
    }

    fn execv(path: *const c_char, argv: Strings) -> c_int {
        exec(path, argv, environ, false)
    }

    fn execvp(file: *const c_char, argv: Strings) -> c_int {
        exec(file, argv, environ, true)
    }

    fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
        exec(file, argv, envp, true)
    }

    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
        if !uplink::active() {
            return real::fexecve(fd, argv, envp);
        }
        replacing(fd, core::ptr::null());
        let mut room = Room::new();
        let envp = room.complete(envp, || target::of(fd), true);
        real::fexecve(fd, argv, envp)
    }

    fn execveat(
        directory: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int,
    ) -> c_int {
        if !uplink::active() {
            return real::execveat(directory, path, argv, envp, flags);
        }
        replacing(directory, path);
        let mut room = Room::new();
        let is_descriptor = flags & libc::AT_EMPTY_PATH != 0 && !path.is_null() && *path == 0;
        let target = || if is_descriptor { target::of(directory) } else { target::at(directory, path) };
        let envp = room.complete(envp, target, true);
        real::execveat(directory, path, argv, envp, flags)
    }

    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        argv: Strings, envp: Strings,
    ) -> c_int {
        if !uplink::active() {
            return real::posix_spawn(pid, path, actions, attributes, argv, envp);
        }
        files::share_all();
        let mut room = Room::new();
        let envp = room.complete(envp, || target::at(libc::AT_FDCWD, path), false);
        let start = sys::now();
        let failure = real::posix_spawn(pid, path, actions, attributes, argv, envp);
        let child = if failure == 0 && !pid.is_null() { i64::from(*pid) } else { -i64::from(failure != 0) };
        spawned(start, path, child, failure);
        failure
    }

    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        argv: Strings, envp: Strings,
    ) -> c_int {
        if !uplink::active() {
            return real::posix_spawnp(pid, file, actions, attributes, argv, envp);
        }
        files::share_all();
        let mut room = Room::new();
        let mut found: target::Found = [0; size_of::<target::Found>()];
        let program = target::search(file, environ, &mut found);
        let envp = room.complete(envp, || target::at(libc::AT_FDCWD, program), false);
        let start = sys::now();
        let failure = real::posix_spawnp(pid, file, actions, attributes, argv, envp);
        let child = if failure == 0 && !pid.is_null() { i64::from(*pid) } else { -i64::from(failure != 0) };
        spawned(start, program, child, failure);
        failure
    }

    fn system(command: *const c_char) -> c_int {
        if !uplink::active() {
            return real::system(command);
        }
        files::share_all();
        let start = sys::now();
        let returned = real::system(command);
        if !command.is_null() {
            spawned(start, core::ptr::null(), if returned == -1 { -1 } else { 0 }, 0);
        }
        returned
    }

    fn popen, _IO_popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
        if !uplink::active() {
            return real::popen(command, mode);
        }
        files::share_all();
        let start = sys::now();
        let stream = real::popen(command, mode);
        spawned(start, core::ptr::null(), if stream.is_null() { -1 } else { 0 }, 0);
        if !stream.is_null() {
            opened(start, stream, true, 0);
        }
        stream
    }

    fn pclose(stream: *mut FILE) -> c_int {
        if !uplink::active() || stream.is_null() {
            return real::pclose(stream);
        }
        let event = closing(stream);
        let start = sys::now();
        let returned = real::pclose(stream);
        closed(event, start, i64::from(returned));
        returned
    }
}
