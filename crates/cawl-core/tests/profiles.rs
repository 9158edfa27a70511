//! Profiles of earlier versions stay readable, whatever fields have been added since.

use cawl_core::{Bytes, HostProfile, Measured, Nanos, Origin};

/// As `calibrate` wrote it before the queue, the journal's interval and the shares of devices were there.
const FIRST: &str = include_str!("data/profile-first.toml");

#[test]
fn the_first_version_is_read() {
    let profile = HostProfile::from_toml(FIRST).unwrap();
    assert_eq!(profile.origin, Origin::Calibrated);
    assert!(profile.memory.cold.is_some() && profile.device.writeback.samples > 0);
    // What it does not have is what an ordinary machine has.
    let ordinary = HostProfile::uncalibrated();
    assert_eq!(profile.device.queue, ordinary.device.queue);
    assert_eq!(profile.kernel.folio, ordinary.kernel.folio);
    assert!(profile.device.queue > Bytes::ZERO);
    // And it is written back whole.
    assert_eq!(HostProfile::from_toml(&profile.to_toml()).unwrap(), profile);
}

#[test]
fn what_was_called_after_wait_is_read() {
    let mut profile = HostProfile::uncalibrated();
    profile.calls.away = Some(Measured::assumed(Nanos::new(2000.0)));
    let old = profile.to_toml().replace("[calls.away]", "[calls.after_wait]");
    assert!(old.contains("after_wait"));
    assert_eq!(HostProfile::from_toml(&old).unwrap().calls.away, profile.calls.away);
}

#[test]
fn a_later_version_is_refused_with_a_remedy() {
    let later = FIRST.replace("schema = 1", "schema = 2");
    assert!(HostProfile::from_toml(&later).unwrap_err().to_string().contains("newer"));
}
