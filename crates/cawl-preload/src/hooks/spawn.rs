//! Starting programs. The tracer and its settings are carried into the new program's environment, whatever the
//! caller made of it; other preloads and their order are kept. Where the new program cannot load the tracer,
//! it is taken out of the environment, also by a process that is not traced itself.

use crate::base::hot::{is_open, pid, share_all};
use crate::base::room::{self, Room};
use crate::base::settings::{library, settings, strings};
use crate::base::{clock, gate, guard, memory, real, sys};
use crate::hooks::emit::stream::{closing, opened};
use crate::hooks::emit::{closed, happened, mapping, record};
use crate::session::environment::{self, Completed, names as names_tracer, parts, take_room};
use crate::session::{self, target};
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
    /// As a path.
    Path,
    /// As a name that is searched for in the folders of PATH.
    Name,
    /// As a descriptor.
    Descriptor,
}

/// What a start needs while the real function is at work.
struct Start {
    /// The completed environment, or that of the caller.
    envp: Strings,
    /// The program's path, null if that is not known.
    program: *const c_char,
    /// Where both may lie. To be given back.
    room: *mut Room,
    /// Why the program will not be traced.
    obstacle: Option<Obstacle>,
}

impl Start {
    /// With the caller's environment as it is.
    fn of(envp: Strings) -> Start {
        Start { envp, program: core::ptr::null(), room: core::ptr::null_mut(), obstacle: None }
    }
}

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
/// `name` and `envp` must be as the function was given them.
#[inline(never)]
unsafe fn prepare(directory: c_int, name: *const c_char, by: By, envp: Strings, replaces: bool) -> Start {
    if !is_followed() {
        // SAFETY: the caller's promise.
        return unsafe { withdrawn(envp) };
    }
    if let Some(_inside) = guard::enter()
        && session::is_ours()
    {
        session::prepare();
    }
    if !session::active() {
        // SAFETY: the caller's promise.
        return unsafe { withdrawn(envp) };
    }
    let mut start = Start::of(envp);
    // SAFETY: the caller's promise; the room is this start's alone.
    unsafe {
        // What the kernel could not read, it is to refuse.
        let is_list = memory::is_list(envp);
        match library().filter(|_| is_list).zip(is_list.then(|| take_room(strings(envp).count())).flatten()) {
            Some((library, room)) => {
                start.room = room;
                start.program = match by {
                    By::Path => name,
                    By::Name => target::search(name, environ, &mut parts(room).0.found),
                    By::Descriptor => core::ptr::null(),
                };
                hand_on(&mut start, directory, by, library, replaces);
            }
            // The program is started as the caller wants it: traced, if its environment says so.
            None => {
                if is_list {
                    guard::count_unseen();
                }
                start.program = if by == By::Path { name } else { core::ptr::null() };
            }
        }
    }
    share_all();
    if replaces
        && replacing(directory, start.program, start.obstacle)
        && let Some(inside) = guard::enter()
    {
        mapping::sample_all(&inside);
        session::goodbye(&inside, Ended::Exec, 0);
    }
    start
}

/// A start by a process that is not traced any more. No system call is made: it may be under a filter.
///
/// # Safety
/// As [`prepare`].
#[inline(never)]
unsafe fn withdrawn(envp: Strings) -> Start {
    let mut start = Start::of(envp);
    // SAFETY: the caller's promise; the room is this start's alone.
    unsafe {
        if let Some(library) =
            library().filter(|library| environment::is_withdrawn() && names_tracer(envp, library))
            && let Some(room) = take_room(strings(envp).count())
        {
            start.room = room;
            let (parts, list) = parts(room);
            let mut completed = Completed { library, list, preload: &mut parts.preload };
            start.envp = completed.without_tracer(envp);
        }
    }
    start
}

/// Completes the environment for a program, in the start's room.
///
/// # Safety
/// As [`prepare`], which has found the program.
#[inline(never)]
unsafe fn hand_on(start: &mut Start, directory: c_int, by: By, library: &CStr, replaces: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        let (parts, list) = parts(start.room);
        let target = match by {
            By::Descriptor => target::of(directory, &mut parts.look),
            _ => target::at(directory, start.program, &mut parts.look),
        };
        let mut completed = Completed { library, list, preload: &mut parts.preload };
        start.obstacle = environment::obstacle(&target, library);
        if start.obstacle.is_some() {
            start.envp = completed.without_tracer(start.envp);
        } else if let Some(settings) = settings() {
            // With children off, only the traced process's own successor is traced too.
            let goes_on = settings.only_child_of == 0 || replaces && sys::getpid() == pid();
            start.envp = if goes_on {
                completed.with_tracer(start.envp, settings, &target)
            } else {
                completed.without_tracer(start.envp)
            };
        }
    }
}

/// Before an exec: tells of it. True if the process's own session ends then; a vfork child leaves its parent's
/// alone.
#[inline(never)]
fn replacing(directory: c_int, path: *const c_char, obstacle: Option<Obstacle>) -> bool {
    let program = Program { obstacle, ..Program::behind(directory, path) };
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
    /// The program behind a path, if there is one, which the daemon then knows.
    #[inline(never)]
    fn behind(directory: c_int, path: *const c_char) -> Program {
        if path.is_null() {
            return Program::default();
        }
        let Some(stat) = sys::stat_path(directory, path, true) else { return Program::default() };
        // SAFETY: the kernel has read the string.
        if !unsafe { CStr::from_ptr(path) }.to_bytes().contains(&b'/') {
            return Program::default();
        }
        let file = birth::at(directory, path, true, &stat);
        // A vfork child may use its parent's place, since its parent waits, and opens nothing.
        if let Some(_inside) = guard::enter()
            && (session::is_ours() || is_open())
        {
            session::prepare_name();
            names::tell(file, &stat, Source::Named(directory, path));
        }
        Program { file, mode: stat.st_mode, obstacle: None }
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
fn spawned(start: u64, path: *const c_char, child: i64, failure: c_int, obstacle: Option<Obstacle>) {
    let program = Program { obstacle, ..Program::behind(libc::AT_FDCWD, path) };
    happened(Op::Spawn, start, child, |event| {
        program.describe(event);
        event.errno = failure as u16;
    });
}

/// Makes a call that replaces this process's program, with a completed environment.
///
/// # Safety
/// As [`prepare`].
#[inline(always)]
unsafe fn exec_by(
    directory: c_int,
    name: *const c_char,
    by: By,
    envp: Strings,
    call: impl FnOnce(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let Start { envp, room, .. } = prepare(directory, name, by, envp, true);
        let returned = call(envp);
        room::give_back(room);
        returned
    }
}

/// The same of execve.
///
/// # Safety
/// As execve.
pub unsafe fn execve_by(path: *const c_char, envp: Strings, call: impl FnOnce(Strings) -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { exec_by(libc::AT_FDCWD, path, By::Path, envp, call) }
}

/// The same of execveat.
///
/// # Safety
/// As execveat.
pub unsafe fn execveat_by(
    directory: c_int,
    path: *const c_char,
    envp: Strings,
    flags: c_int,
    call: impl FnOnce(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let is_descriptor = flags & libc::AT_EMPTY_PATH != 0 && memory::value(path) == Some(0);
        let by = if is_descriptor { By::Descriptor } else { By::Path };
        exec_by(directory, path, by, envp, call)
    }
}

/// # Safety
/// As execvpe.
unsafe fn search(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { exec_by(libc::AT_FDCWD, file, By::Name, envp, |envp| real::execvpe(file, argv, envp)) }
}

/// # Safety
/// As posix_spawn, or posix_spawnp if `search`.
unsafe fn spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
    search: bool,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let real = if search { real::posix_spawnp } else { real::posix_spawn };
        let by = if search { By::Name } else { By::Path };
        let Start { envp, program, room, obstacle } = prepare(libc::AT_FDCWD, path, by, envp, false);
        let start = clock::now();
        let failure = real(pid, path, actions, attributes, argv, envp);
        let child = if failure == 0 && !pid.is_null() { i64::from(*pid) } else { -i64::from(failure != 0) };
        if session::active() {
            spawned(start, program, child, failure, obstacle);
        }
        room::give_back(room);
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
    fn started(self, start: u64, succeeded: bool) {
        // Its name matters only if it is not traced.
        let path = if self.obstacle.is_some() { c"/bin/sh".as_ptr() } else { core::ptr::null() };
        spawned(start, path, if succeeded { 0 } else { -1 }, 0, self.obstacle);
    }
}

hooks! {
    fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int =
        execve_by(path, envp, |envp| real::execve(path, argv, envp));
    fn execv(path: *const c_char, argv: Strings) -> c_int = execve(path, argv, environ);
    fn execvp(file: *const c_char, argv: Strings) -> c_int = search(file, argv, environ);
    fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int = search(file, argv, envp);

    fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
        // The C library refuses to go without an environment, so there must not be one.
        if argv.is_null() || envp.is_null() {
            return real::fexecve(fd, argv, envp);
        }
        exec_by(fd, core::ptr::null(), By::Descriptor, envp, |envp| real::fexecve(fd, argv, envp))
    }

    fn execveat(
        directory: c_int, path: *const c_char, argv: Strings, envp: Strings, flags: c_int,
    ) -> c_int =
        execveat_by(directory, path, envp, flags, |envp| real::execveat(directory, path, argv, envp, flags));

    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        argv: Strings, envp: Strings,
    ) -> c_int = spawn(pid, path, actions, attributes, argv, envp, false);

    fn posix_spawnp(
        pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
        argv: Strings, envp: Strings,
    ) -> c_int = spawn(pid, file, actions, attributes, argv, envp, true);

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
        let stream = real::popen(command, mode);
        if !session::active() {
            return stream;
        }
        shell.started(start, !stream.is_null());
        if let Some(stream) = Stream::if_any(stream) {
            opened(start, stream, true, core::ptr::null(), (Creation::Never, 0));
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
