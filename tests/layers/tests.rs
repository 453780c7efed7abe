//! Tests of the rules, on sources of a few lines.

use crate::imports::Crate;
use crate::parser::{long_test_modules, root_names, tokens};
use crate::{Impure, Layers};
use std::collections::BTreeMap;

/// From low to high.
const SOME: Layers<'static> = &[
    ("words", Impure::None),
    ("plan", Impure::None),
    ("link", Impure::Only(&["link/session.rs", "link/mod.rs"])),
    ("top", Impure::All),
];

fn faults(files: &[(&str, &str)]) -> Vec<String> {
    let mut sources: BTreeMap<String, String> =
        files.iter().map(|(file, text)| (file.to_string(), text.to_string())).collect();
    for (file, text) in [("lib.rs", ""), LINK[0], LINK[1]] {
        sources.entry(file.into()).or_insert_with(|| text.into());
    }
    Crate::build(&sources).faults(SOME)
}

const LINK: [(&str, &str); 4] = [
    (
        "link/mod.rs",
        "mod session;\nmod frame;\npub(crate) use session::Session;\n\
         pub use crate::words::*;\npub struct Door;",
    ),
    ("link/session.rs", "pub(crate) struct Session;"),
    ("link/frame.rs", "pub struct Other;"),
    ("words.rs", "pub struct Frame;"),
];

fn faults_beside_link(file: &str, text: &str) -> Vec<String> {
    faults(&[&LINK[..], &[(file, text)]].concat())
}

#[test]
fn an_upward_arrow_is_caught_with_its_line() {
    let found = faults_beside_link("plan.rs", "\n\nuse crate::link::session::Session;\n");
    assert_eq!(
        found,
        ["src/plan.rs:3: plan uses crate::link::session::Session, which is above it \
             (src/link/session.rs)"]
    );
}

#[test]
fn a_re_export_counts_as_the_file_that_defines_it() {
    let plan = |line: &str| faults_beside_link("plan.rs", line).len();
    assert_eq!(plan("use crate::link::Session;"), 1);
    assert_eq!(plan("use crate::link::Session as S;"), 1);
    assert_eq!(plan("use crate::link::Frame;"), 0, "passed on by a star, defined below");
    assert_eq!(plan("use crate::link::Door;"), 1, "the door itself is above");
    assert_eq!(plan("use crate::Version;"), 1, "what lib.rs defines is above all layers");
    let via_lib = ("lib.rs", "mod link;\npub use link::{Frame, Session};");
    let with = |name: &str| {
        let user = format!("use crate::{name};");
        faults(&[&LINK[..], &[via_lib, ("plan.rs", user.as_str())]].concat()).len()
    };
    assert_eq!((with("Frame"), with("Session")), (0, 1));
}

#[test]
fn a_door_may_pass_on_what_lives_behind_it() {
    assert_eq!(faults(&LINK), Vec::<String>::new());
}

#[test]
fn files_that_import_each_other_are_caught() {
    let circle = |one: &str, other: &str| {
        let plan =
            [("plan/mod.rs", "mod one;\nmod other;\npub use one::One;\npub use other::Other;")];
        faults(&[&LINK[..], &plan, &[("plan/one.rs", one), ("plan/other.rs", other)]].concat())
    };
    let found = ["a circle: plan/one.rs, plan/other.rs"];
    assert_eq!(circle("use super::Other;", "use super::one::One;"), found);
    assert_eq!(circle("fn f(x: super::Other) {}", "use crate::plan::{One, X};"), found);
    assert_eq!(circle("use super::{Other, words::X};", "use super::one::One;"), found);
    assert_eq!(circle("use super::Other;", ""), [""; 0]);
    assert_eq!(circle("use super::Other;", "#[cfg(test)]\nuse super::One;"), [""; 0]);
}

#[test]
fn a_file_and_one_below_it_are_a_circle_if_they_import_each_other() {
    let circle =
        |parent: &str, child: &str| faults_beside(&[("plan.rs", parent), ("plan/part.rs", child)]);
    let found = ["a circle: plan.rs, plan/part.rs"];
    assert_eq!(circle("mod part;\nuse part::Part;\nstruct Plan;", "use super::Plan;"), found);
    assert_eq!(circle("mod part;\nfn f() { part::g(); }\nstruct Plan;", "use super::Plan;"), found);
    assert_eq!(circle("mod part;\npub use part::Part;\nstruct Plan;", "use super::Plan;"), [""; 0]);
    let uses_it = "mod part;\npub use part::Part;\nstruct Plan(Part);";
    assert_eq!(circle(uses_it, "use super::Plan;"), found);
    assert_eq!(circle("mod part;\nuse part::Part;\nstruct Plan;", "struct Part;"), [""; 0]);
    let by_module = ("plan.rs", "mod part;\nuse crate::words;\nfn f() { words::deep::g(); }");
    let deep = [("words/deep.rs", "use crate::words::Frame;"), ("words.rs", "pub struct Frame;")];
    assert_eq!(faults_beside(&[&[by_module][..], &deep].concat()), [""; 0]);
}

fn faults_beside(files: &[(&str, &str)]) -> Vec<String> {
    faults(&[&LINK[..], files].concat())
}

#[test]
fn arrows_hide_in_braces_and_in_code() {
    let found = faults_beside_link(
        "plan.rs",
        "use crate::{words::{self, Frame}, link::{frame::{Other},\n session::Session as S}};\n\
         fn f() { let _ = crate::link::session::Session::<u8>::new(); }",
    );
    let lines: Vec<&str> = found.iter().map(|f| f.split(": ").next().unwrap_or("")).collect();
    assert_eq!(lines, ["src/plan.rs:1", "src/plan.rs:1", "src/plan.rs:3"], "{found:#?}");
}

#[test]
fn a_forbidden_word_is_caught() {
    for line in [
        "use tokio::sync::mpsc;",
        "use std::net::TcpListener;",
        "use std::{net::{IpAddr, UdpSocket}};",
        "fn f(s: TcpStream) {}",
        "fn f() { let t = std::time::Instant::now(); }",
        "use std::fs;",
        "fn f() { std::thread::spawn(g); }",
        "fn f() { rand::thread_rng(); }",
        "fn f() { getrandom::fill(&mut b); }",
    ] {
        for file in ["words/a.rs", "link/pure.rs", "link/session_too.rs"] {
            let found = faults_beside_link(file, &format!("\n{line}\n"));
            let begin = format!("src/{file}:2: no pure file may say ");
            assert!(found.iter().any(|f| f.starts_with(&begin)), "{file}: {line}: {found:?}");
        }
        for file in ["link/session.rs", "link/session/a.rs", "top/a.rs"] {
            assert_eq!(faults_beside_link(file, line), [""; 0]);
        }
    }
}

#[test]
fn the_wall_clock_is_forbidden_in_every_layer() {
    for (layer, _) in SOME {
        for line in ["use std::time::SystemTime;", "fn f() { clock_gettime(ClockId::Realtime); }"] {
            let found = faults_beside_link(&format!("{layer}/a.rs"), line);
            assert_eq!(found.len(), 1, "{layer}: {line}: {found:?}");
        }
    }
}

#[test]
fn tests_comments_and_texts_are_free() {
    let text = "// tokio\n/* use crate::link::Session; /* std::fs */ */\n\
        const A: &str = \"tokio \\\" std::fs\"; const B: &str = r#\"getrandom \" tokio\"#;\n\
        const C: char = '\"'; fn f<'a>(x: &'a str) {}\n\
        #[cfg(test)]\nmod tests { use crate::link::Session; fn g() { std::fs::read(\"}\"); } }\n\
        #[cfg(any(fuzzing, test))]\nmod fixtures { use std::fs; }\n\
        #[cfg(all(test, unix))]\nuse std::thread;\n";
    assert_eq!(faults_beside_link("plan.rs", text), [""; 0]);
    // Code after the test module is checked again.
    let after = format!("{text}\nuse std::fs;\n");
    assert_eq!(faults_beside_link("plan.rs", &after).len(), 1);
}

#[test]
fn a_file_that_exists_for_tests_only_is_free() {
    let tests = "use crate::link::Session;\nuse std::fs;\n";
    let found =
        |parent: &str| faults_beside(&[("plan/mod.rs", parent), ("plan/tests.rs", tests)]).len();
    assert_eq!(found("#[cfg(test)]\nmod tests;\n"), 0);
    assert_eq!(found("#[cfg(test)]\npub(crate) mod tests;\n"), 0);
    assert_eq!(found("mod tests;\n"), 2);

    let elsewhere = |attribute: &str| {
        let plan = format!("{attribute}\n#[path = \"a_tests.rs\"]\nmod tests;\n");
        faults_beside(&[("plan/a.rs", plan.as_str()), ("plan/a_tests.rs", tests)]).len()
    };
    assert_eq!((elsewhere("#[cfg(test)]"), elsewhere("#[cfg(unix)]")), (0, 2));
    assert_eq!(elsewhere("#[cfg(any(fuzzing, unix))]"), 2);
}

#[test]
fn names_in_modules_of_the_root_are_not_names_of_the_root() {
    let lib = "pub use a::{B, C};\npub mod d { pub use a::{E, F}; }\nmod g;\npub use a::H;";
    assert_eq!(root_names(&tokens(lib)), 3);
}

#[test]
fn names_that_only_contain_a_forbidden_word_are_fine() {
    let text = "fn tokios() { let getrandomly = std::net::IpAddr::V4; }\npub(crate) struct A;\n";
    assert_eq!(faults_beside_link("plan.rs", text), [""; 0]);
}

#[test]
fn a_file_outside_of_the_list_is_caught_and_so_is_an_entry_without_a_file() {
    assert_eq!(
        faults_beside_link("cellar.rs", ""),
        ["src/cellar.rs: tests/layers lists no such layer"]
    );
    let sources = [("lib.rs", ""), LINK[0]].map(|(file, text)| (file.into(), text.into()));
    let found = Crate::build(&sources.into()).faults(SOME);
    assert_eq!(found, ["no src/link/session.rs"]);
}

#[test]
fn long_tests_at_the_bottom_of_a_file_are_caught() {
    let with = |attributes: &str, lines: usize| {
        format!("fn f() {{\n}}\n\n{attributes}mod tests {{\n{}}}\n", "    x();\n".repeat(lines))
    };
    let long = vec![("tests".to_owned(), 4)];
    assert_eq!(long_test_modules(&with("#[cfg(test)]\n", 4), 3), long);
    assert_eq!(long_test_modules(&with("#[cfg(all(test, unix))]\n#[rustfmt::skip]\n", 4), 3), long);
    assert_eq!(long_test_modules(&with("#[cfg(test)]\n", 3), 3), []);
    assert_eq!(long_test_modules(&with("", 4), 3), []);
}
