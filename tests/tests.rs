//! End-to-end tests: `cawl-cli` and `cawld` as installed, with real programs.
//!
//! - `programs`: the compatibility matrix: under `cawl-cli run` programs do as without it, and every byte is
//!   seen
//! - `ending`: exit status, death by signal, Ctrl-C, stdin, programs that cannot be started
//! - `waiting`: processes that outlive the program; Ctrl-C while a report is made
//! - `crash`: kill -9 of the program or the daemon, sockets without a daemon, a full disk, bad input
//! - `daemon`: `cawld` as a server: many programs, status, end by SIGTERM, who may connect
//! - `attach`: following what runs already: names, refusals
//! - `eyes`: kinds of programs by probes in the kernel, and the same calls by both eyes
//! - `followed`: programs that run already, followed by probes in the kernel
//! - `calls_to`: tables of calls that the daemon writes: restarts, kill -9, a full disk, a clock that jumps
//! - `anomalies`: traces of the calls around anomalies only (`cawld --trace-on`)
//! - `live`: the documented questions, sums against the bytes written, the service manager, changed limits
//! - `check`: which pages processes share without an order: planted cases, sqlite3, PostgreSQL
//! - `http`: the same over HTTP: access, metrics, alert rules, dashboard
//! - `clients`: the commands that ask a daemon, with a fake one; `top`: the live screen, in tmux
//! - `doctor`: what cannot be traced is named
//! - `ranks`: processor time of each process; the ranks of a parallel program
//! - `inherited`: signals, descriptors and the rest that a program finds at its start
//! - `sanitizers`: programs with a sanitizer's runtime, which insists on being first
//! - `storms`: hundreds of short processes, started and killed by several threads
//! - `replay`: a trace gives the live predictions again; the output of `replay`; damaged traces
//! - `report_page`: the report as a page, in headless Chromium
//! - `roots`: programs in another root directory or mount namespace, without the tracer's library
//! - `explain`: causes of real programs' calls, and the questions about a trace
//! - `diff`: what explains the difference between two runs, and what cannot be compared
//! - `identity`: the file of a call: reused inode numbers, renames, the last close
//! - `filesystems`: files in memory are never dirty; an overlay copies a file up
//! - `groups`: programs in small memory control groups; a stopped daemon
//! - `copies`: copies inside the kernel and stores through mappings have a law and a cost
//! - `cpython`: CPython's own regression tests come out the same (long: with `--ignored` only)
//! - `meeting`: devices that `run` meets first are measured, once
//! - `prior`: profiles of equal machines, merged: what a new machine begins with
//! - `people`: what people read: names that would command a terminal, outputs that take nothing
//! - `import`: recorded calls as a trace; bad input; files that must not be overwritten
//! - `by_tools`: one program recorded by tools of the kernel and by cawl: equal calls in equal order
//! - `export`: timelines and tables of a trace; other programs read them; bad input and output
//! - `install`: the place of the tracer on disk; `package`: the Debian package, installed and purged
//! - `by_stack`: where in the program the time went
//! - `keep`: what a run learned is there for the next one
//! - `stacks`: the functions that calls came from
//! - `services`: other users' services, drop-ins for systemd, namespaces
//! - `tries`: what `run --try` changes, and what it must not
//! - `users`: programs that change their user; other users, which are recorded but not answered
//! - `web`: the daemon's web page in headless Chromium
//! - `buffers`: the buffers of other languages' libraries, told and changed on paper
//! - `whatif`: what a trace's calls would cost with changes; `advise`: which changes are worth it; `rerun`:
//!   the same for real
//!
//! A test that needs something missing on this machine prints a line that begins with `SKIPPED:` to stderr
//! (past the test harness, so it is seen without `--nocapture`) and passes:
//! `cargo test -p cawl-tests 2>&1 | grep SKIPPED:` lists what was not tested.
//!
//! No test sleeps in place of an event: it waits for a line of output, an answer of the daemon or the end of
//! a process, and asks every millisecond for what has no event (`cawl_kit::eventually`). Every process has a
//! time limit, after which it is killed and the test fails.
#![forbid(unsafe_code)]

mod advise;
mod anomalies;
mod attach;
mod buffers;
mod by_stack;
mod by_tools;
mod calls_to;
mod check;
mod clients;
mod copies;
mod cpython;
mod crash;
mod daemon;
mod diff;
mod doctor;
mod ending;
mod explain;
mod export;
mod eyes;
mod filesystems;
mod followed;
mod groups;
mod http;
mod identity;
mod import;
mod inherited;
mod install;
mod keep;
mod live;
mod meeting;
mod package;
mod people;
mod prior;
mod programs;
mod ranks;
mod replay;
mod report_page;
mod rerun;
mod roots;
mod sanitizers;
mod services;
mod stacks;
mod storms;
mod top;
mod tries;
mod users;
mod waiting;
mod web;
mod whatif;
