//! The layer rule of src/: imports point downward, and the lower layers are pure.
//!
//! Every file names its layer in its first line, `//! Layer: Core.`. From low to high: Words, Core,
//! Doors, Shells, Host, Face. A path `crate::…` or `super::…` may lead to the same layer or to a
//! lower one. A re-export counts as the file that defines the item. Words and Core use no clock,
//! socket, file, thread or global random source. No layer reads the wall clock, which people and
//! time servers set. Code under `#[cfg(test)]` is exempt.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Words,
    Core,
    Doors,
    Shells,
    Host,
    Face,
}

const LAYERS: [(&str, Layer); 6] = [
    ("Words", Layer::Words),
    ("Core", Layer::Core),
    ("Doors", Layer::Doors),
    ("Shells", Layer::Shells),
    ("Host", Layer::Host),
    ("Face", Layer::Face),
];

/// Paths that Words and Core must not contain outside of tests, compared word by word with
/// normalized paths.
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

/// No layer may contain these: a step of the wall clock must change nothing.
const WALL_CLOCK: [&str; 2] = ["SystemTime", "ClockId::Realtime"];

#[test]
fn src_keeps_the_house_rule() {
    let mut sources = BTreeMap::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    read_folder(&src, "", &mut sources);
    assert!(!sources.is_empty(), "no source files under {}", src.display());
    let faults = House::build(&sources).faults();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
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

/// All files of src/ by module path: `["election", "machine"]` is `election/machine.rs`, `[]` is
/// `lib.rs`.
struct House {
    rooms: BTreeMap<Vec<String>, Room>,
}

struct Room {
    file: String,
    /// `None` if the first line names no layer.
    layer: Option<Layer>,
    tokens: Vec<Token>,
    uses: Vec<Use>,
    /// Path prefixes of files that exist only for tests, as declared by `#[cfg(test)] mod tests;`.
    test_files: Vec<String>,
}

/// One leaf of a `use`: `pub(crate) use session::Session as S` imports `session::Session` under the
/// name `S`.
struct Use {
    path: Vec<String>,
    name: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

impl House {
    fn build(sources: &BTreeMap<String, String>) -> House {
        let room = |(file, text): (&String, &String)| {
            let all = tokens(text);
            let tokens = without_tests(&all);
            let room = Room {
                test_files: test_files(file, &all),
                file: file.clone(),
                layer: declared_layer(text),
                uses: uses(&tokens),
                tokens,
            };
            (module_path(file), room)
        };
        House { rooms: sources.iter().map(room).collect() }
    }

    fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        for (module, room) in &self.rooms {
            let Some(layer) = room.layer else {
                let names = LAYERS.map(|(name, _)| name).join("|");
                faults.push(format!(
                    "src/{}:1: the first line is not `//! Layer: {names}.`",
                    room.file
                ));
                continue;
            };
            if module.is_empty() || self.for_tests_only(&room.file) {
                continue; // lib.rs re-exports everything
            }
            self.upward_arrows(module, room, layer, &mut faults);
            forbidden_words(room, layer, &WALL_CLOCK, &mut faults);
            if layer <= Layer::Core {
                forbidden_words(room, layer, &IMPURE, &mut faults);
            }
        }
        faults
    }

    fn for_tests_only(&self, file: &str) -> bool {
        let mut all = self.rooms.values().flat_map(|room| &room.test_files);
        all.any(|start| file.starts_with(start))
    }

    fn upward_arrows(
        &self,
        module: &[String],
        room: &Room,
        layer: Layer,
        faults: &mut Vec<String>,
    ) {
        for (path, line) in inner_paths(&room.tokens, module) {
            let target = self.resolve(&path);
            let Some(above) = target.layer.filter(|above| *above > layer) else {
                continue;
            };
            let fault = format!(
                "src/{}:{line}: {layer:?} uses crate::{}, which is {above:?} (src/{})",
                room.file,
                path.join("::"),
                target.file
            );
            if !faults.contains(&fault) {
                faults.push(fault);
            }
        }
    }

    /// The file that defines the item of a path: follows modules as far as possible, then
    /// re-exports.
    fn resolve(&self, path: &[String]) -> &Room {
        let mut path = path.to_vec();
        // A bound for chains of re-exports, in case of a cycle.
        for _ in 0..16 {
            let (depth, room) = self.deepest(&path);
            let Some(name) = path.get(depth) else {
                return room;
            };
            let Some(found) = self.re_export(&path[..depth], room, name) else {
                return room;
            };
            path = [found, path[depth + 1..].to_vec()].concat();
        }
        self.deepest(&path).1
    }

    fn deepest(&self, path: &[String]) -> (usize, &Room) {
        let fitting = (0..=path.len()).rev();
        let found = fitting.filter_map(|n| Some((n, self.rooms.get(&path[..n])?))).next();
        found.expect("src/lib.rs is a room")
    }

    /// The path from the crate's root from which module `at` imports `name`; `None` if it does not
    /// import it.
    fn re_export(&self, at: &[String], room: &Room, name: &str) -> Option<Vec<String>> {
        let named = room.uses.iter().find(|u| u.name == name);
        if let Some(found) = named {
            return self.absolute(at, &found.path);
        }
        // For `use session::*`: the glob-imported module that defines the name.
        room.uses.iter().filter(|u| u.name == "*").find_map(|star| {
            let module = self.absolute(at, &star.path)?;
            let has = |t: &[Token]| t[1].text == name && DEFINES.contains(&t[0].text.as_str());
            let defines = self.rooms.get(&module)?.tokens.windows(2).any(has);
            defines.then(|| [module, vec![name.to_string()]].concat())
        })
    }

    fn absolute(&self, at: &[String], path: &[String]) -> Option<Vec<String>> {
        let (base, rest) = match path.first()?.as_str() {
            "crate" => (&[][..], &path[1..]),
            "self" => (at, &path[1..]),
            "super" => (&at[..at.len().checked_sub(1)?], &path[1..]),
            _ => (at, path),
        };
        let absolute = [base, rest].concat();
        // Names of other crates do not resolve here.
        (self.deepest(&absolute).0 > base.len()).then_some(absolute)
    }
}

const DEFINES: [&str; 8] = ["struct", "enum", "trait", "fn", "type", "const", "static", "union"];

fn forbidden_words(room: &Room, layer: Layer, words: &[&str], faults: &mut Vec<String>) {
    for (path, line) in all_paths(&room.tokens) {
        for word in words {
            if says(&path, word) {
                faults.push(format!("src/{}:{line}: {layer:?} says `{word}`", room.file));
            }
        }
    }
}

/// Whether `path` contains the words of `forbidden` in sequence. The last word is a prefix:
/// `std::net::Tcp` matches `TcpStream`.
fn says(path: &[String], forbidden: &str) -> bool {
    let words: Vec<&str> = forbidden.split("::").collect();
    let (last, first) = words.split_last().expect("split gives at least one word");
    path.windows(words.len()).any(|w| {
        let ends = if words.len() == 1 {
            w[first.len()] == *last
        } else {
            w[first.len()].starts_with(last)
        };
        ends && first.iter().zip(w).all(|(a, b)| a == b)
    })
}

fn module_path(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let mut path: Vec<String> = stem.split('/').map(String::from).collect();
    if path.last().is_some_and(|last| last == "mod") || stem == "lib" {
        path.pop();
    }
    path
}

fn declared_layer(text: &str) -> Option<Layer> {
    let first = text.lines().next()?.strip_prefix("//! Layer: ")?;
    let name = first.trim_end().strip_suffix('.')?;
    LAYERS.iter().find(|(n, _)| *n == name).map(|(_, layer)| *layer)
}

/// Every path into this crate, in a `use` or elsewhere, from the crate's root: `crate::…`, and
/// `super::…` as seen from `module`.
fn inner_paths(tokens: &[Token], module: &[String]) -> Vec<(Vec<String>, usize)> {
    let from_root = |(path, line): (Vec<String>, usize)| {
        let (first, rest) = path.split_first()?;
        let base = match first.as_str() {
            "crate" => &[],
            "super" => &module[..module.len().checked_sub(1)?],
            _ => return None,
        };
        // `pub(crate)` and `pub(super)` contain paths of one word.
        (!rest.is_empty()).then(|| ([base, rest].concat(), line))
    };
    all_paths(tokens).into_iter().filter_map(from_root).collect()
}

/// Every path `a::b::c`, with brace groups expanded.
fn all_paths(tokens: &[Token]) -> Vec<(Vec<String>, usize)> {
    let mut found = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        if is_word(&tokens[i]) {
            i = spread(tokens, i, &[], &mut found);
        } else {
            i += 1;
        }
    }
    found
}

/// Reads the path at `i`, pushes its leaves, and returns the index after it.
fn spread(
    tokens: &[Token],
    mut i: usize,
    head: &[String],
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let mut path = head.to_vec();
    let line = tokens[i].line;
    loop {
        path.push(tokens[i].text.clone());
        i += 1;
        if !at(tokens, i, "::") {
            break;
        }
        i += 1;
        match tokens.get(i) {
            Some(next) if is_word(next) || next.text == "*" => {}
            Some(next) if next.text == "{" => return spread_group(tokens, i + 1, &path, found),
            _ => break, // a turbofish
        }
    }
    found.push((path, line));
    i
}

fn spread_group(
    tokens: &[Token],
    mut i: usize,
    head: &[String],
    found: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    while i < tokens.len() && !at(tokens, i, "}") {
        if at(tokens, i, "as") {
            i += 2; // the new name is not part of the path
        } else if is_word(&tokens[i]) || at(tokens, i, "*") {
            i = spread(tokens, i, head, found);
        } else {
            i += 1;
        }
    }
    i + 1
}

/// The leaves of all `use` items, with the names that they import.
fn uses(tokens: &[Token]) -> Vec<Use> {
    let mut found = Vec::new();
    let starts = (0..tokens.len()).filter(|i| at(tokens, *i, "use"));
    for start in starts {
        let length = tokens[start..].iter().position(|t| t.text == ";");
        let item = &tokens[start + 1..start + length.unwrap_or(1)];
        use_leaves(item, 0, &[], &mut found);
    }
    found
}

fn use_leaves(tokens: &[Token], mut i: usize, head: &[String], found: &mut Vec<Use>) -> usize {
    let mut path = head.to_vec();
    while i < tokens.len() && !at(tokens, i, ",") && !at(tokens, i, "}") && !at(tokens, i, "as") {
        if at(tokens, i, "{") {
            i += 1;
            while i < tokens.len() && !at(tokens, i, "}") {
                i = use_leaves(tokens, i, &path, found);
                i += usize::from(at(tokens, i, ","));
            }
            return i + 1;
        }
        if !at(tokens, i, "::") {
            path.push(tokens[i].text.clone());
        }
        i += 1;
    }
    let mut name = path.last().cloned().unwrap_or_default();
    if at(tokens, i, "as") {
        name = tokens.get(i + 1).map(|t| t.text.clone()).unwrap_or_default();
        i += 2;
    }
    if name == "self" || name == "*" {
        path.pop(); // `use a::b::{self}` names b
        name = if name == "*" { name } else { path.last().cloned().unwrap_or_default() };
    }
    found.push(Use { path, name });
    i
}

fn at(tokens: &[Token], i: usize, text: &str) -> bool {
    tokens.get(i).is_some_and(|t| t.text == text)
}

fn is_word(token: &Token) -> bool {
    let first = token.text.chars().next();
    first.is_some_and(|c| c.is_alphabetic() || c == '_') && token.text != "as"
}

/// Removes all items under `#[cfg(test)]`, or under a `cfg` that requires it.
fn without_tests(tokens: &[Token]) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut i = 0;
    while i < tokens.len() {
        match test_attribute(tokens, i) {
            Some(end) => i = item_end(tokens, end),
            None => {
                kept.push(tokens[i].clone());
                i += 1;
            }
        }
    }
    kept
}

/// The files declared by `mod name;` under `#[cfg(test)]` in `file`: `folder/name.rs` and all of
/// `folder/name/`, or the file named by `#[path = "…"]`.
fn test_files(file: &str, tokens: &[Token]) -> Vec<String> {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let own = module_path(file).join("/");
    let join =
        |folder: &str, rest: &str| format!("{folder}/{rest}").trim_start_matches('/').to_string();
    let behind = (0..tokens.len()).filter_map(|i| test_attribute(tokens, i));
    let leads = |start: usize| {
        let item = &tokens[start..item_end(tokens, start)];
        let name = item.windows(3).find(|w| w[0].text == "mod" && w[2].text == ";")?;
        let path = item.windows(3).find(|w| w[0].text == "path" && w[1].text == "=");
        Some(match path {
            Some(path) => vec![join(folder, path[2].text.trim_matches('"'))],
            None => [".rs", "/"].map(|end| join(&own, &(name[1].text.clone() + end))).to_vec(),
        })
    };
    behind.filter_map(leads).flatten().collect()
}

/// The index after the attribute at `i` if it is `#[cfg(test)]` or `#[cfg(all(test, …))]`.
fn test_attribute(tokens: &[Token], i: usize) -> Option<usize> {
    let starts = [
        &["#", "[", "cfg", "(", "test", ")"][..],
        &["#", "[", "cfg", "(", "all", "(", "test", ","],
    ];
    let is = |start: &[&str]| start.iter().enumerate().all(|(k, text)| at(tokens, i + k, text));
    starts.iter().any(|start| is(start)).then(|| closing(tokens, i + 1))
}

/// The index after the item at `i`: after its `;` or its braces, whichever comes first.
fn item_end(tokens: &[Token], mut i: usize) -> usize {
    while i < tokens.len() {
        match tokens[i].text.as_str() {
            ";" | "," => return i + 1,
            "{" => return closing(tokens, i),
            "(" | "[" => i = closing(tokens, i),
            _ => i += 1,
        }
    }
    i
}

/// The index after the bracket that closes the one at `i`.
fn closing(tokens: &[Token], mut i: usize) -> usize {
    let mut depth = 0usize;
    while i < tokens.len() {
        match tokens[i].text.as_str() {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        i += 1;
        if depth == 0 {
            break;
        }
    }
    i
}

/// The words, punctuation and plain strings of Rust source, without comments, raw strings,
/// character literals and lifetimes.
fn tokens(text: &str) -> Vec<Token> {
    let c: Vec<char> = text.chars().collect();
    let (mut found, mut i, mut line) = (Vec::new(), 0, 1);
    while i < c.len() {
        let (end, text) = token_at(&c, i);
        if let Some(text) = text {
            found.push(Token { text, line });
        }
        line += c[i..end].iter().filter(|c| **c == '\n').count();
        i = end;
    }
    found
}

fn token_at(c: &[char], i: usize) -> (usize, Option<String>) {
    let next = c.get(i + 1).copied().unwrap_or(' ');
    let word_end = |from: usize| {
        (from..c.len()).find(|k| !(c[*k].is_alphanumeric() || c[*k] == '_')).unwrap_or(c.len())
    };
    match (c[i], next) {
        ('/', '/') => ((i..c.len()).find(|k| c[*k] == '\n').unwrap_or(c.len()), None),
        ('/', '*') => (comment_end(c, i), None),
        ('"', _) => (string_end(c, i), Some(c[i..string_end(c, i)].iter().collect())),
        ('r', '"' | '#') | ('b', 'r') if raw_string_end(c, i).is_some() => {
            (raw_string_end(c, i).unwrap_or(i + 1), None)
        }
        ('r', '#') => (word_end(i + 2), Some(c[i + 2..word_end(i + 2)].iter().collect())),
        ('\'', _) => (char_or_lifetime_end(c, i), None),
        (':', ':') => (i + 2, Some("::".into())),
        (first, _) if first.is_alphanumeric() || first == '_' => {
            (word_end(i), Some(c[i..word_end(i)].iter().collect()))
        }
        (first, _) if first.is_whitespace() => (i + 1, None),
        (first, _) => (i + 1, Some(first.into())),
    }
}

fn comment_end(c: &[char], mut i: usize) -> usize {
    let mut depth = 0usize;
    while i + 1 < c.len() {
        match (c[i], c[i + 1]) {
            ('/', '*') => (depth, i) = (depth + 1, i + 2),
            ('*', '/') => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    c.len()
}

fn string_end(c: &[char], mut i: usize) -> usize {
    i += 1;
    while i < c.len() && c[i] != '"' {
        i += if c[i] == '\\' { 2 } else { 1 };
    }
    (i + 1).min(c.len())
}

/// The end of `r"…"`, `r#"…"#` or `br"…"`; `None` for anything else, for example `r#type`.
fn raw_string_end(c: &[char], i: usize) -> Option<usize> {
    let mut k = i + if c[i] == 'b' { 2 } else { 1 };
    let hashes = c[k.min(c.len())..].iter().take_while(|c| **c == '#').count();
    k += hashes;
    if c.get(k) != Some(&'"') {
        return None;
    }
    let closes = |k: usize| {
        c[k] == '"' && c[k + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
    };
    Some((k + 1..c.len()).find(|k| closes(*k)).map_or(c.len(), |k| k + 1 + hashes))
}

fn char_or_lifetime_end(c: &[char], i: usize) -> usize {
    if c.get(i + 1) == Some(&'\\') {
        return (i + 3..c.len()).find(|k| c[*k] == '\'').map_or(c.len(), |k| k + 1);
    }
    if c.get(i + 2) == Some(&'\'') { i + 3 } else { i + 1 }
}

// ---- tests of this test ----

fn faults(files: &[(&str, &str)]) -> Vec<String> {
    let mut sources: BTreeMap<String, String> =
        files.iter().map(|(file, text)| (file.to_string(), text.to_string())).collect();
    sources.entry("lib.rs".into()).or_insert_with(|| "//! Layer: Face.\n".into());
    House::build(&sources).faults()
}

const LINK: [(&str, &str); 3] = [
    (
        "link/mod.rs",
        "//! Layer: Doors.\nmod session;\nmod frame;\npub(crate) use session::Session;\npub use frame::*;",
    ),
    ("link/session.rs", "//! Layer: Shells.\npub(crate) struct Session;"),
    ("link/frame.rs", "//! Layer: Words.\npub struct Frame;"),
];

fn faults_beside_link(file: &str, text: &str) -> Vec<String> {
    faults(&[&LINK[..], &[(file, text)]].concat())
}

#[test]
fn an_upward_arrow_is_caught_with_its_line() {
    let found =
        faults_beside_link("view.rs", "//! Layer: Words.\n\nuse crate::link::session::Session;\n");
    assert_eq!(
        found,
        [
            "src/view.rs:3: Words uses crate::link::session::Session, which is Shells (src/link/session.rs)"
        ]
    );
}

#[test]
fn a_re_export_counts_as_the_file_that_defines_it() {
    let core =
        |line: &str| faults_beside_link("plan.rs", &format!("//! Layer: Core.\n{line}\n")).len();
    assert_eq!(core("use crate::link::Session;"), 1);
    assert_eq!(core("use crate::link::Session as S;"), 1);
    assert_eq!(core("use crate::link::Frame;"), 0, "passed on by a star");
    assert_eq!(core("use crate::link::SomethingOfTheDoor;"), 1, "the door itself is above Core");
    let via_lib = ("lib.rs", "//! Layer: Face.\npub use crate::link::{Frame, Session};");
    let user = |name: &str| format!("//! Layer: Core.\nuse crate::{name};");
    let with = |name: &str| {
        faults(&[&LINK[..], &[via_lib, ("plan.rs", user(name).as_str())]].concat()).len()
    };
    assert_eq!((with("Frame"), with("Session")), (0, 1));
}

#[test]
fn a_neighbour_in_the_same_folder_is_an_arrow_too() {
    let core = |line: &str| {
        faults_beside_link("link/queue.rs", &format!("//! Layer: Core.\n{line}\n")).len()
    };
    assert_eq!(core("use super::session::Session;"), 1);
    assert_eq!(core("use super::{frame::Frame, Session};"), 1);
    assert_eq!(core("use super::Frame;"), 0);
}

#[test]
fn a_door_may_pass_on_what_lives_above_it_in_its_own_folder() {
    assert_eq!(faults(&LINK), Vec::<String>::new());
}

#[test]
fn arrows_hide_in_braces_and_in_code() {
    let found = faults_beside_link(
        "plan.rs",
        "//! Layer: Core.\nuse crate::{view::{self, View}, link::{frame::Frame,\n session::Session as S}};\n\
         fn f() { let _ = crate::link::session::Session::<u8>::new(); }",
    );
    let lines: Vec<&str> = found.iter().map(|f| f.split(": ").next().unwrap_or("")).collect();
    // `view` is not a file here, so the path resolves to lib.rs: Face.
    assert_eq!(
        lines,
        ["src/plan.rs:2", "src/plan.rs:2", "src/plan.rs:3", "src/plan.rs:4"],
        "{found:#?}"
    );
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
        for layer in ["Words", "Core"] {
            let found = faults(&[("a.rs", &format!("//! Layer: {layer}.\n{line}\n"))]);
            assert!(
                found.iter().any(|f| f.starts_with("src/a.rs:2: ")),
                "{layer}: {line}: {found:?}"
            );
        }
        assert!(faults(&[("a.rs", &format!("//! Layer: Shells.\n{line}\n"))]).is_empty());
    }
}

#[test]
fn the_wall_clock_is_forbidden_in_every_layer() {
    for (layer, _) in LAYERS {
        for line in ["use std::time::SystemTime;", "fn f() { clock_gettime(ClockId::Realtime); }"] {
            let found = faults_beside_link("plan.rs", &format!("//! Layer: {layer}.\n{line}\n"));
            assert_eq!(found.len(), 1, "{layer}: {line}: {found:?}");
        }
    }
}

#[test]
fn tests_comments_and_texts_are_free() {
    let text = "//! Layer: Core.\n// tokio\n/* use crate::link::Session; /* std::fs */ */\n\
        const A: &str = \"tokio \\\" std::fs\"; const B: &str = r#\"getrandom \" tokio\"#;\n\
        const C: char = '\"'; fn f<'a>(x: &'a str) {}\n\
        #[cfg(test)]\nmod tests { use crate::link::Session; fn g() { std::fs::read(\"}\"); } }\n\
        #[cfg(all(test, unix))]\nuse std::thread;\n";
    assert_eq!(faults_beside_link("plan.rs", text), Vec::<String>::new());
    // Code after the test module is checked again.
    let after = format!("{text}\nuse std::fs;\n");
    assert_eq!(faults_beside_link("plan.rs", &after).len(), 1);
}

#[test]
fn a_file_that_exists_for_tests_only_is_free() {
    let tests = "//! Layer: Core.\nuse crate::link::Session;\nuse std::fs;\n";
    let found = |parent: &str| {
        let room = ("plan/mod.rs", parent);
        faults(&[&LINK[..], &[room, ("plan/tests.rs", tests)]].concat()).len()
    };
    assert_eq!(found("//! Layer: Core.\n#[cfg(test)]\nmod tests;\n"), 0);
    assert_eq!(found("//! Layer: Core.\n#[cfg(test)]\npub(crate) mod tests;\n"), 0);
    assert_eq!(found("//! Layer: Core.\nmod tests;\n"), 2);

    let elsewhere = |attribute: &str| {
        let plan =
            format!("//! Layer: Core.\n{attribute}\n#[path = \"plan_tests.rs\"]\nmod tests;\n");
        faults(&[&LINK[..], &[("a/plan.rs", plan.as_str()), ("a/plan_tests.rs", tests)]].concat())
            .len()
    };
    assert_eq!((elsewhere("#[cfg(test)]"), elsewhere("#[cfg(unix)]")), (0, 2));
}

#[test]
fn names_that_only_contain_a_forbidden_word_are_fine() {
    let text = "//! Layer: Core.\nfn tokios() { let getrandomly = std::net::IpAddr::V4; }\npub(crate) struct A;\n";
    assert!(faults(&[("a.rs", text)]).is_empty());
}

#[test]
fn a_file_without_a_layer_is_caught() {
    for text in ["", "//! Story.\n//! Layer: Core.\n", "//! Layer: Cellar.\n", "//! Layer: Core\n"]
    {
        let found = faults(&[("a.rs", text)]);
        assert!(found.len() == 1 && found[0].starts_with("src/a.rs:1: "), "{found:?}");
    }
}
