use super::*;

#[test]
fn descriptors_are_looked_at_up_to_a_number() {
    let here = std::process::id();
    assert_eq!(uses_io_uring(here, 1 << 20), Some(false));
    assert_eq!(uses_io_uring(here, 0), None);
    assert_eq!(uses_io_uring(1 << 30, 0), Some(false), "there is no such process");
}

#[test]
fn this_test_would_be_traced() {
    let verdict = program(&std::env::current_exe().unwrap());
    assert!(verdict.obstacles.is_empty() && !verdict.needs_kernel, "{verdict:?}");
    assert_eq!(verdict.chain.len(), 1);
}

#[test]
fn scripts_lead_to_their_interpreters() {
    let dir = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let through_env = program(&script("a", "#!/usr/bin/env -S sh\necho\n"));
    assert!(through_env.obstacles.is_empty(), "{through_env:?}");
    assert!(through_env.chain.iter().any(|path| path.ends_with("env")));
    assert!(through_env.chain.iter().any(|path| path.ends_with("sh")));
    let missing = program(&script("b", "#!/nonexistent/interpreter\n"));
    assert!(!missing.obstacles.is_empty() && !missing.needs_kernel, "{missing:?}");
    let itself = dir.path().join("c");
    script("c", &format!("#!{}\n", itself.display()));
    assert!(!program(&itself).obstacles.is_empty());
    fs::write(dir.path().join("d"), "text").unwrap();
    assert!(!program(&dir.path().join("d")).obstacles.is_empty());
}

#[test]
fn what_no_exec_starts_is_no_program() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    let obstacle = |path: &Path| program(path).obstacles.join("; ");
    for text in ["echo\n", "", "#!", "#!\n", "#! \t \n/bin/sh\n"] {
        fs::write(&script, text).unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(obstacle(&script).contains("give the command as sh "), "{}", obstacle(&script));
    }
    let long = "x".repeat(300);
    fs::write(&script, format!("#!/{long}/sh\n")).unwrap();
    assert!(obstacle(&script).contains("beyond the first 256 bytes"), "{}", obstacle(&script));
    // An argument is cut off.
    fs::write(&script, format!("#!/bin/sh {long}\n")).unwrap();
    assert!(!obstacle(&script).contains("interpreter"), "{}", obstacle(&script));
    for (text, interpreter) in [
        ("#!/bin/sh\r\necho\r\n", "/bin/sh\r"),
        ("#!/usr/bin/env sh\r\necho\r\n", "sh\r"),
        ("#! /no/sh -e\n", "/no/sh"),
        ("#!/usr/bin/env no-such-shell\n", "no-such-shell"),
    ] {
        fs::write(&script, text).unwrap();
        let why = obstacle(&script);
        assert!(why.contains(&format!(" needs the interpreter {interpreter}, which is missing")), "{why}");
        assert_eq!(why.contains("end in CR LF"), text.contains('\r'), "{why}");
    }
    assert_eq!(find(OsStr::new("no-such-program")), None);
    let here = find(OsStr::new(".")).expect("it is in each folder of PATH");
    assert!(obstacle(&here).ends_with("is a folder, not a program"));
    assert!(obstacle(dir.path()).ends_with("is a folder, not a program"));
    assert!(obstacle(Path::new("/dev/null")).ends_with("is no regular file, not a program"));
}

/// Dynamic linkers elsewhere, as of Nix, and those that are started themselves.
#[test]
fn a_dynamic_linker_is_known_by_what_it_calls_itself() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    let own = Elf::read(&bytes).unwrap().interpreter.unwrap();
    let verdict = program(Path::new(&own));
    assert!(
        verdict.obstacles.is_empty() && verdict.remarks[0].contains("is a dynamic linker"),
        "{verdict:?}"
    );
    // A program whose dynamic linker has a path of the same length.
    let at = bytes.windows(own.len()).position(|text| text == own.as_bytes()).unwrap();
    let place = dir.path().join("program");
    let folder = tempfile::Builder::new().prefix("l").rand_bytes(3).tempdir_in("/tmp").unwrap();
    let begun = folder.path().to_str().unwrap().len() + 1;
    let judged = |linker: &str, content: &str| {
        let name = format!("{linker:x<width$}", width = own.len() - begun);
        let path = folder.path().join(&name);
        std::os::unix::fs::symlink(content, &path).unwrap();
        let mut bytes = bytes.clone();
        bytes[at..at + own.len()].copy_from_slice(path.to_str().unwrap().as_bytes());
        fs::write(&place, bytes).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        program(&place)
    };
    let loader = judged("a", &own);
    assert!(loader.obstacles.is_empty() && !loader.must_not_preload, "{loader:?}");
    let other = judged("ld-linux", std::env::current_exe().unwrap().to_str().unwrap());
    assert!(other.obstacles[0].ends_with("which is not glibc's") && other.must_not_preload, "{other:?}");
    assert!(other.needs_kernel && !loader.needs_kernel, "{other:?}");
    let old = dir.path().join("ld-2.12.so");
    fs::copy(&own, &old).unwrap();
    let old = judged("b", old.to_str().unwrap());
    assert!(old.obstacles[0].contains("is of glibc 2.12") && old.must_not_preload, "{old:?}");
}

#[test]
fn damaged_files_are_no_surprise() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    let path = dir.path().join("cut");
    for length in [4, 16, 64, 100, 1000] {
        fs::write(&path, &bytes[..length]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        program(&path);
    }
}
