//! End-to-end tests: `cawl-cli` and `cawld` as a user has them, in front of real programs.
//!
//! - `util`: folders, processes with time limits, the daemon, tiny programs from `apps/`, JSON reports
//! - `transparency`: tools run under `cawl-cli run` behave as without it, and every byte is seen
//! - `languages`: the same for language runtimes and compiled programs
//! - `ending`: exit status, death by signal, Ctrl-C, stdin, programs that cannot be started
//! - `waiting`: processes that go on when the program has ended; Ctrl-C while a report is awaited
//! - `crash`: kill -9 of the program or the daemon, sockets without a daemon, a full disk, bad input
//! - `daemon`: `cawld` as a server: many programs, status, end by SIGTERM, who may connect
//! - `live`: the documented questions, books against what was written, the service manager, changed limits
//! - `http`: the same over HTTP: who may read, metrics, alert rules, dashboard
//! - `clients`: the commands that ask a daemon, in front of a false one; `top`: the live screen, in tmux
//! - `doctor`: what cannot be traced is named
//! - `inherited`: signals, descriptors and the rest that a program finds at its start
//! - `sanitizers`: programs with a sanitizer's runtime, which insists on being first
//! - `storms`: thousands of short processes, started and killed by several threads
//! - `replay`: a trace gives the live predictions again; the output of `replay`; damaged traces
//! - `identity`: which file a call was about: numbers given out again, renames, the last close
//! - `copies`: copies inside the kernel and stores through mappings have a law and a cost
//! - `cpython`: CPython's own regression tests come out the same (long: with `--ignored` only)
//! - `meeting`: devices that `run` meets first are measured, once
//! - `matrix`: the programs of the compatibility matrix; `matrix_rough`: programs that treat us roughly
//! - `people`: what people read: names that would command a terminal, outputs that take nothing
//! - `import`: recorded calls as a trace; bad input; files that must not be overwritten
//! - `install`: where the tracer is put on disk; `package`: the Debian package, installed and purged
//! - `keep`: what a run learned is there for the next one
//! - `services`: other users' services, drop-ins for systemd, namespaces
//! - `users`: programs that change their user; other users, who may be recorded but not ask
//! - `web`: the daemon's web page in headless Chromium
//!
//! A test that needs something this machine lacks prints a line that begins with `SKIPPED:` to stderr
//! (past the test harness, so it is seen without `--nocapture`) and passes:
//! `cargo test -p cawl-tests 2>&1 | grep SKIPPED:` lists all that was not tested.
//!
//! No test sleeps: it waits for a line of output, an answer of the daemon or the end of a process. Every
//! process has a time limit, after which it is killed and the test fails.
#![forbid(unsafe_code)]

mod clients;
mod copies;
mod cpython;
mod crash;
mod daemon;
mod doctor;
mod ending;
mod http;
mod identity;
mod import;
mod inherited;
mod install;
mod keep;
mod languages;
mod live;
mod matrix;
mod matrix_rough;
mod meeting;
mod package;
mod people;
mod replay;
mod sanitizers;
mod services;
mod storms;
mod top;
mod transparency;
mod users;
mod util;
mod waiting;
mod web;
