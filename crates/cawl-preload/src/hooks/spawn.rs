//! Starting programs. The tracer and its settings are carried into the new program's environment, whatever
//! the caller made of it; other preloads and their order are kept. Where the new program cannot load the
//! tracer, it is taken out of the environment, also by a process that is not traced itself.

use crate::base::hot::{is_open, pid, share_all};
use crate::base::room::{self, Room};
use crate::base::settings::{library, settings, strings};
use crate::base::{clock, gate, guard, memory, real, sys};
use crate::hooks::emit::stream::{closing, opened};
use crate::hooks::emit::{closed, happened, mapping, record};
use crate::session::environment::{self, Completed, names as names_tracer, parts, take_room};
use crate::session::search::search as look_for;
use crate::session::target::Target;
use crate::session::{self, fitness, target};
use crate::state::creation::Creation;
use crate::state::glibc_file::Stream;
use crate::state::names::{self, Source};
use crate::state::{birth, stream_table};
use cawl_wire::{Ended, Event, FileId, FileKind, Obstacle, Op};
use core::ffi::{CStr, c_char, c_int, c_void};
use libc::{FILE, pid_t};

type Strings = *const *const c_char;

unsafe extern "C" {
    static environ: Strings;
}

/// How the program to be started is told.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Path,
    /// As a name that is searched for in the folders of PATH.
    Name,
    Descriptor,
}

struct Start {
    directory: c_int,
    by: By,
    /// File actions, or null.
    actions: *const c_void,
    /// What is started can be told.
    is_known: bool,
    /// Why it will not be traced, once that is known.
    obstacle: Option<Obstacle>,
    /// As the function was told; then its path, null if that is not known.
    program: *const c_char,
    argv: Strings,
    envp: Strings,
}

impl Start {
    fn of(directory: c_int, by: By, program: *const c_char, argv: Strings, envp: Strings) -> Start {
        let actions = core::ptr::null();
        Start { directory, by, actions, is_known: true, obstacle: None, program, argv, envp }
    }
}

impl Start {
    /// True if the program need not be at the path that was given.
    fn is_elsewhere(&self) -> bool {
        self.by == By::Name || !self.actions.is_null()
    }

    /// Finds it, with the start's room.
    ///
    /// # Safety
    /// As [`prepare`].
    #[inline(never)]
    unsafe fn find(&mut self, room: *mut Room) {
        // SAFETY: the caller's promise; LD_PRELOAD is written only later.
        unsafe {
            let parts = parts(room).0;
            let program = (self.program, self.by == By::Name);
            let found = look_for(program, self.actions, environ, &mut parts.found, &mut parts.preload);
            self.is_known = found.is_some();
            (self.directory, self.program) = found.unwrap_or((libc::AT_FDCWD, core::ptr::null()));
        }
    }
}

/// The environment for the program, and where it may lie: to be given back.
type Prepared = (Strings, *mut Room);

/// True if a start is to be followed. A filter may have come past every hook: that is looked for before
/// anything else, by what the new program's dynamic linker will do as well.
fn is_followed() -> bool {
    if !session::active() && !session::is_dormant() {
        return false;
    }
    if !gate::look_again() {
        session::silence(true);
        environment::withdraw();
        return false;
    }
    session::wake();
    session::active()
}

/// Does all that comes before a start. `replaces`: the program takes this process's place. Not part of the
/// hooks, whose frames stay while the real function works.
///
/// # Safety
/// `start` must be as the function was told.
#[inline(never)]
unsafe fn prepare(start: &mut Start, replaces: bool) -> Prepared {
    if !is_followed() {
        // SAFETY: the caller's promise.
        return unsafe { withdrawn(start.envp) };
    }
    if let Some(_inside) = guard::enter()
        && session::is_ours()
    {
        session::prepare();
    }
    if !session::active() {
        // SAFETY: the caller's promise.
        return unsafe { withdrawn(start.envp) };
    }
    let mut prepared = (start.envp, core::ptr::null_mut());
    // SAFETY: the caller's promise; the room is this start's alone.
    unsafe {
        // What the kernel could not read, it is to refuse.
        let is_list = memory::is_list(start.envp);
        let count = || strings(start.envp).count();
        match library().filter(|_| is_list).zip(is_list.then(|| take_room(count())).flatten()) {
            Some((library, room)) => {
                if start.is_elsewhere() {
                    start.find(room);
                }
                prepared = (hand_on(start, room, library, replaces), room);
            }
            // The program is started as the caller wants it: traced, if its environment says so.
            None => {
                if is_list {
                    guard::count_unseen();
                }
                if start.is_elsewhere() {
                    start.program = core::ptr::null();
                }
            }
        }
    }
    share_all();
    if replaces
        && replacing(start)
        && let Some(inside) = guard::enter()
    {
        mapping::sample_all(&inside);
        session::goodbye(&inside, Ended::Exec, 0);
    }
    prepared
}

/// A start by a process that is not traced any more. No system call is made: it may be under a filter.
///
/// # Safety
/// As [`prepare`].
#[inline(never)]
unsafe fn withdrawn(envp: Strings) -> Prepared {
    // SAFETY: the caller's promise; the room is this start's alone.
    unsafe {
        if let Some(library) =
            library().filter(|library| environment::is_withdrawn() && names_tracer(envp, library))
            && let Some(room) = take_room(strings(envp).count())
        {
            let (parts, list) = parts(room);
            let mut completed = Completed { library, list, preload: &mut parts.preload };
            return (completed.without(envp, false), room);
        }
    }
    (envp, core::ptr::null_mut())
}

/// Completes the environment for a program, in the start's room.
///
/// # Safety
/// As [`prepare`], which has found the program.
#[inline(never)]
unsafe fn hand_on(start: &mut Start, room: *mut Room, library: &CStr, replaces: bool) -> Strings {
    // SAFETY: the caller's promise.
    unsafe {
        let (parts, list) = parts(room);
        let target = match start.by {
            _ if !start.is_known => Target::Unseen,
            By::Descriptor => target::of(start.directory, &mut parts.look),
            _ => target::at(start.directory, start.program, &mut parts.look),
        };
        let mut completed = Completed { library, list, preload: &mut parts.preload };
        start.obstacle = fitness::obstacle(&target, library);
        let lists = fitness::only_lists(&target, start.argv, start.envp);
        if lists {
            // It does nothing that is missed, so it need not be named.
            start.program = core::ptr::null();
        }
        let left_alone = lists || start.obstacle.is_some();
        match settings() {
            // With children off, only the traced process's own successor is traced too.
            Some(settings)
                if !left_alone && (settings.only_child_of == 0 || replaces && sys::getpid() == pid()) =>
            {
                completed.with_tracer(start.envp, settings, &target)
            }
            None if !left_alone => start.envp,
            _ => completed.without(start.envp, false),
        }
    }
}

/// After a start that failed because arguments and environment are too long: the environment without anything
/// of the tracer's, with which it may succeed. None if there was nothing.
///
/// # Safety
/// `prepared` must be what [`prepare`] made of `envp`.
#[cold]
#[inline(never)]
unsafe fn shortened(prepared: Prepared, envp: Strings) -> Option<Strings> {
    let (completed, room) = prepared;
    if room.is_null() {
        return None;
    }
    // SAFETY: the caller's promise; the call that used the room has returned.
    unsafe {
        let (parts, list) = parts(room);
        let bare = Completed { library: library()?, list, preload: &mut parts.preload }.without(envp, true);
        (bare != envp || completed != envp).then_some(bare)
    }
}

/// Before an exec: tells of it. True if the process's own session ends then; a vfork child leaves its
/// parent's alone.
#[inline(never)]
fn replacing(start: &Start) -> bool {
    let program = Program::behind(start);
    if !session::is_ours() {
        // A vfork child: its parent, which waits, is said to have started the program.
        if let Some(inside) = guard::enter() {
            let (now, pid) = (clock::now(), sys::getpid());
            record(&inside, Op::Spawn, (now, now), None, i64::from(pid), |event| program.describe(event));
        }
        return false;
    }
    happened(Op::Exec, clock::now(), 0, |event| program.describe(event));
    true
}

/// Which file a program is: nothing but zeros, if that is not known.
#[derive(Default)]
struct Program {
    file: FileId,
    mode: libc::mode_t,
    /// Why it will not be traced.
    obstacle: Option<Obstacle>,
}

impl Program {
    /// The program at the path of a start, if there is one, which the daemon then knows.
    fn behind(start: &Start) -> Program {
        // A vfork child may use its parent's place, since its parent waits, and opens nothing.
        if let Some(_inside) = guard::enter()
            && (session::is_ours() || is_open())
        {
            session::prepare_name();
        }
        let found = Program::find(start.directory, start.program).unwrap_or_default();
        Program { obstacle: start.obstacle, ..found }
    }

    #[inline(never)]
    fn find(directory: c_int, path: *const c_char) -> Option<Program> {
        if path.is_null() {
            return None;
        }
        let stat = sys::stat_path(directory, path, true)?;
        // SAFETY: the kernel has read the string.
        if !unsafe { CStr::from_ptr(path) }.to_bytes().contains(&b'/') {
            return None;
        }
        let file = birth::at(directory, path, true, &stat);
        if let Some(_inside) = guard::enter()
            && (session::is_ours() || is_open())
        {
            names::tell(file, &stat, Source::Named(directory, path));
        }
        Some(Program { file, mode: stat.st_mode, obstacle: None })
    }

    fn describe(&self, event: &mut Event) {
        event.aux = self.obstacle.map_or(0, |obstacle| obstacle as u32);
        if self.file.ino != 0 {
            event.set_file(self.file);
            event.kind = FileKind::from_mode(self.mode);
        }
    }
}

#[inline(never)]
fn spawned(start: &Start, began: u64, child: i64, failure: c_int) {
    let program = Program::behind(start);
    happened(Op::Spawn, began, child, |event| {
        program.describe(event);
        event.errno = failure as u16;
    });
}

/// Makes a call that replaces this process's program, with a completed environment; a second time only if
/// that was too long.
///
/// # Safety
/// As [`prepare`].
#[inline(always)]
unsafe fn exec(mut start: Start, call: impl Fn(Strings) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let prepared = prepare(&mut start, true);
        let mut returned = call(prepared.0);
        if returned == -1
            && guard::errno() == libc::E2BIG
            && let Some(envp) = shortened(prepared, start.envp)
        {
            returned = call(envp);
        }
        room::give_back(prepared.1);
        returned
    }
}

/// Makes an execve with a completed environment; a second time only if that was too long.
///
/// # Safety
/// As execve.
pub unsafe fn execve_by(
    name: *const c_char,
    argv: Strings,
    envp: Strings,
    call: impl Fn(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { exec(Start::of(libc::AT_FDCWD, By::Path, name, argv, envp), call) }
}

/// Makes an execveat with a completed environment; a second time only if that was too long.
///
/// # Safety
/// As execveat.
pub unsafe fn execveat_by(
    (directory, name): (c_int, *const c_char),
    argv: Strings,
    envp: Strings,
    flags: c_int,
    call: impl Fn(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let is_descriptor = flags & libc::AT_EMPTY_PATH != 0 && memory::value(name) == Some(0);
        let by = if is_descriptor { By::Descriptor } else { By::Path };
        exec(Start::of(directory, by, name, argv, envp), call)
    }
}

/// # Safety
/// As execvpe.
unsafe fn search(name: *const c_char, argv: Strings, envp: Strings) -> c_int {
    let start = Start::of(libc::AT_FDCWD, By::Name, name, argv, envp);
    // SAFETY: the caller's promise.
    unsafe { exec(start, |envp| real::execvpe(name, argv, envp)) }
}

/// # Safety
/// As posix_spawn, or posix_spawnp if by name.
unsafe fn spawn(
    pid: *mut pid_t,
    by: By,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let real = if by == By::Name { real::posix_spawnp } else { real::posix_spawn };
        let mut start = Start { actions, ..Start::of(libc::AT_FDCWD, by, name, argv, envp) };
        let prepared = prepare(&mut start, false);
        let began = clock::now();
        let mut failure = real(pid, name, actions, attributes, argv, prepared.0);
        if failure == libc::E2BIG
            && let Some(envp) = shortened(prepared, envp)
        {
            failure = real(pid, name, actions, attributes, argv, envp);
        }
        let child = if failure == 0 && !pid.is_null() { i64::from(*pid) } else { -i64::from(failure != 0) };
        if session::active() {
            spawned(&start, began, child, failure);
        }
        room::give_back(prepared.1);
        failure
    }
}

/// A shell that the C library starts with the process's own environment.
struct Shell {
    obstacle: Option<Obstacle>,
}

impl Shell {
    #[inline(never)]
    fn starting() -> Shell {
        if !session::active() {
            return Shell { obstacle: None };
        }
        share_all();
        let obstacle = library().and_then(|library| {
            // SAFETY: the C library's variable, which POSIX allows no other thread to change meanwhile.
            unsafe { environment::before_shell(environ, library) }
        });
        Shell { obstacle }
    }

    #[inline(never)]
    fn started(self, began: u64, succeeded: bool) {
        // Its name matters only if it is not traced.
        let path = if self.obstacle.is_some() { c"/bin/sh".as_ptr() } else { core::ptr::null() };
        let nothing = core::ptr::null();
        let start = Start::of(libc::AT_FDCWD, By::Path, path, nothing, nothing);
        let start = Start { obstacle: self.obstacle, ..start };
        spawned(&start, began, if succeeded { 0 } else { -1 }, 0);
    }
}

hooks! {
    fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int =
        execve_by(path, argv, envp, |envp| real::execve(path, argv, envp));
    fn execv(path: *const c_char, argv: Strings) -> c_int = execve(path, argv, environ);
    fn execvp(file: *const c_char, argv: Strings) -> c_int = search(file, argv, environ);
    fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int = search(file, argv, envp);

    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
        // The C library refuses to go without an environment, so there must not be one.
        if argv.is_null() || envp.is_null() {
            return real::fexecve(fd, argv, envp);
        }
        let start = Start::of(fd, By::Descriptor, core::ptr::null(), argv, envp);
        exec(start, |envp| real::fexecve(fd, argv, envp))
    }

    fn execveat(
        directory: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int,
    ) -> c_int {
        let call = |envp| real::execveat(directory, path, argv, envp, flags);
        execveat_by((directory, path), argv, envp, flags, call)
    }

    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        argv: Strings, envp: Strings,
    ) -> c_int = spawn(pid, By::Path, path, actions, attributes, argv, envp);

    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        argv: Strings, envp: Strings,
    ) -> c_int = spawn(pid, By::Name, file, actions, attributes, argv, envp);

    word fn system(command: *const c_char) -> c_int {
        let shell = Shell::starting();
        let start = clock::now();
        let returned = real::system(command);
        if session::active() && !command.is_null() {
            shell.started(start, returned != -1);
        }
        returned
    }

    word fn popen, _IO_popen(command: *const c_char, mode: *const c_char) -> *mut FILE {
        let shell = Shell::starting();
        let start = clock::now();
        let stream = next(command, mode);
        if !session::active() {
            return stream;
        }
        shell.started(start, !stream.is_null());
        if let Some(stream) = Stream::if_any(stream) {
            opened(start, stream, true, core::ptr::null(), (Creation::Never, 0, cawl_wire::UNKNOWN_OFFSET));
        }
        stream
    }

    word fn pclose(stream: *mut FILE) -> c_int {
        if !session::active() || stream.is_null() {
            stream_table::forget(stream);
            return real::pclose(stream);
        }
        let event = closing(Stream::open(stream));
        let start = clock::now();
        let returned = real::pclose(stream);
        closed(event, start, i64::from(returned));
        returned
    }
}

inlets! {
    "cawl_execv" => super::execv;
    "cawl_execvp" => super::execvp;
    "cawl_execve" => super::execve;
}

jumps! {
    execl => cawl_c_execl;
    execlp => cawl_c_execlp;
    execle => cawl_c_execle;
}
