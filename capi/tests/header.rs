//! `potluck.h` and .NET's `NativeMethods.g.cs` are made from the source by cbindgen and csbindgen.
//! `POTLUCK_WRITE=1` writes them.

use std::fs;
use std::path::{Path, PathBuf};

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Holds, or writes, a file of the repository.
fn is_kept(file: &Path, made: &[u8]) {
    if std::env::var_os("POTLUCK_WRITE").is_some() {
        fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
        fs::write(file, made).expect("it can be written");
    }
    let is_same = fs::read(file).is_ok_and(|kept| kept == made);
    let file = file.display();
    assert!(is_same, "{file}: run POTLUCK_WRITE=1 cargo test -p potluck-capi --test header");
}

#[test]
fn the_header_is_that_of_the_source() {
    let config = cbindgen::Config::from_file(package().join("cbindgen.toml")).expect("a config");
    let bindings = cbindgen::generate_with_config(package(), config).expect("a header");
    let mut made = Vec::new();
    bindings.write(&mut made);
    is_kept(&package().join("include/potluck.h"), &made);
}

#[test]
fn the_methods_of_dotnet_are_those_of_the_source() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("NativeMethods.g.cs");
    let mut sources: Vec<PathBuf> = fs::read_dir(package().join("src"))
        .expect("the source")
        .map(|entry| entry.expect("a file").path())
        .collect();
    sources.sort();
    let mut builder = csbindgen::Builder::default();
    for source in sources {
        builder = builder.input_extern_file(source);
    }
    builder
        .csharp_dll_name("potluck")
        .csharp_namespace("PotluckNet")
        .csharp_class_name("NativeMethods")
        .csharp_use_function_pointer(false)
        .generate_csharp_file(&file)
        .expect("it is made");
    let made = fs::read_to_string(&file).expect("it is made");
    // A name of C# 9; the rest is of C# 7, which Mono has.
    let made = made.replacen("using System;", "using System;\nusing nuint = System.UIntPtr;", 1);
    is_kept(&package().join("dotnet/NativeMethods.g.cs"), made.as_bytes());
}
