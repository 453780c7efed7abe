//! `potluck.h` is what cbindgen makes of the source. `POTLUCK_WRITE=1` writes it.

use std::fs;
use std::path::Path;

#[test]
fn the_header_is_that_of_the_source() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("a config");
    let bindings = cbindgen::generate_with_config(folder, config).expect("a header");
    let mut made = Vec::new();
    bindings.write(&mut made);
    let file = folder.join("include/potluck.h");
    if std::env::var_os("POTLUCK_WRITE").is_some() {
        fs::create_dir_all(folder.join("include")).expect("a folder");
        fs::write(&file, &made).expect("it can be written");
    }
    let kept = fs::read(&file).expect("include/potluck.h");
    let is_same = kept == made;
    assert!(is_same, "run POTLUCK_WRITE=1 cargo test -p potluck-capi --test header");
}
