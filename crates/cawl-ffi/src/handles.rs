//! Profiles and machines: how they are made, and freed.

use std::ffi::{CStr, c_char};

use cawl_model::HostProfile;
use cawl_model::profile::{OtherDevice, ProfileError};
use toml::{Table, Value};

use crate::machine::cawl_machine;
use crate::status::{Failure, Outcome, cawl_status, cawl_status::*, guarded};

/// What was measured of a machine. Threads may share one as long as none changes it.
pub struct cawl_profile(HostProfile);

/// A text of the caller's.
///
/// # Safety
///
/// `text` is NULL, or a text that ends in NUL and stays as it is during the call.
unsafe fn text<'a>(text: *const c_char) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(CAWL_ERROR_NULL.into());
    }
    // SAFETY: by this function's own promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::new(CAWL_ERROR_TEXT, error))
}

/// Gives a new handle to the caller; NULL where there is none, so that freeing it is right in any case.
///
/// # Safety
///
/// `out` is NULL, or where the caller has room for a pointer.
unsafe fn give<T>(out: *mut *mut T, make: impl FnOnce() -> Outcome<T>) -> cawl_status {
    guarded(|| {
        if out.is_null() {
            return Err(CAWL_ERROR_NULL.into());
        }
        // SAFETY: by this function's own promise.
        unsafe { out.write(std::ptr::null_mut()) };
        let made = Box::into_raw(Box::new(make()?));
        // SAFETY: the same.
        unsafe { out.write(made) };
        Ok(())
    })
}

fn free<T>(handle: Option<Box<T>>) {
    guarded(|| {
        drop(handle);
        Ok(())
    });
}

fn parse(text: &str) -> Outcome<cawl_profile> {
    HostProfile::from_toml(text).map(cawl_profile).map_err(|error| Failure::new(CAWL_ERROR_PROFILE, error))
}

/// A profile of an ordinary machine that was not measured: orders of magnitude only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_profile_default(profile: *mut *mut cawl_profile) -> cawl_status {
    // SAFETY: cawl.h asks for a place for a pointer.
    unsafe { give(profile, || Ok(cawl_profile(HostProfile::uncalibrated()))) }
}

/// A profile from its text (TOML), as `cawl-cli profile show` prints it. CAWL_ERROR_PROFILE: cawl_last_error
/// tells the line.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_profile_from_text(
    toml: *const c_char,
    profile: *mut *mut cawl_profile,
) -> cawl_status {
    // SAFETY: cawl.h asks for a text that ends in NUL, and for a place for a pointer.
    unsafe { give(profile, || parse(text(toml)?)) }
}

/// A profile from a file, as `cawl-cli calibrate` keeps it. CAWL_ERROR_FILE: cawl_last_error tells why it
/// cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_profile_from_file(
    path: *const c_char,
    profile: *mut *mut cawl_profile,
) -> cawl_status {
    let read = |path: &str| {
        let told = |error| Failure::new(CAWL_ERROR_FILE, format!("{path}: {error}"));
        parse(&std::fs::read_to_string(path).map_err(told)?)
    };
    // SAFETY: cawl.h asks for a text that ends in NUL, and for a place for a pointer.
    unsafe { give(profile, || read(text(path)?)) }
}

/// Values of `new` take the place of those of `old`, table by table.
fn merge(old: &mut Table, new: Table) {
    for (key, value) in new {
        match (old.get_mut(&key), value) {
            (Some(Value::Table(old)), Value::Table(new)) => merge(old, new),
            (_, value) => drop(old.insert(key, value)),
        }
    }
}

/// A profile of which some constants are others.
pub fn changed(profile: &HostProfile, toml: &str) -> Outcome<HostProfile> {
    let unread = |error| Failure::new(CAWL_ERROR_PROFILE, ProfileError::from(error));
    let new = toml.parse::<Table>().map_err(unread)?;
    let mut all = profile.to_toml().parse::<Table>().map_err(unread)?;
    merge(&mut all, new);
    // Not by way of a text, whose lines the caller has not seen: the error names the constant.
    let changed: HostProfile = Value::Table(all).try_into().map_err(unread)?;
    changed.check().map_err(|error| Failure::new(CAWL_ERROR_PROFILE, error))?;
    Ok(changed)
}

/// Changes constants of a profile: `toml` has those that differ, as "device.writeback.value = 1e8". The
/// profile stays as it was if no machine could have the result. docs/reference/CONSTANTS.md has all
/// constants, their units and meaning. Machines that were made of the profile before stay as they are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_profile_set(
    profile: Option<&mut cawl_profile>,
    toml: *const c_char,
) -> cawl_status {
    guarded(|| {
        let profile = profile.ok_or(CAWL_ERROR_NULL)?;
        // SAFETY: cawl.h asks for a text that ends in NUL.
        let changes = unsafe { text(toml) }?;
        profile.0 = changed(&profile.0, changes)?;
        Ok(())
    })
}

/// The device of this number is that of the profile `of`, whose other constants do not count. `of` is only
/// read, and may be the same profile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_profile_set_device(
    profile: *mut cawl_profile,
    device: u64,
    of: *const cawl_profile,
) -> cawl_status {
    guarded(|| {
        // SAFETY: cawl.h asks for handles that the library gave, or NULL. The first reference has ended when
        // the other is made.
        let constants = unsafe { of.as_ref() }.ok_or(CAWL_ERROR_NULL)?.0.device.clone();
        // SAFETY: the same.
        let profile = unsafe { profile.as_mut() }.ok_or(CAWL_ERROR_NULL)?;
        profile.0.others.retain(|other| other.dev != device);
        profile.0.others.push(OtherDevice { dev: device, constants });
        Ok(())
    })
}

/// Frees a profile; NULL is fine.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_profile_free(profile: Option<Box<cawl_profile>>) {
    free(profile);
}

/// A machine of this profile, with an empty page cache, and the model of this name: "kernel" follows the laws
/// of Linux, "cawl" those of the CAWL paper, "naive" divides bytes by a rate. The profile may be freed
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_machine_new(
    profile: Option<&cawl_profile>,
    model: *const c_char,
    machine: *mut *mut cawl_machine,
) -> cawl_status {
    let make = |model: &str| cawl_machine::new(&profile.ok_or(CAWL_ERROR_NULL)?.0, model);
    // SAFETY: cawl.h asks for a text that ends in NUL, and for a place for a pointer.
    unsafe { give(machine, || make(text(model)?)) }
}

/// An independent copy of a machine, to look ahead with: what is dirty is shared until it changes.
/// Descriptors and files have the same numbers there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cawl_fork(
    machine: Option<&cawl_machine>,
    copy: *mut *mut cawl_machine,
) -> cawl_status {
    // SAFETY: cawl.h asks for a place for a pointer.
    unsafe { give(copy, || machine.ok_or(CAWL_ERROR_NULL)?.fork()) }
}

/// Frees a machine; NULL is fine.
#[unsafe(no_mangle)]
pub extern "C" fn cawl_machine_free(machine: Option<Box<cawl_machine>>) {
    free(machine);
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::ptr::null_mut;

    use super::*;

    /// A new profile of a function's, which has to succeed.
    fn made(make: impl FnOnce(*mut *mut cawl_profile) -> cawl_status) -> Box<cawl_profile> {
        let mut profile = null_mut();
        assert_eq!(make(&mut profile), CAWL_OK);
        // SAFETY: a handle that the library gave, and that nobody else has.
        unsafe { Box::from_raw(profile) }
    }

    #[test]
    fn profiles_from_files_and_texts_are_changed_by_table() {
        let assumed = HostProfile::uncalibrated();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../cawl-model/src/profile/uncalibrated.toml");
        let (path, toml) = (CString::new(path).unwrap(), CString::new(assumed.to_toml()).unwrap());
        // SAFETY: texts that end in NUL, and places for pointers.
        let read = unsafe {
            [
                made(|out| cawl_profile_default(out)),
                made(|out| cawl_profile_from_file(path.as_ptr(), out)),
                made(|out| cawl_profile_from_text(toml.as_ptr(), out)),
            ]
        };
        assert!(read.iter().all(|profile| profile.0 == assumed));
        let [mut profile, slow, _] = read;
        let change = c"device.write.value = 1e6\nkernel.hz = 100";
        // SAFETY: a text that ends in NUL; handles that the library gave.
        let ends = unsafe {
            [
                cawl_profile_set(Some(&mut profile), change.as_ptr()),
                cawl_profile_set_device(&mut *profile, 7, &*slow),
                cawl_profile_set_device(&mut *profile, 7, &*slow),
            ]
        };
        assert_eq!(ends, [CAWL_OK; 3]);
        assert_eq!((profile.0.device.write.value.get(), profile.0.kernel.hz), (1e6, 100));
        assert_eq!(
            (profile.0.device.read.value, &profile.0.memory),
            (assumed.device.read.value, &assumed.memory)
        );
        assert_eq!((profile.0.device_of(7), profile.0.others.len()), (&assumed.device, 1));
    }

    #[test]
    fn handles_may_go_from_thread_to_thread() {
        fn moves<T: Send>() {}
        fn is_shared<T: Sync>() {}
        moves::<cawl_machine>();
        moves::<cawl_profile>();
        is_shared::<cawl_profile>();
    }
}
