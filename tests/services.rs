//! Services of other users under root's `cawld`, the drop-ins that make systemd start them with the tracer,
//! and programs in namespaces, as containers are.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use nix::unistd::{User, chown, geteuid};
use serde_json::Value;

use cawl_kit::{Daemon, Dir, Finished, Report, Running, find, skipped};

fn service(dir: &Dir, words: &[&str]) -> Finished {
    let root = dir.path().join("work");
    let mut command = dir.cawl(&["service"]);
    command.args(words).arg("--root").arg(root);
    Running::start(command).finish()
}

/// A unit of the system below the working folder.
fn unit(dir: &Dir, name: &str, text: &str) {
    let folder = dir.work().join("usr/lib/systemd/system");
    fs::create_dir_all(&folder).expect("a new folder");
    fs::write(folder.join(name), text).expect("a new file");
}

/// A unit with every restriction that concerns the tracer.
const CONFINED: &str = "[Service]\nExecStart=/usr/bin/redis-server\nUser=redis\nProtectSystem=strict\nProtectHome=yes\n\
    PrivateTmp=yes\nTemporaryFileSystem=/run:ro\nNoExecPaths=/\nExecPaths=/usr/bin /usr/lib\n\
    RestrictAddressFamilies=AF_INET\nSystemCallFilter=@system-service\nMemoryDenyWriteExecute=yes\n\
    Environment=LD_PRELOAD=/usr/lib/libjemalloc.so.2\n";

#[test]
fn a_service_is_enabled_listed_and_disabled() {
    let dir = Dir::new();
    unit(&dir, "store.service", CONFINED);
    unit(&dir, "db@.service", "[Service]\nExecStart=/usr/bin/db %i\n");
    let drop_in = dir.work().join("etc/systemd/system/store.service.d/50-cawl.conf");

    let before = cawl_kit::tree(&dir.work());
    let printed = service(&dir, &["enable", "store", "--print"]).success().stdout;
    assert_eq!(cawl_kit::tree(&dir.work()), before, "--print writes nothing");
    let told = service(&dir, &["enable", "store"]).success().stdout;
    assert!(
        told.contains("--allow-user redis") && told.contains("systemctl restart store.service"),
        "{told}"
    );
    assert_eq!(fs::read_to_string(&drop_in).expect("it is there"), printed);
    for line in [
        "CAWL_SOCKET=/run/cawl/cawld.sock",
        ".so:/usr/lib/libjemalloc.so.2\"",
        "BindPaths=-/run/cawl",
        "AF_UNIX",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }
    // A second time reads the unit's own settings only.
    service(&dir, &["enable", "store.service"]).success();
    assert_eq!(fs::read_to_string(&drop_in).expect("it is there"), printed);
    service(&dir, &["enable", "db@one"]).success();

    let status = service(&dir, &["status", "--json"]).success().stdout;
    let status: Value = serde_json::from_str(&status).expect("it is JSON");
    let names: Vec<&Value> =
        status["services"].as_array().expect("a list").iter().map(|s| &s["unit"]).collect();
    assert_eq!(names, ["db@one.service", "store.service"]);
    assert!(status["services"][1]["library_is_there"] == true, "{status:#}");
    let library = status["services"][1]["library"].as_str().expect("a path").trim_start_matches('/');
    let library = dir.work().join(library);
    assert_eq!(fs::metadata(&library).expect("it is there").permissions().mode() & 0o777, 0o555);
    fs::remove_file(&library).expect("it is ours");
    assert!(service(&dir, &["status"]).success().stdout.contains("missing: enable the service again"));

    assert!(service(&dir, &["library"]).success().stdout.ends_with(".so\n") && library.exists());

    service(&dir, &["disable", "store"]).success();
    assert!(!drop_in.parent().expect("a folder").exists());
    service(&dir, &["disable", "store"]).code(1).says("not enabled");
    service(&dir, &["enable", "none"]).code(1).says("there is no unit none.service");
    service(&dir, &["enable", "../x"]).code(1).says("no name of a service");
}

#[test]
fn systemd_understands_the_drop_in() {
    let Some(_) = find("systemd-analyze") else { return };
    let dir = Dir::new();
    unit(&dir, "store.service", &CONFINED.replace("/usr/bin/redis-server", "/bin/sh"));
    unit(&dir, "sysinit.target", "");
    service(&dir, &["enable", "store"]).success();
    let units = dir.work().join("usr/lib/systemd/system/store.service");
    let mut verify = dir.command("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]).arg(&units);
    verify.env("SYSTEMD_UNIT_PATH", format!("{}:", dir.work().join("etc/systemd/system").display()));
    let finished = Running::start(verify).finish();
    let ours: Vec<&str> = finished.stderr.lines().filter(|line| line.contains("50-cawl.conf")).collect();
    assert!(ours.is_empty(), "{finished:#?}");
}

/// The drop-in's environment for the service.
fn environment(dir: &Dir, unit: &str) -> BTreeMap<String, String> {
    let socket = dir.socket().display().to_string();
    service(dir, &["enable", unit, "--socket", &socket]).success();
    let path = dir.work().join(format!("etc/systemd/system/{unit}.service.d/50-cawl.conf"));
    let text = fs::read_to_string(path).expect("it is there");
    let variables = text.lines().filter_map(|line| line.strip_prefix("Environment="));
    let mut variables: BTreeMap<String, String> = variables
        .map(|variable| variable.trim_matches('"').split_once('=').expect("a variable"))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    // The service's root is that of the drop-in.
    let library = variables.get_mut("LD_PRELOAD").expect("the tracer");
    *library = dir.work().join(library.trim_start_matches('/')).display().to_string();
    variables
}

/// Runs a script as the user of an enabled service, under a daemon that allows that user; returns the report
/// of the daemon's trace.
fn served(user: &str, script: &str) -> Option<Report> {
    find("setpriv")?;
    if !geteuid().is_root() {
        skipped("only root can become someone else");
        return None;
    }
    let Ok(Some(account)) = User::from_name(user) else {
        skipped(&format!("there is no user {user}"));
        return None;
    };
    let dir = Dir::new();
    for folder in [dir.path().to_owned(), dir.work(), dir.path().join("run")] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let data = dir.work().join("data");
    fs::create_dir(&data).expect("a new folder");
    chown(&data, Some(account.uid), Some(account.gid)).expect("root can");
    let trace = dir.path().join("all.trace");
    let daemon =
        Daemon::start(&dir, &["--allow-user", user, "--trace", trace.to_str().expect("a readable path")]);
    unit(&dir, "it.service", &format!("[Service]\nUser={user}\nExecStart=/bin/true\n"));
    let mut command: Command = dir.command("setpriv");
    command.args([
        format!("--reuid={user}"),
        format!("--regid={}", account.gid),
        "--clear-groups".to_owned(),
    ]);
    command.args(["sh", "-c", script]).current_dir(&data).envs(environment(&dir, "it"));
    let finished = Running::start(command).finish().success();
    assert!(!finished.stderr.contains("ld.so") && !finished.stderr.contains("cawl"), "{finished:#?}");
    daemon.status_when(|status| status["clients"] == 0);
    let finished = daemon.end(Signal::SIGTERM).success();
    assert!(!finished.stderr.contains("refused"), "{finished:#?}");
    let mut replay = dir.cawl(&["replay", "--json"]);
    replay.arg(&trace);
    let report = Report::parse(&Running::start(replay).finish().success().stdout);
    assert!(report["coverage"].as_f64() >= Some(0.999), "coverage {}", report["coverage"]);
    assert_eq!(report["drops"], 0);
    Some(report)
}

#[test]
fn postgresql_of_its_own_user_is_recorded_by_root_s_daemon() {
    let Some(bin) = crate::programs::postgres() else { return skipped("postgresql is not installed") };
    let script = format!(
        "PATH={}:$PATH; D=$PWD/db
        initdb -D $D --no-locale -A trust > log 2>&1 && pg_ctl -D $D -w -l log -o \"-k $PWD -c listen_addresses=\" start > log2 2>&1 &&
        pgbench -h $PWD -i -s 1 -q postgres > log3 2>&1 && pgbench -h $PWD -n -c 2 -t 50 postgres > log4 2>&1
        echo $?; pg_ctl -D $D -w -m fast stop > log5",
        bin.display()
    );
    let Some(report) = served("postgres", &script) else { return };
    assert!(report.bytes() > 10 << 20, "{} bytes", report.bytes());
}

#[test]
fn redis_of_its_own_user_is_recorded_by_root_s_daemon() {
    if find("redis-server").is_none() {
        return;
    }
    let script = "redis-server --port 0 --unixsocket $PWD/s --appendonly yes --appendfsync always --save '' --dir $PWD > log & server=$!
        until redis-cli -s s ping 2>/dev/null | grep -q PONG; do kill -0 $server || exit 9; done
        for n in 1 2 3 4 5 6 7 8 9; do redis-cli -s s set key$n value$n; done > said
        redis-cli -s s shutdown nosave; wait $server";
    let Some(report) = served("redis", script) else { return };
    let files = report["files"].to_string();
    assert!(files.contains("appendonly.aof"), "{files}");
}

/// `run` of a program in namespaces of its own, where its processes have the numbers 1, 2 … and its users
/// others.
#[test]
fn a_program_in_namespaces_of_its_own_is_seen() {
    let Some(_) = find("unshare") else { return };
    let Some(_) = find("setpriv") else { return };
    if !geteuid().is_root() {
        return skipped("only root makes every kind of namespace");
    }
    let dir = Dir::new();
    for folder in [dir.path().to_owned(), dir.work()] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).expect("it is ours");
    }
    let threads = dir.app("thread_writer").display().to_string();
    let script =
        format!("dd if=/dev/zero of=file bs=4k count=64 2>/dev/null; {threads} many 2 50; echo pid $$");
    let stranger = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "unshare",
        "--user",
        "--map-root-user",
    ];
    let usual = ["--pid", "--fork", "--mount-proc", "--mount"];
    for how in [
        [&["unshare"], &usual[..]].concat(),
        [&["unshare", "--user", "--map-root-user"], &usual[..]].concat(),
        [&["unshare", "--user", "--pid", "--fork"][..]].concat(),
        [&stranger, &usual[..]].concat(),
        stranger.to_vec(),
    ] {
        let (finished, report) = dir.run(&[], &[&how, &["sh", "-c", &script][..]].concat());
        let finished = finished.success();
        assert!(
            !finished.stderr.contains("ld.so") && !finished.stderr.contains("cawl"),
            "{how:?}: {finished:#?}"
        );
        report.all_seen();
        assert_eq!(report.file_bytes("file"), 64 * 4096, "{how:?}");
        let inside = how.contains(&"--pid");
        assert_eq!(finished.stdout.ends_with("pid 1\n"), inside, "{how:?}: {finished:#?}");
        // The numbers are those outside the namespace.
        for session in report.sessions() {
            assert!(session["pid"].as_u64() > Some(2), "{how:?}: {session:#}");
        }
        let calls = cawl_kit::calls(&dir, &dir.trace());
        let told: Vec<&Value> = report.sessions().iter().map(|session| &session["pid"]).collect();
        assert!(calls.iter().all(|call| told.contains(&&call["pid"])), "{how:?}");
        clear(&dir.work());
    }
}

fn clear(folder: &Path) {
    for entry in fs::read_dir(folder).expect("a folder").flatten() {
        fs::remove_file(entry.path()).expect("it is a file");
    }
}
