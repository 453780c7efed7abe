//! The C++ shim compiles without warnings against every generation of Gloo's interface.
//!
//! All generations have version 0.5.0. The installed one is used as it is. For the others, the few
//! headers that differ are declared in `gloo_headers/`, which precedes the installed headers in the
//! include path. `make gloo-generations` builds against real ones.

use std::path::Path;
use std::process::Command;

/// Type-checks the shim; returns success and the compiler's messages.
fn compile(generation: Option<&str>) -> (bool, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args([
        "-std=c++17",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Wnon-virtual-dtor",
        "-Werror",
    ]);
    if let Some(generation) = generation {
        compiler.arg(format!("-DPOTLUCK_TEST_GENERATION={generation}"));
        compiler.arg("-I").arg(root.join("tests/gloo_headers"));
    }
    compiler.arg("-I").arg(root.join("cpp"));
    // The generated header of the cxx bridge, from the build script.
    compiler.arg("-I").arg(Path::new(env!("OUT_DIR")).join("cxxbridge/include"));
    if let Some(prefix) = std::env::var_os("GLOO_ROOT") {
        compiler.arg("-isystem").arg(Path::new(&prefix).join("include"));
    }
    let said = compiler
        .arg(root.join("cpp/shim.cc"))
        .output()
        .expect("a C++ compiler, which the build had");
    (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
}

#[test]
fn the_installed_generation() {
    let (compiles, said) = compile(None);
    assert!(compiles, "{said}");
}

#[test]
fn the_generation_of_2023() {
    let (compiles, said) = compile(Some("2023"));
    assert!(compiles, "{said}");
}

#[test]
fn the_generation_of_2025() {
    let (compiles, said) = compile(Some("2025"));
    assert!(compiles, "{said}");
}
