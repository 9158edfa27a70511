//! Compiles the one system call for which there is no safe function elsewhere.

fn main() {
    println!("cargo::rerun-if-changed=src/cachestat.c");
    cc::Build::new()
        .file("src/cachestat.c")
        .opt_level(2)
        .define("_GNU_SOURCE", None)
        .warnings(true)
        .compile("cawl_cachestat");
}
