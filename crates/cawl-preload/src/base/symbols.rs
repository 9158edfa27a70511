//! Functions of the libraries behind this one, by name.
//!
//! The law of this module: it finds what `dlsym(RTLD_NEXT, …)` finds, in a tenth of the time, without
//! allocation, and in every version of the C library (dlsym was in a library of its own before 2.34, which not
//! every program has). It reads the dynamic linker's list of libraries (`link_map` of <link.h>), which is in
//! the order in which that searches, and their hash tables (DT_GNU_HASH, else DT_HASH). Of a name's versions
//! the default one counts, which is not hidden.

use core::ffi::{CStr, c_char, c_int, c_void};

/// `struct link_map`, as far as it is public.
#[repr(C)]
struct Link {
    address: usize,
    path: *const c_char,
    dynamic: *const [usize; 2],
    next: *const Link,
}

/// `struct r_debug`, as far as it is used.
#[repr(C)]
struct Debug {
    version: c_int,
    libraries: *const Link,
}

/// `Elf64_Sym`
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

unsafe extern "C" {
    static _r_debug: Debug;
    /// The dynamic section of this library.
    static _DYNAMIC: [usize; 2];
}

const DT_NULL: usize = 0;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_SONAME: usize = 14;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
/// Types of a symbol that are an address: none, variable, function.
const PLAIN: u8 = 2;
/// The type of one that is to be asked for the address.
const INDIRECT: u8 = 10;
/// In a symbol's version: not the default one.
const HIDDEN: u16 = 0x8000;

/// The libraries that the C library is, or was before version 2.34.
const C_LIBRARY: [&CStr; 5] =
    [c"libc.so.6", c"libpthread.so.0", c"librt.so.1", c"libutil.so.1", c"libdl.so.2"];

/// A loaded library: what its dynamic section leads to.
pub struct Library {
    address: usize,
    names: *const c_char,
    symbols: *const Symbol,
    versions: *const u16,
    hash: *const u32,
    old_hash: *const u32,
    name: &'static CStr,
}

/// The library's own entry in the list.
fn own() -> Option<&'static Link> {
    // SAFETY: the list of libraries, which does not change while the constructor runs.
    unsafe {
        let mut link = _r_debug.libraries.as_ref();
        while let Some(one) = link
            && !core::ptr::eq(one.dynamic, &raw const _DYNAMIC)
        {
            link = one.next.as_ref();
        }
        link
    }
}

/// The path by which the library was loaded. Constructor only.
pub fn own_path() -> Option<&'static CStr> {
    // SAFETY: the dynamic linker's string.
    own().filter(|own| !own.path.is_null()).map(|own| unsafe { CStr::from_ptr(own.path) })
}

/// The hash of a name in DT_GNU_HASH.
pub const fn hash(name: &CStr) -> u32 {
    let (bytes, mut sum, mut at) = (name.to_bytes(), 5381u32, 0);
    while at < bytes.len() {
        sum = sum.wrapping_mul(33).wrapping_add(bytes[at] as u32);
        at += 1;
    }
    sum
}

/// The libraries from here on, as long as none of them is closed: in the constructor, or before `main`.
fn from(first: Option<&'static Link>) -> impl Iterator<Item = Library> {
    // SAFETY: as in `own`.
    let links = core::iter::successors(first, |link| unsafe { link.next.as_ref() });
    // SAFETY: as in `own`.
    links.filter_map(|link| unsafe { library(link) })
}

/// Those behind this one.
pub fn behind() -> impl Iterator<Item = Library> {
    // SAFETY: null or the next entry.
    from(own().and_then(|own| unsafe { own.next.as_ref() }))
}

/// All of them, in the order in which the program looks for a name; the first is the program.
pub fn all() -> impl Iterator<Item = Library> {
    // SAFETY: as in `own`.
    from(unsafe { _r_debug.libraries.as_ref() })
}

/// The address of a name in the library that the kernel gives each process, or null.
pub fn find_in_kernel(name: &CStr) -> *mut c_void {
    let kernel = all().find(|library| library.name == c"linux-vdso.so.1");
    kernel.and_then(|library| library.find(name, hash(name))).unwrap_or(core::ptr::null_mut())
}

/// The address of a name in the libraries behind this one, or null.
pub fn find(name: &CStr, hash: u32) -> *mut c_void {
    behind().find_map(|library| library.find(name, hash)).unwrap_or(core::ptr::null_mut())
}

/// The same for the C half.
///
/// # Safety
/// `name` must be a string.
#[cfg_attr(test, unsafe(export_name = "cawl_find"))]
pub unsafe extern "C" fn find_for_c(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    find(name, hash(name))
}

/// The same in the C library only.
pub fn find_own(name: &CStr) -> *mut c_void {
    let mut libraries = behind().filter(Library::is_of_the_c_library);
    libraries.find_map(|library| library.find(name, hash(name))).unwrap_or(core::ptr::null_mut())
}

/// # Safety
/// The library must be loaded.
unsafe fn library(link: &Link) -> Option<Library> {
    const WANTED: [usize; 6] = [DT_STRTAB, DT_SYMTAB, DT_VERSYM, DT_GNU_HASH, DT_HASH, DT_SONAME];
    let mut places = [0; WANTED.len()];
    let mut entry = link.dynamic;
    // SAFETY: a dynamic section ends with DT_NULL.
    unsafe {
        while let [tag, value] = *entry
            && tag != DT_NULL
        {
            if let Some(place) = WANTED.iter().position(|wanted| *wanted == tag)
                && let Some(place) = places.get_mut(place)
            {
                *place = value;
            }
            entry = entry.add(1);
        }
    }
    let [names, symbols, versions, hash, old_hash, name] = places;
    // The dynamic linker has added the address, unless the section cannot be written.
    let at = |place: usize| {
        let moved = if place != 0 && place < link.address { place + link.address } else { place };
        core::ptr::with_exposed_provenance::<c_char>(moved)
    };
    // SAFETY: the offset of a string.
    let name = if name == 0 || names == 0 { c"" } else { unsafe { CStr::from_ptr(at(names).add(name)) } };
    (names != 0 && symbols != 0 && (hash != 0 || old_hash != 0)).then(|| Library {
        address: link.address,
        names: at(names),
        symbols: at(symbols).cast(),
        versions: at(versions).cast(),
        hash: at(hash).cast(),
        old_hash: at(old_hash).cast(),
        name,
    })
}

impl Library {
    /// True if it is the C library, or a part of it.
    pub fn is_of_the_c_library(&self) -> bool {
        C_LIBRARY.contains(&self.name)
    }

    /// The address of a name with its [`hash`].
    pub fn find(&self, name: &CStr, hash: u32) -> Option<*mut c_void> {
        // SAFETY: the tables are those of a loaded library.
        unsafe { if self.hash.is_null() { self.find_slowly(name) } else { self.find_hashed(name, hash) } }
    }

    /// # Safety
    /// It must be loaded, and have DT_GNU_HASH.
    unsafe fn find_hashed(&self, name: &CStr, hash: u32) -> Option<*mut c_void> {
        // SAFETY: the layout of DT_GNU_HASH: four words, a filter, the first symbol of each bucket, and the
        // hashes of the symbols, of which the last of a bucket is odd.
        unsafe {
            let [buckets, first, words, shift] = *self.hash.cast::<[u32; 4]>();
            let filter = self.hash.add(4).cast::<usize>();
            let word = *filter.add((hash / usize::BITS).checked_rem(words)? as usize);
            if word >> (hash % usize::BITS) & word >> (hash.wrapping_shr(shift) % usize::BITS) & 1 == 0 {
                return None;
            }
            let starts = filter.add(words as usize).cast::<u32>();
            let hashes = starts.add(buckets as usize);
            let mut index = *starts.add(hash.checked_rem(buckets)? as usize);
            if index < first {
                return None;
            }
            loop {
                let other = *hashes.add((index - first) as usize);
                if other | 1 == hash | 1
                    && let Some(address) = self.address_of(index as usize, name)
                {
                    return Some(address);
                }
                if other & 1 != 0 {
                    return None;
                }
                index += 1;
            }
        }
    }

    /// # Safety
    /// It must be loaded, and have DT_HASH.
    #[cold]
    unsafe fn find_slowly(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the second word of DT_HASH is the number of symbols.
        unsafe { (1..*self.old_hash.add(1)).find_map(|index| self.address_of(index as usize, name)) }
    }

    /// # Safety
    /// The library must have so many symbols.
    unsafe fn address_of(&self, index: usize, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the caller's promise.
        unsafe {
            let symbol = &*self.symbols.add(index);
            let version = if self.versions.is_null() { 0 } else { *self.versions.add(index) };
            let fits = symbol.section != 0
                && symbol.value != 0
                && version & HIDDEN == 0
                && CStr::from_ptr(self.names.add(symbol.name as usize)) == name;
            if !fits {
                return None;
            }
            match symbol.info & 0xF {
                ..=PLAIN => Some(core::ptr::with_exposed_provenance_mut(self.address + symbol.value)),
                INDIRECT => Some(resolved(self.address + symbol.value)),
                _ => None,
            }
        }
    }
}

/// What a function that chooses among several has chosen.
///
/// # Safety
/// `at` must be the address of such a function, in a library that is relocated.
#[cold]
unsafe fn resolved(at: usize) -> *mut c_void {
    let at = core::ptr::with_exposed_provenance::<c_void>(at);
    // SAFETY: the caller's promise; the arguments are those that the dynamic linker gives.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            let choose: unsafe extern "C" fn() -> *mut c_void = core::mem::transmute(at);
            choose()
        }
        #[cfg(target_arch = "aarch64")]
        {
            let choose: unsafe extern "C" fn(u64, *const [u64; 3]) -> *mut c_void = core::mem::transmute(at);
            let features = [libc::AT_HWCAP, libc::AT_HWCAP2].map(|which| libc::getauxval(which));
            choose(features[0] | 1 << 62, &[24, features[0], features[1]])
        }
    }
}
