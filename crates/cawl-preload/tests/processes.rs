//! Sessions: one for each process image, whatever the program does to its environment, its descriptors
//! and its threads, and whatever becomes of the daemon.

use cawl_kit::app;
use cawl_kit::witness::{Answer, Daemon, assert_complete, compare, dir};
use cawl_wire::Op;
use std::collections::BTreeMap;

#[test]
fn every_way_of_starting_a_program_is_followed() {
    let app = app("process");
    for (way, sessions_expected) in [
        ("execve", 2),
        ("execl", 2),
        ("execle", 2),
        ("execlp", 2),
        ("execvp", 2),
        ("fexecve", 2),
        ("failing", 1),
        ("posix_spawn", 2),
        ("posix_spawnp", 2),
        ("vfork", 2),
        ("fork", 2),
        ("raw fork", 2),
        ("_Fork", 2),
    ] {
        let sessions = compare(&app, &[way], |_| {});
        assert_eq!(sessions.len(), sessions_expected, "{way}: {sessions:#?}");
        assert_complete(&sessions);
    }
}

/// The longest that a program can be given is as long as without the tracer; what is shorter is traced.
#[test]
fn as_much_can_be_handed_to_a_program_as_untraced() {
    let sessions = compare(&app("process"), &["longest"], |_| {});
    assert!(sessions.len() > 5, "{}", sessions.len());
}

/// ldd, and what it does by hand.
#[test]
fn programs_that_list_their_libraries_list_no_more() {
    let script = "ls=$(command -v ls); ld=$(ldd $ls | sed -n 's/^[[:space:]]*\\(\\/[^ ]*ld[^ ]*\\).*/\\1/p'); \
        { ldd $ls; LD_TRACE_LOADED_OBJECTS=1 $ls; $ld --list $ls; $ld --inhibit-cache --library-path /x --list $ls; \
        $ld --verify $ls; echo $?; $ld --list-diagnostics | grep PRELOAD; $ld $ls --version; } | sed 's/(0x.*//'";
    let Some(shell) = cawl_kit::find("sh") else { return };
    let sessions = compare(&shell, &["-c", script], |_| {});
    // The last one runs.
    assert_eq!(sessions.iter().filter(|session| session.arguments == "--version").count(), 1);
    compare(&app("process"), &["lists"], |_| {});
}

/// The tracer opens and closes a program before it is started, but none that the process has open: that would
/// release its record locks.
#[test]
fn locks_on_a_program_outlast_its_start() {
    for way in ["", "over"] {
        let sessions = compare(&app("self_locked"), &[way], |_| {});
        assert!(sessions.len() >= 3, "{way}: {sessions:#?}");
    }
}

#[test]
fn shells_started_by_the_c_library_are_followed() {
    let app = app("process");
    for way in ["system", "popen"] {
        let sessions = compare(&app, &[way], |_| {});
        assert!(sessions.len() >= 3, "{way}");
        assert_complete(&sessions);
    }
}

#[test]
fn a_program_that_puts_itself_in_the_background_is_followed() {
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let out = daemon.command(app("process")).arg("daemon").current_dir(place.path()).output().expect("run");
    assert!(out.status.success());
    let sessions = daemon.finish_when(2);
    assert_eq!(sessions.iter().map(cawl_kit::witness::Session::bytes).sum::<u64>(), 7 + 6);
}

#[test]
fn children_can_be_left_alone() {
    let app = app("process");
    for (way, expected) in [("fork", 1), ("posix_spawn", 1), ("vfork", 1), ("execle", 2)] {
        let place = dir();
        let daemon = Daemon::start(place.path(), Answer::Welcome);
        let out = daemon
            .command(&app)
            .arg(way)
            .env("CAWL_ONLY_CHILD_OF", std::process::id().to_string())
            .current_dir(place.path())
            .output()
            .expect("run");
        assert!(out.status.success(), "{way}: {out:?}");
        assert_eq!(daemon.finish().len(), expected, "{way}");
    }
}

#[test]
fn rough_treatment_of_descriptors_is_survived() {
    let app = app("fds");
    for way in ["close", "close_range", "closefrom", "dup2", "limit"] {
        let sessions = compare(&app, &[way], |_| {});
        assert_eq!(sessions.len(), 1, "{way}");
        assert_complete(&sessions);
    }
}

/// However many descriptors a program may have, and however many later.
#[test]
fn the_tracers_descriptor_is_not_found() {
    let app = app("fds");
    // An ordinary user may raise no more than the soft limit; where that is above 1024, or as high as the
    // hard one, the tracer's number is one that the program could have.
    for (soft, hard, way) in
        [(16, 100, "all"), (1024, 1100, "all"), (100, 200, "look"), (200, 200, "look"), (1500, 1600, "look")]
    {
        let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec {} {way}", app.display());
        let sessions = compare("/bin/sh".as_ref(), &["-c", &script], |_| {});
        assert_eq!(sessions.len(), 2 + usize::from(way == "all"), "{soft} of {hard}: {way}");
        assert_complete(&sessions);
    }
}

#[test]
fn a_socket_lost_behind_our_back_is_not_written_to() {
    let sessions = compare(&app("fds"), &["raw"], |_| {});
    assert_eq!(sessions.len(), 1);
    assert!(sessions[0].goodbyes.is_empty());
}

#[test]
fn a_limit_of_sixteen_descriptors_is_enough() {
    let app = app("offsets");
    let script = format!("ulimit -n 16; exec {}", app.display());
    let sessions = compare("/bin/sh".as_ref(), &["-c", &script], |_| {});
    assert_complete(&sessions);
}

#[test]
fn threads_are_all_seen() {
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Read);
    let mut command = daemon.command(app("threads"));
    // However late the daemon is.
    let out = command.env("CAWL_LOSSLESS", "1").current_dir(place.path()).output().expect("run");
    assert!(out.status.success(), "{out:?}");
    let sessions = daemon.finish();
    assert_eq!(sessions.len(), 1);
    assert_complete(&sessions);
    let mut tids: Vec<u32> = sessions[0].events.iter().map(|event| event.tid).collect();
    tids.sort_unstable();
    tids.dedup();
    assert_eq!(tids.len(), 25, "three rounds of eight threads, and the first");
    assert_eq!(sessions[0].count(Op::Write), 2 * 2000 * 8 * 3);
}

#[test]
fn signals_cancellation_and_jumps_do_no_harm() {
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let out = daemon.command(app("signals")).current_dir(place.path()).output().expect("run");
    assert!(out.status.success(), "{out:?}");
    let sessions = daemon.finish();
    assert_eq!(sessions.len(), 1);
    let session = &sessions[0];
    assert_eq!(session.nameless, 0);
    let size = std::fs::metadata(place.path().join("out")).expect("out").len();
    let seen: u64 = session.about("/out").iter().map(|event| cawl_kit::witness::bytes(event)).sum();
    // A socket that is full at the end takes no goodbye; the ring always does.
    let by_socket = std::env::var("CAWL_TRANSPORT").is_ok_and(|transport| transport == "socket");
    assert!(by_socket || !session.goodbyes.is_empty(), "no goodbye");
    let unseen = session.goodbyes.first().map_or(size, |goodbye| goodbye.unseen);
    assert!(seen <= size && size <= seen + 5 * unseen, "{seen} of {size}, {unseen} calls unseen");
}

/// Some of the jumps leave the tracer in the middle of its own work; what is written then, and the last
/// words, come nevertheless.
#[test]
fn who_jumps_out_of_the_tracer_goes_on_and_says_goodbye() {
    let sessions = compare(&app("jump"), &[], |_| {});
    assert_eq!(sessions.len(), 201);
    let silent = sessions.iter().filter(|session| session.goodbyes.is_empty()).count();
    assert_eq!(silent, 0, "processes without a goodbye");
    let interrupted =
        sessions.iter().flat_map(|session| &session.goodbyes).filter(|bye| bye.unseen > 0).count();
    println!("{interrupted} of 200 jumps came in the middle");
    for session in sessions.iter().filter(|session| session.count(Op::Write) > 0) {
        let unseen = session.goodbyes[0].unseen;
        // The call that was left, and the first of the next kind, if the hook needs more of the stack.
        assert!(unseen <= 2, "{unseen} of {} unseen", session.events.len());
        assert_eq!(session.about("/after").iter().filter(|event| event.op == Op::Write).count(), 100);
        assert!(session.in_order());
    }
}

/// Some of the jumps leave the tracer while it tells a file's name; those of other files are told
/// nevertheless.
#[test]
fn who_jumps_out_of_the_telling_of_names_keeps_nobody_from_telling_others() {
    let place = dir();
    let daemon = Daemon::start(place.path(), Answer::Welcome);
    let at = dir();
    let out = daemon.command(app("jump")).arg("names").current_dir(at.path()).output().expect("run");
    assert!(out.status.success(), "{out:?}");
    let sessions = daemon.finish();
    let left: u64 = sessions.iter().flat_map(|session| &session.goodbyes).map(|bye| bye.unseen).sum();
    println!("{left} calls were left in the middle");
    // Who was jumped out of its first words has two sessions.
    let mut processes: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
    for session in sessions.iter().filter(|session| session.ppid != std::process::id()) {
        let last = |event: &&cawl_wire::Event| event.op == Op::Write && session.path(event).contains("/z-");
        let (goodbyes, writes) = processes.entry(session.pid).or_default();
        *goodbyes += session.goodbyes.len();
        *writes += session.events.iter().filter(last).count();
    }
    assert_eq!(processes.len(), 20);
    // Goodbyes, and writes to files whose names were told.
    assert!(processes.values().all(|said| *said == (1, 100)), "{processes:?}");
}

#[test]
fn a_daemon_that_refuses_dies_or_is_absent_or_silent_does_no_harm() {
    let app = app("stdio");
    let bare = dir();
    let plain = cawl_kit::program(&app).current_dir(bare.path()).output().expect("run");
    for answer in [Answer::HangUp, Answer::Nothing, Answer::Refuse(99)] {
        let (place, at) = (dir(), dir());
        let daemon = Daemon::start(place.path(), answer);
        let out = daemon.command(&app).current_dir(at.path()).output().expect("run");
        assert_eq!(
            (out.stdout, out.stderr, out.status),
            (plain.stdout.clone(), plain.stderr.clone(), plain.status)
        );
        assert_eq!(cawl_kit::witness::tree(at.path()), cawl_kit::witness::tree(bare.path()));
        daemon.finish();
    }
    let at = dir();
    for socket in ["/nonexistent/socket", "/dev/null", ""] {
        let mut command = cawl_kit::program(&app);
        cawl_kit::preload(&mut command, &cawl_kit::library());
        let out = command.env("CAWL_SOCKET", socket).current_dir(at.path()).output().expect("run");
        assert_eq!((&out.stdout, &out.stderr, out.status), (&plain.stdout, &plain.stderr, plain.status));
        assert_eq!(cawl_kit::witness::tree(at.path()), cawl_kit::witness::tree(bare.path()));
    }
}

/// A program that forbids itself the processor's counter would be killed by the tracer's reading it.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_forbidden_counter_is_not_read() {
    let app = cawl_kit::app_with("no_counter", &["-O2", "-pthread"]);
    for arguments in [&["prctl"][..], &["syscall"], &["prctl", "early"], &["syscall", "early"]] {
        let sessions = compare(&app, arguments, |_| {});
        assert_eq!(sessions.len(), 2, "{arguments:?}");
        assert_complete(&sessions);
        for session in &sessions {
            assert!(session.in_order(), "{arguments:?}");
            let times = session.events.iter().map(|event| (event.start, event.end()));
            let (first, last) =
                times.fold((u64::MAX, 0), |(first, last), (start, end)| (first.min(start), last.max(end)));
            // Ticks or ns.
            assert!(last > first && last - first < 30_000_000_000, "{arguments:?}: {first} to {last}");
        }
    }
}
