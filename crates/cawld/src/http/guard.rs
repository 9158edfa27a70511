//! Access over HTTP.
//!
//! With a token: clients that send it, from any address. Without one, on a loopback address only: the
//! daemon's own user and root, as on its socket, by the kernel's owner of the other end; with `--http-open`,
//! every user of this machine. The Host header must then name this machine, or a page of another site could
//! read through the user's browser by resolving its name to this address.

use std::fs;
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use anyhow::{Context, ensure};
use hyper::StatusCode;
use hyper::header::{AUTHORIZATION, HOST, HeaderMap};
use nix::unistd::geteuid;
use subtle::ConstantTimeEq;

use crate::Usage;

/// Fewest characters of a token.
const SHORTEST: usize = 16;
/// Longest token file, in bytes.
const LONGEST: u64 = 4096;

/// True for the daemon's own user and root.
pub(super) fn is_own(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// The settings to check against.
pub struct Guard {
    file: Option<PathBuf>,
    token: RwLock<Option<String>>,
    open: bool,
    pub(super) bound: SocketAddr,
}

/// With which status a request is refused, and why.
pub type Refusal = (StatusCode, &'static str);

/// No token, or a wrong one.
const NO_TOKEN: Refusal =
    (StatusCode::UNAUTHORIZED, "show the token: a header `Authorization: Bearer TOKEN`, or ?token=TOKEN");
/// Another user of this machine.
const OTHER_USER: Refusal = (
    StatusCode::FORBIDDEN,
    "this daemon answers its own user and root; start it with --http-token-file or --http-open to let others \
     read",
);
/// A Host header that does not name this machine.
const OTHER_HOST: Refusal =
    (StatusCode::FORBIDDEN, "the Host header is not this machine's; use localhost, or --http-token-file");

impl Guard {
    /// A guard for a server at this address. An error names the remedy.
    pub fn new(bound: SocketAddr, file: Option<PathBuf>, open: bool) -> anyhow::Result<Guard> {
        let token = file.as_deref().map(read).transpose()?;
        ensure!(
            token.is_some() || bound.ip().is_loopback(),
            Usage(format!(
                "{bound} can be reached by others: give --http-token-file, or listen at 127.0.0.1"
            ))
        );
        Ok(Guard { file, token: RwLock::new(token), open, bound })
    }

    /// Reads the token again; the old one stays if that fails.
    pub fn reload(&self) -> anyhow::Result<()> {
        if let Some(file) = &self.file {
            let token = read(file)?;
            *self.token.write().unwrap_or_else(PoisonError::into_inner) = Some(token);
        }
        Ok(())
    }

    /// Checks a request. `user`: who is at the other end, if that is known.
    pub fn check(&self, headers: &HeaderMap, query: &str, user: Option<u32>) -> Result<(), Refusal> {
        let token = self.token.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(token) = &*token {
            let is_right = |shown: &str| bool::from(shown.as_bytes().ct_eq(token.as_bytes()));
            let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
            let shown = header.and_then(|value| value.strip_prefix("Bearer "));
            let pairs: Vec<(String, String)> = serde_urlencoded::from_str(query).unwrap_or_default();
            let asked = pairs.iter().find(|(key, _)| key == "token").map(|(_, value)| value.as_str());
            return if shown.or(asked).is_some_and(is_right) { Ok(()) } else { Err(NO_TOKEN) };
        }
        drop(token);
        let host = headers.get(HOST).and_then(|value| value.to_str().ok());
        if !host.is_some_and(|host| self.is_ours(host)) {
            return Err(OTHER_HOST);
        }
        if self.open || user.is_some_and(is_own) { Ok(()) } else { Err(OTHER_USER) }
    }

    /// True for a Host header that names this machine.
    fn is_ours(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
        name.eq_ignore_ascii_case("localhost")
            || name == "127.0.0.1"
            || name == "[::1]"
            || address.parse() == Ok(self.bound.ip())
    }
}

/// The token in a file that only its owner can read.
fn read(file: &Path) -> anyhow::Result<String> {
    let name = file.display();
    let opened = fs::File::open(file).with_context(|| format!("cannot read the token in {name}"))?;
    ensure!(
        opened.metadata()?.mode() & 0o077 == 0,
        "{name} is open to other users, so its token is no secret; chmod 600 it"
    );
    let mut text = String::new();
    opened.take(LONGEST).read_to_string(&mut text).with_context(|| format!("cannot read {name}"))?;
    let token = text.trim();
    ensure!(
        token.len() >= SHORTEST && token.bytes().all(|byte| byte.is_ascii_graphic()),
        "the token in {name} must be one line of at least {SHORTEST} printable characters; make one with \
         `head -c 24 /dev/urandom | base64`"
    );
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn headers(pairs: &[(hyper::header::HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    fn token_file(text: &str, mode: u32) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), text).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn a_token_opens_and_nothing_else_does() {
        let file = token_file("0123456789abcdef+/\n", 0o600);
        let bound = "0.0.0.0:9420".parse().unwrap();
        let guard = Guard::new(bound, Some(file.path().to_owned()), false).unwrap();
        let check = |pairs: &[_], query: &str| guard.check(&headers(pairs), query, None);
        assert_eq!(check(&[(AUTHORIZATION, "Bearer 0123456789abcdef+/")], ""), Ok(()));
        assert_eq!(check(&[], "a=b&token=0123456789abcdef%2B%2F"), Ok(()));
        for wrong in ["Bearer 0123456789abcdef+", "Bearer ", "0123456789abcdef+/", "Basic 0123456789abcdef+/"]
        {
            assert_eq!(check(&[(AUTHORIZATION, wrong)], ""), Err(NO_TOKEN), "{wrong}");
        }
        assert_eq!(check(&[(HOST, "localhost")], "token="), Err(NO_TOKEN));
        fs::write(file.path(), "another-token-of-16").unwrap();
        guard.reload().unwrap();
        assert_eq!(check(&[], "token=another-token-of-16"), Ok(()));
        fs::write(file.path(), "short").unwrap();
        assert!(guard.reload().unwrap_err().to_string().contains("urandom"));
        assert_eq!(check(&[], "token=another-token-of-16"), Ok(()), "the old one stays");
    }

    #[test]
    fn an_address_that_others_reach_needs_a_token() {
        let refused = Guard::new("0.0.0.0:1".parse().unwrap(), None, true).err().unwrap();
        assert!(refused.to_string().contains("--http-token-file"));
        assert!(Guard::new("[::1]:1".parse().unwrap(), None, false).is_ok());
        let readable = token_file("0123456789abcdef", 0o644);
        let refused = Guard::new("127.0.0.1:1".parse().unwrap(), Some(readable.path().to_owned()), false)
            .err()
            .unwrap();
        assert!(refused.to_string().contains("chmod 600"));
    }

    #[test]
    fn names_that_are_not_ours_are_refused() {
        let bound: SocketAddr = "127.0.0.2:9420".parse().unwrap();
        let guard = Guard::new(bound, None, true).unwrap();
        let check = |host: &'static str| guard.check(&headers(&[(HOST, host)]), "", None);
        for ours in ["localhost:9420", "LOCALHOST", "127.0.0.1:80", "[::1]:9420", "[::1]", "127.0.0.2"] {
            assert_eq!(check(ours), Ok(()), "{ours}");
        }
        for theirs in ["evil.example", "127.0.0.1.evil.example:9420", "localhost.evil", "", "127.0.0.3"] {
            assert_eq!(check(theirs), Err(OTHER_HOST), "{theirs}");
        }
        assert_eq!(guard.check(&HeaderMap::new(), "", None), Err(OTHER_HOST));
        let closed = Guard::new(bound, None, false).unwrap();
        let user = |user| closed.check(&headers(&[(HOST, "localhost")]), "", user);
        assert_eq!(user(None), Err(OTHER_USER), "nobody is at the other end");
        assert_eq!((user(Some(0)), user(Some(geteuid().as_raw()))), (Ok(()), Ok(())));
        assert_eq!(user(Some(geteuid().as_raw() + 1)), Err(OTHER_USER));
    }
}
