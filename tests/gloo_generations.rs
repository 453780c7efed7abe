//! The C++ border compiles, without a warning, against every generation of Gloo's interface.
//!
//! All of them call themselves 0.5.0. The one that is installed serves as it is; of the others the
//! few headers that differ are declared in `gloo_headers/`, and found before the installed ones.
//! `make gloo-generations` builds real ones.

use std::path::Path;
use std::process::Command;

/// Compiles the shim's syntax and types; gives what the compiler says.
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
    // Where the build script had the bridge's header written.
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
