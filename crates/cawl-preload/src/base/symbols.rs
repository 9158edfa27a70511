//! Functions of the libraries behind this one, by name. dlsym takes ten times as long.
//!
//! The law of this module: it finds what `dlsym(RTLD_NEXT, …)` finds, or nothing. It reads the dynamic
//! linker's list of libraries (`link_map` of <link.h>), which is in the order in which that searches, and
//! their hash tables (DT_GNU_HASH). Of a name's versions the default one counts, which is not hidden.

use core::ffi::{CStr, c_char, c_int, c_void};

/// `struct link_map`, as far as it is public.
#[repr(C)]
struct Library {
    address: usize,
    path: *const c_char,
    dynamic: *const [usize; 2],
    next: *const Library,
}

/// `struct r_debug`, as far as it is used.
#[repr(C)]
struct Debug {
    version: c_int,
    libraries: *const Library,
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
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const DT_VERSYM: usize = 0x6fff_fff0;
/// Types of a symbol that are an address: none, variable, function. Not one that is to be asked for the
/// address.
const PLAIN: u8 = 2;
/// In a symbol's version: not the default one.
const HIDDEN: u16 = 0x8000;

/// What a dynamic section leads to.
struct Tables {
    address: usize,
    names: *const u8,
    symbols: *const Symbol,
    versions: *const u16,
    hash: *const u32,
}

/// The library's own entry in the list.
fn own() -> Option<&'static Library> {
    // SAFETY: the list of libraries, which does not change while the constructor runs.
    unsafe {
        let mut library = _r_debug.libraries.as_ref();
        while let Some(one) = library
            && !core::ptr::eq(one.dynamic, &raw const _DYNAMIC)
        {
            library = one.next.as_ref();
        }
        library
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

/// Most libraries that are looked into.
const MOST: usize = 32;

/// The libraries behind this one, as long as none of them is closed: in the constructor.
pub struct Behind([Option<Tables>; MOST]);

impl Behind {
    /// None if not all of them are understood.
    pub fn look() -> Option<Behind> {
        let mut places = [const { None }; MOST];
        let mut library = own()?.next;
        let mut free = places.iter_mut();
        // SAFETY: as in `own`.
        while let Some(one) = unsafe { library.as_ref() } {
            // SAFETY: as in `own`.
            *free.next()? = Some(unsafe { tables(one) }?);
            library = one.next;
        }
        Some(Behind(places))
    }

    /// The address of a name with its [`hash`]; null if dlsym is to be asked.
    pub fn find(&self, name: &CStr, hash: u32) -> *mut c_void {
        // SAFETY: the tables are those of loaded libraries.
        let found =
            unsafe { self.0.iter().map_while(Option::as_ref).find_map(|tables| tables.find(name, hash)) };
        found.unwrap_or(core::ptr::null_mut())
    }
}

/// # Safety
/// The library must be loaded.
unsafe fn tables(library: &Library) -> Option<Tables> {
    let mut places = [0; 4];
    let mut entry = library.dynamic;
    // SAFETY: a dynamic section ends with DT_NULL.
    unsafe {
        while let [tag, value] = *entry
            && tag != DT_NULL
        {
            let which =
                [DT_STRTAB, DT_SYMTAB, DT_VERSYM, DT_GNU_HASH].iter().position(|wanted| *wanted == tag);
            if let Some(place) = which.and_then(|which| places.get_mut(which)) {
                // The dynamic linker has added the address, unless the section cannot be written.
                *place = if value < library.address { value + library.address } else { value };
            }
            entry = entry.add(1);
        }
    }
    let [names, symbols, versions, hash] = places;
    let at = |place: usize| core::ptr::with_exposed_provenance::<u8>(place);
    (names != 0 && symbols != 0 && hash != 0).then(|| Tables {
        address: library.address,
        names: at(names),
        symbols: at(symbols).cast(),
        versions: at(versions).cast(),
        hash: at(hash).cast(),
    })
}

impl Tables {
    /// The address of a name; null for one that is to be asked for its address.
    ///
    /// # Safety
    /// The tables must be those of a loaded library.
    unsafe fn find(&self, name: &CStr, hash: u32) -> Option<*mut c_void> {
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
    /// The library must have so many symbols.
    unsafe fn address_of(&self, index: usize, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the caller's promise.
        unsafe {
            let symbol = &*self.symbols.add(index);
            let version = if self.versions.is_null() { 0 } else { *self.versions.add(index) };
            let fits = symbol.section != 0
                && symbol.value != 0
                && version & HIDDEN == 0
                && CStr::from_ptr(self.names.add(symbol.name as usize).cast()) == name;
            let address = if symbol.info & 0xF <= PLAIN { self.address + symbol.value } else { 0 };
            fits.then_some(core::ptr::with_exposed_provenance_mut(address))
        }
    }
}
