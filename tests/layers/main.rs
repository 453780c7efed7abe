//! The layer rule of src/: imports point downward, files form no circles, and the lower
//! layers are pure.
//!
//! A layer is a folder of `src/`, or a file beside `lib.rs`. [`LAYERS`] lists them from low to
//! high. A file may import from its own layer and from lower ones. A re-export counts as the file
//! that defines the item. Imports form no circle, neither among layers nor among files. A
//! pure file uses no clock, socket, file, thread or global random source. No file reads the wall
//! clock, which people and time servers set. Code for tests alone is exempt. `lib.rs` exports
//! at most forty names outside of its modules. Tests at the bottom of a file have at most
//! [`TEST_LINES_MAX`] lines, and tests beside the code have a place that CONTRIBUTING.md names.

mod errors_page;
mod imports;
mod parser;
mod places;
mod rules;
mod tests;

use imports::Crate;
use parser::{long_test_modules, root_names, tokens};
use places::{has_tests, is_place};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Which files of a layer may use the operating system.
#[derive(Debug, Clone, Copy)]
enum Impure {
    /// None: all are pure.
    None,
    /// These, each with the files below it. All others are pure.
    Only(&'static [&'static str]),
    /// All.
    All,
}

type Layers<'a> = &'a [(&'a str, Impure)];

/// From low to high.
const LAYERS: Layers<'static> = &[
    ("wire", Impure::None),
    ("trace", Impure::None),
    (
        "identity",
        Impure::Only(&["identity/home.rs", "identity/keystore.rs", "identity/private_file.rs"]),
    ),
    (
        "os",
        Impure::Only(&[
            "os/cores.rs",
            "os/disk.rs",
            "os/host.rs",
            "os/interfaces.rs",
            "os/probe.rs",
            "os/route.rs",
            "os/shared_memory.rs",
            "os/suspend.rs",
            "os/thread.rs",
        ]),
    ),
    ("memory", Impure::None),
    ("protocol", Impure::None),
    ("compression", Impure::None),
    ("topology", Impure::None),
    (
        "link",
        Impure::Only(&[
            "link/control.rs",
            "link/data.rs",
            "link/establish.rs",
            "link/frame.rs",
            "link/low_water.rs",
            "link/memory.rs",
            "link/pipelined_writer.rs",
            "link/rings.rs",
            "link/tcp.rs",
            "link/transport.rs",
            "link/unacknowledged.rs",
        ]),
    ),
    ("relay", Impure::Only(&["relay/tunnel.rs"])),
    (
        "discovery",
        Impure::Only(&["discovery/fixed.rs", "discovery/mdns.rs", "discovery/memory.rs"]),
    ),
    ("pairing", Impure::Only(&["pairing/inviter.rs", "pairing/seeker.rs", "pairing/talk.rs"])),
    ("report", Impure::None),
    ("election", Impure::None),
    ("collective", Impure::Only(&["collective/board/view_board.rs"])),
    ("gloo_ffi", Impure::Only(&["gloo_ffi/p2p/endpoint.rs"])),
    ("session", Impure::All),
    ("node", Impure::All),
    ("api", Impure::All),
    ("sim", Impure::All),
];

/// Paths that pure files must not contain outside of tests, compared word by word with normalized
/// paths.
const IMPURE: [&str; 9] = [
    "tokio",
    "std::net::Tcp",
    "std::net::Udp",
    "TcpStream",
    "Instant::now",
    "std::fs",
    "std::thread",
    "thread_rng",
    "getrandom",
];

/// No file but [`CLOCK_FILE`] may contain these: a step of the wall clock must change nothing.
const WALL_CLOCK: [&str; 2] = ["SystemTime", "ClockId::Realtime"];

/// It reads the wall clock for people who compare it.
const CLOCK_FILE: &str = "os/wall_clock.rs";

/// Prints the figures of the imports. For comparison with another version, whose `src/` the
/// variable names: `POTLUCK_OTHER_SRC=../older/src cargo test --test layers -- --nocapture`.
#[test]
fn src_keeps_the_layer_rule() {
    let crate_ = crate_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    println!("imports: {}", crate_.figures());
    if let Some(other) = std::env::var_os("POTLUCK_OTHER_SRC") {
        println!("imports of the other: {}", crate_in(Path::new(&other)).figures());
    }
    let faults = crate_.faults(LAYERS);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_root_exports_at_most_forty_names() {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let names = root_names(&tokens(&fs::read_to_string(lib).expect("readable source")));
    assert!((1..=40).contains(&names), "{names} names: others belong into a module");
}

/// More lines of tests have a file of their own, see CONTRIBUTING.md.
const TEST_LINES_MAX: usize = 150;

#[test]
fn long_tests_have_a_file_of_their_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = BTreeMap::new();
    for folder in ["src", "cli/src", "benches/src", "harness/src"] {
        read_folder(&root.join(folder), &format!("{folder}/"), &mut sources);
    }
    let long: Vec<String> = sources
        .iter()
        .flat_map(|(file, text)| {
            let modules = long_test_modules(text, TEST_LINES_MAX);
            modules
                .into_iter()
                .map(move |(name, lines)| format!("{file}: {name} has {lines} lines"))
        })
        .collect();
    assert!(long.is_empty(), "move these to files of their own:\n{}\n", long.join("\n"));
}

/// Folders in which tests stand beside the code, by the table in CONTRIBUTING.md.
const BESIDE_CODE: [&str; 8] = [
    "src/",
    "cli/src/",
    "benches/src/",
    "harness/src/",
    "foreign/src/",
    "capi/src/",
    "mpi/src/",
    "python/src/",
];

#[test]
fn tests_beside_the_code_have_one_of_the_places_for_them() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = BTreeMap::new();
    for folder in BESIDE_CODE {
        read_folder(&root.join(folder), folder, &mut sources);
    }
    let tested = sources.iter().filter(|(_, text)| has_tests(text));
    let astray: Vec<&str> = tested
        .filter(|(file, text)| !is_place(file, text, &|other| sources.contains_key(other)))
        .map(|(file, _)| file.as_str())
        .collect();
    assert!(astray.is_empty(), "tests in other places than CONTRIBUTING.md names: {astray:?}");
}

/// The crate whose `src/` is this folder.
fn crate_in(src: &Path) -> Crate {
    let mut sources = BTreeMap::new();
    read_folder(src, "", &mut sources);
    assert!(sources.contains_key("lib.rs"), "no lib.rs in {}", src.display());
    Crate::build(&sources)
}

fn read_folder(folder: &Path, prefix: &str, sources: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() {
            read_folder(&path, &format!("{prefix}{name}/"), sources);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).expect("readable source");
            sources.insert(format!("{prefix}{name}"), text);
        }
    }
}
