//! A certificate of the test's own.

use std::path::PathBuf;

use cawl_kit::{Dir, Running, find};

/// Key and certificate of `localhost`, signed by itself; None, and said so, without openssl.
pub fn certificate(dir: &Dir) -> Option<(PathBuf, PathBuf)> {
    find("openssl")?;
    let mut command = dir.command("openssl");
    command.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]);
    command.args([
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ]);
    command.args(["-keyout", "key.pem", "-out", "certificate.pem"]);
    Running::start(command).finish().success();
    Some((dir.work().join("key.pem"), dir.work().join("certificate.pem")))
}
