use super::*;

#[test]
fn toml_round_trip() {
    let profile = HostProfile::uncalibrated();
    assert_eq!(HostProfile::from_toml(&profile.to_toml()).unwrap(), profile);
}

#[test]
fn constants_that_no_law_uses_any_more_are_read_and_not_written() {
    let good = HostProfile::uncalibrated();
    let old = ["calls.odd", "memory.cached_flush_factor", "memory.last_part"]
        .map(|name| format!("[{name}]\nvalue = 0.9\nsamples = 1\n"))
        .concat();
    let text = good.to_toml();
    assert_eq!(HostProfile::from_toml(&format!("{text}{old}")).unwrap(), good);
    assert!(HostProfile::from_toml(&format!("{text}[calls.even]\nvalue = 30.0\n")).is_err());
}

#[test]
fn bad_profiles_are_refused_with_a_reason() {
    let good = HostProfile::uncalibrated().to_toml();
    let later = good.replace("schema = 1", "schema = 99");
    assert!(HostProfile::from_toml(&later).unwrap_err().to_string().contains("newer"));
    let unknown = format!("{good}\nsurprise = 1\n");
    assert!(HostProfile::from_toml(&unknown).unwrap_err().to_string().contains("surprise"));
    let negative = good.replace("hz = 250", "hz = -1");
    assert!(HostProfile::from_toml(&negative).is_err());
    let odd = good.replace("page = 4096", "page = 3000");
    assert!(HostProfile::from_toml(&odd).unwrap_err().to_string().contains("power of two"));
    let mut upside_down = HostProfile::uncalibrated();
    upside_down.kernel.limits.background = Bytes::mib(10_000);
    assert!(HostProfile::from_toml(&upside_down.to_toml()).unwrap_err().to_string().contains("background"));
}

#[test]
fn what_a_brief_measurement_had_no_time_for_is_named() {
    let mut profile = HostProfile::uncalibrated();
    assert_eq!(profile.unmeasured(), [""; 0], "nobody measured it");
    profile.measured = Some(Thoroughness::Brief);
    profile.memory.fresh.samples = 1;
    assert_eq!(profile.unmeasured()[0], "memory.cached");
    profile.memory.cached.samples = 1;
    assert_eq!(profile.unmeasured(), ["device.write", "device.fsync", "device.writeback"]);
    (profile.device.write.samples, profile.device.writeback.samples) = (1, 1);
    assert_eq!(profile.unmeasured(), ["device.fsync"]);
    profile.device.filesystem = Some(FilesystemKind::of("tmpfs"));
    assert_eq!(profile.unmeasured(), [""; 0]);
}
