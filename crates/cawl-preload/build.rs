//! Compiles the C half: the thread's own record, the variadic functions and memcpy with its like, none of
//! which stable Rust can define.

fn main() {
    const SOURCES: [&str; 4] = ["variadic", "thread", "freestanding", "unwind"];
    for name in SOURCES.iter().chain(&["reports", "scans"]) {
        println!("cargo::rerun-if-changed=src/{name}.c");
    }
    println!("cargo::rerun-if-changed=src/variadic.h");
    println!("cargo::rerun-if-changed=build.rs");
    // Calls inside the library stay inside, whatever else in the process has a function of that name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // The C library understands these only since version 2.36.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nopack-relative-relocs");
    let compiler = |files: &[&str]| {
        let mut build = cc::Build::new();
        build
            .files(files.iter().map(|name| format!("src/{name}.c")))
            .opt_level(2)
            .flag("-fvisibility=hidden")
            .flag("-fexceptions")
            .flag("-fno-stack-protector")
            .flag("-fno-builtin")
            .define("_GNU_SOURCE", None)
            .flag("-U_FORTIFY_SOURCE")
            .warnings(true);
        build
    };
    compiler(&SOURCES).compile("cawl_variadic");
    compiler(&["scans"]).flag_if_supported("-mgeneral-regs-only").compile("cawl_scans");
    // The tests of the crate itself use the C library's.
    for object in compiler(&["reports"]).compile_intermediates() {
        println!("cargo::rustc-cdylib-link-arg={}", object.display());
    }
}
