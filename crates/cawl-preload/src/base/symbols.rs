//! Functions of the libraries behind this one, by name.
//!
//! The law of this module: it finds what `dlsym(RTLD_NEXT, …)` finds, in a tenth of the time, without
//! allocation, and in every version of the C library (dlsym was in a library of its own before 2.34, which
//! not every program has). It reads the dynamic linker's list of libraries (`link_map` of <link.h>), which is
//! in the order in which that searches, and their hash tables (DT_GNU_HASH, else DT_HASH). Of a name's
//! versions the default one counts, which is not hidden.

use crate::base::level::Level;
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
    brk: usize,
    state: c_int,
    /// Where the dynamic linker itself was loaded.
    linker: usize,
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
const DT_NEEDED: usize = 1;
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

/// The library that the kernel gives each process.
const KERNEL: &CStr = c"linux-vdso.so.1";

/// A loaded library: what its dynamic section leads to.
pub struct Library {
    address: usize,
    names: *const c_char,
    symbols: *const Symbol,
    versions: *const u16,
    hash: *const u32,
    old_hash: *const u32,
    name: *const c_char,
    path: *const c_char,
    preloaded: bool,
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

/// The path of the dynamic linker, as the program names it; null if it is not known. Constructor only.
pub fn linker() -> *const c_char {
    // SAFETY: as in `own`.
    unsafe {
        let mut library = _r_debug.libraries.as_ref();
        while let Some(one) = library {
            if one.address == _r_debug.linker {
                return one.path;
            }
            library = one.next.as_ref();
        }
    }
    core::ptr::null()
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
fn from(first: Option<&'static Link>) -> impl Iterator<Item = &'static Link> {
    // SAFETY: as in `own`.
    core::iter::successors(first, |link| unsafe { link.next.as_ref() })
}

/// The first one behind this one.
fn next() -> Option<&'static Link> {
    // SAFETY: null or the next entry.
    own().and_then(|own| unsafe { own.next.as_ref() })
}

/// Those behind this one.
pub fn behind() -> impl Iterator<Item = Library> {
    let mut before = true;
    from(next()).filter_map(move |link| open(link, &mut before))
}

/// A library; `before`: none of those before it is one that the program itself asks for. What was preloaded
/// comes before all these.
#[inline(always)]
fn open(link: &'static Link, before: &mut bool) -> Option<Library> {
    let mut library = open_plain(link)?;
    // SAFETY: as in `own`.
    *before =
        *before && !unsafe { _r_debug.libraries.as_ref() }.is_some_and(|program| needs(program, &library));
    library.preloaded = *before;
    Some(library)
}

#[inline(always)]
fn open_plain(link: &'static Link) -> Option<Library> {
    let mut library = Library {
        address: link.address,
        names: core::ptr::null(),
        symbols: core::ptr::null(),
        versions: core::ptr::null(),
        hash: core::ptr::null(),
        old_hash: core::ptr::null(),
        name: core::ptr::null(),
        path: link.path,
        preloaded: false,
    };
    read(link, &mut library).then_some(library)
}

/// All of them, in the order in which the program looks for a name; the first is the program.
fn all() -> impl Iterator<Item = Library> {
    // SAFETY: as in `own`.
    from(unsafe { _r_debug.libraries.as_ref() }).filter_map(open_plain)
}

/// True if a program asks for a library itself.
#[inline(never)]
fn needs(program: &Link, library: &Library) -> bool {
    // SAFETY: the program is loaded.
    let Some((_, names)) = (unsafe { section(program) }).find(|(tag, _)| *tag == DT_STRTAB) else {
        return false;
    };
    let names = at::<c_char>(program, names);
    let path = file(string(library.path));
    // SAFETY: as above; the offsets of strings.
    unsafe {
        section(program).filter(|(tag, _)| *tag == DT_NEEDED).any(|(_, name)| {
            let name = CStr::from_ptr(names.add(name));
            name == library.name() || file(name) == path
        })
    }
}

/// The last part of a path.
fn file(path: &CStr) -> &[u8] {
    let bytes = path.to_bytes();
    bytes.iter().rposition(|byte| *byte == b'/').and_then(|at| bytes.get(at + 1..)).unwrap_or(bytes)
}

/// A string of the dynamic linker, if there is one.
fn string(at: *const c_char) -> &'static CStr {
    // SAFETY: null, or a string of a loaded library.
    if at.is_null() { c"" } else { unsafe { CStr::from_ptr(at) } }
}

/// The address of a name in the library that the kernel gives each process, or null.
pub fn find_in_kernel(name: &CStr) -> *mut c_void {
    let kernel = all().find(|library| library.name() == KERNEL);
    kernel.and_then(|library| library.find(name, hash(name))).unwrap_or(core::ptr::null_mut())
}

/// The address of a name in the program or in a library that it needs, up to the C library, or null.
pub fn find_in_program(name: &CStr) -> *mut c_void {
    let hash = hash(name);
    // None of these is closed: they were there when the program began.
    for library in all() {
        if let Some(found) = library.find(name, hash) {
            return found;
        }
        if library.is_the_c_library() {
            break;
        }
    }
    core::ptr::null_mut()
}

/// The address of a name in the first library behind this one that is trusted with it, or null. The stack may
/// be a small one.
#[cold]
#[inline(never)]
pub fn find(name: &CStr, hash: u32, level: Level) -> *mut c_void {
    let (mut before, mut link) = (true, next());
    while let Some(one) = link {
        if let Some(library) = open(one, &mut before)
            && let Some(found) = library.find(name, hash)
            && library.may_be(level)
        {
            return found;
        }
        // SAFETY: null or the next entry.
        link = unsafe { one.next.as_ref() };
    }
    core::ptr::null_mut()
}

/// The address of a name in the first library behind this one that has it, or null; for the C half.
///
/// # Safety
/// `name` must be a string.
#[cfg_attr(test, unsafe(export_name = "cawl_find"))]
pub unsafe extern "C" fn find_for_c(name: *const c_char) -> *mut c_void {
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    find(name, hash(name), Level::Any)
}

/// The hook in front of a function of the C library; `found` itself where it is none, or where another
/// library stands between.
pub fn hook_of(found: *mut c_void, name: &CStr) -> *mut c_void {
    let hash = hash(name);
    let hook = own().and_then(open_plain).and_then(|own| own.find(name, hash));
    // None of those up to the C library is closed: they were there when the program began.
    let mut first = None;
    let mut is_own = false;
    for library in behind() {
        let (own, is_last) = (library.is_of_the_c_library(), library.is_the_c_library());
        if let Some(there) = library.find(name, hash) {
            first = first.or(Some(own));
            is_own |= own && there == found;
        }
        if is_last {
            break;
        }
    }
    hook.filter(|_| is_own && first == Some(true)).unwrap_or(found)
}

/// True if the first library that tells the time is neither the kernel's nor the C library.
pub fn has_other_clock() -> bool {
    let (name, hash) = (c"clock_gettime", hash(c"clock_gettime"));
    let mut libraries = all().filter(|library| library.name() != KERNEL);
    libraries
        .find(|library| library.is_of_the_c_library() || library.find(name, hash).is_some())
        .is_some_and(|library| !library.is_of_the_c_library())
}

/// Where an entry of a dynamic section leads.
fn at<T>(link: &Link, place: usize) -> *const T {
    // The dynamic linker has added the address, unless the section cannot be written. That is so in the
    // kernel's library, which may be linked to the end of the address space (`VDSO_PRELINK` of
    // user-mode-linux, 6.1): the sum wraps then.
    let sum = place.wrapping_add(link.address);
    let is_moved = place >= link.address && sum >= place;
    core::ptr::with_exposed_provenance(if place == 0 || is_moved { place } else { sum })
}

/// The entries of a dynamic section.
///
/// # Safety
/// The library must be loaded.
unsafe fn section(link: &Link) -> impl Iterator<Item = (usize, usize)> {
    // SAFETY: a dynamic section ends with DT_NULL.
    let entries = (0..).map(|index| unsafe { *link.dynamic.add(index) });
    entries.take_while(|entry| entry[0] != DT_NULL).map(|[tag, value]| (tag, value))
}

/// Reads what the dynamic section says; false if that is not understood.
#[inline(never)]
fn read(link: &Link, library: &mut Library) -> bool {
    let mut name = 0;
    // SAFETY: the library is loaded.
    for (tag, value) in unsafe { section(link) } {
        match tag {
            DT_STRTAB => library.names = at(link, value),
            DT_SYMTAB => library.symbols = at(link, value),
            DT_VERSYM => library.versions = at(link, value),
            DT_GNU_HASH => library.hash = at(link, value),
            DT_HASH => library.old_hash = at(link, value),
            DT_SONAME => name = value,
            _ => {}
        }
    }
    if name != 0 {
        library.name = library.names.wrapping_add(name);
    }
    let has_table = !library.hash.is_null() || !library.old_hash.is_null();
    has_table && !library.names.is_null() && !library.symbols.is_null()
}

impl Library {
    /// What others need it by (DT_SONAME).
    fn name(&self) -> &'static CStr {
        string(self.name)
    }

    /// True if it is the C library, or a part of it.
    pub fn is_of_the_c_library(&self) -> bool {
        self.is_the_c_library() || C_LIBRARY[1..].contains(&self.name())
    }

    /// True if it is the C library itself, in which nearly all is.
    pub fn is_the_c_library(&self) -> bool {
        self.name() == C_LIBRARY[0]
    }

    /// True if what it defines is trusted with a name of this level.
    #[inline(never)]
    pub fn may_be(&self, level: Level) -> bool {
        level == Level::Any
            || self.is_of_the_c_library()
            || level <= Level::Preloaded && self.preloaded
            || level == Level::Passing && (self.asks_for(c"dlsym") || self.asks_for(c"dlvsym"))
    }

    /// True if it uses a function of another library.
    fn asks_for(&self, name: &CStr) -> bool {
        // SAFETY: the tables of a loaded library: DT_GNU_HASH says where the defined symbols begin, DT_HASH
        // how many there are in all.
        unsafe {
            let end = if self.hash.is_null() { self.old_hash } else { self.hash }.add(1).read();
            (1..end).any(|index| {
                let symbol = &*self.symbols.add(index as usize);
                symbol.section == 0 && CStr::from_ptr(self.names.add(symbol.name as usize)) == name
            })
        }
    }

    /// The address of a name with its [`hash`].
    #[inline(never)]
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
            let value = self.address.wrapping_add(symbol.value);
            match symbol.info & 0xF {
                ..=PLAIN => Some(core::ptr::with_exposed_provenance_mut(value)),
                INDIRECT => Some(resolved(value)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::ptr::null;

    #[test]
    fn an_entry_leads_into_the_library_wherever_that_was_linked_to() {
        let library = 0x7fbf_fa05_a000_usize;
        let cases = [
            // Address, place, where it leads.
            (library, library + 0x294, library + 0x294),
            (library, 0x294, library + 0x294),
            (0, 0x40_0294, 0x40_0294),
            (library.wrapping_sub(0xffff_ffff_ff70_0000), 0xffff_ffff_ff70_0294, library + 0x294),
            (library, 0, 0),
        ];
        for (address, place, leads) in cases {
            let link = Link { address, path: null(), dynamic: null(), next: null() };
            assert_eq!(at::<u8>(&link, place) as usize, leads, "{address:#x} {place:#x}");
        }
    }
}
