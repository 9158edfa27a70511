//! Compiles the C half: the thread's own record, the variadic functions and memcpy with its like, none of
//! which stable Rust can define.

fn main() {
    println!("cargo::rerun-if-changed=src/variadic.c");
    println!("cargo::rerun-if-changed=src/thread.c");
    println!("cargo::rerun-if-changed=src/freestanding.c");
    println!("cargo::rerun-if-changed=src/unwind.c");
    println!("cargo::rerun-if-changed=build.rs");
    // Calls inside the library stay inside, whatever else in the process has a function of that name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    cc::Build::new()
        .file("src/variadic.c")
        .file("src/thread.c")
        .file("src/freestanding.c")
        .file("src/unwind.c")
        .opt_level(2)
        .flag("-fvisibility=hidden")
        .flag("-fexceptions")
        .flag("-fno-stack-protector")
        .flag("-fno-builtin")
        .define("_GNU_SOURCE", None)
        .flag("-U_FORTIFY_SOURCE")
        .warnings(true)
        .compile("cawl_variadic");
}
