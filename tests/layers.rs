//! The layer rule of src/: imports point downward, files form no circles, and the lower
//! layers are pure.
//!
//! A layer is a folder of `src/`, or a file beside `lib.rs`. [`LAYERS`] lists them from low to
//! high. A file may import from its own layer and from lower ones. A re-export counts as the file
//! that defines the item. Imports form no circle among layers, and none among files but for those in
//! [`CIRCLES`]. A pure file
//! uses no clock, socket, file, thread or global random source. No file reads the wall clock, which
//! people and time servers set. Code under `#[cfg(test)]` is exempt. `lib.rs` exports at most forty
//! names outside of its modules.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
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
    ("os", Impure::Only(&["os/disk.rs", "os/interfaces.rs", "os/suspend.rs", "os/thread.rs"])),
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
            "link/outlet.rs",
            "link/tcp.rs",
            "link/transport.rs",
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

/// The circles that are there. An entry goes when its circle does.
const CIRCLES: &[&[&str]] = &[
    // A block of memory may be a finished result, and a result is written into a block.
    &["memory/canvas.rs", "memory/staging.rs"],
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

/// No file may contain these: a step of the wall clock must change nothing.
const WALL_CLOCK: [&str; 2] = ["SystemTime", "ClockId::Realtime"];

#[test]
fn src_keeps_the_layer_rule() {
    let mut sources = BTreeMap::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    read_folder(&src, "", &mut sources);
    assert!(!sources.is_empty(), "no source files under {}", src.display());
    let crate_ = Crate::build(&sources);
    println!("imports: {}", crate_.figures(LAYERS));
    let faults = crate_.faults(LAYERS, CIRCLES);
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn the_root_exports_at_most_forty_names() {
    let lib = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    let names = root_names(&tokens(&fs::read_to_string(lib).expect("readable source")));
    assert!((1..=40).contains(&names), "{names} names: others belong into a module");
}

/// The number of names that `lib.rs` re-exports itself, without those in its modules.
fn root_names(lib: &[Token]) -> usize {
    let mut outside = lib.to_vec();
    let is_module = |tokens: &[Token], i: usize| at(tokens, i, "mod") && at(tokens, i + 2, "{");
    while let Some(start) = (0..outside.len()).find(|i| is_module(&outside, *i)) {
        let end = closing(&outside, start + 2);
        outside.drain(start..end);
    }
    uses(&outside).iter().filter(|u| u.passes_on).count()
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
struct Crate {
    files: BTreeMap<Vec<String>, File>,
}

struct File {
    /// Its path in `src/`.
    name: String,
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
    line: usize,
    /// It is a re-export.
    passes_on: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Token {
    text: String,
    line: usize,
}

impl Crate {
    fn build(sources: &BTreeMap<String, String>) -> Crate {
        let file = |(name, text): (&String, &String)| {
            let all = tokens(text);
            let tokens = without_tests(&all);
            let file = File {
                test_files: test_files(name, &all),
                name: name.clone(),
                uses: uses(&tokens),
                tokens,
            };
            (module_path(name), file)
        };
        Crate { files: sources.iter().map(file).collect() }
    }

    /// The files that are compiled outside of tests, without `lib.rs`, which re-exports everything.
    fn shipped(&self) -> impl Iterator<Item = (&Vec<String>, &File)> {
        let ships = |file: &File| {
            let mut starts = self.files.values().flat_map(|file| &file.test_files);
            !starts.any(|start| file.name.starts_with(start))
        };
        self.files.iter().filter(move |(module, file)| !module.is_empty() && ships(file))
    }

    /// All faults, but for these circles.
    fn faults(&self, layers: Layers<'_>, known: &[&[&str]]) -> Vec<String> {
        let mut faults = Vec::new();
        for (module, file) in self.shipped() {
            let Some(layer) = layer_of(module, layers) else {
                faults.push(format!("src/{}: tests/layers.rs lists no such layer", file.name));
                continue;
            };
            for (path, line) in self.arrows(module, file) {
                let (to, target) = self.resolve(&path);
                if layer_of(to, layers).is_none_or(|above| above > layer) {
                    let (own, path) = (&module[0], path.join("::"));
                    let fault = format!(
                        "src/{}:{line}: {own} uses crate::{path}, which is above it (src/{})",
                        file.name, target.name
                    );
                    faults.push(fault);
                }
            }
            forbidden_words(file, "no file", &WALL_CLOCK, &mut faults);
            if is_pure(&file.name, layers[layer].1) {
                forbidden_words(file, "no pure file", &IMPURE, &mut faults);
            }
        }
        let circles = self.circles();
        let new = circles.iter().filter(|names| !known.contains(&&names[..]));
        faults.extend(new.map(|names| format!("a circle: {}", names.join(", "))));
        let gone = known.iter().filter(|names| !circles.iter().any(|circle| circle == *names));
        faults.extend(gone.map(|names| format!("no circle any more: {}", names.join(", "))));
        let impure = layers.iter().flat_map(|(_, impure)| match impure {
            Impure::Only(names) => *names,
            Impure::None | Impure::All => &[],
        });
        let is_there = |name: &str| self.files.values().any(|file| file.name.starts_with(name));
        faults.extend(impure.filter(|name| !is_there(name)).map(|name| format!("no src/{name}")));
        faults.dedup();
        faults
    }

    /// What the imports look like, in a line.
    fn figures(&self, layers: Layers<'_>) -> String {
        let loose = self.files.keys().filter(|module| module.len() <= 1).count();
        let folders = self.files.values().filter(|file| file.name.matches('/').count() == 1);
        let doors = folders.filter(|file| file.name.ends_with("/mod.rs")).count();
        let root = self.files.get(&[][..]).map_or(0, |lib| root_names(&lib.tokens));
        let circles = self.circles();
        format!(
            "{} layers, {} loose files in src/, {root} names at the root, {} circles of {} files",
            layers.len(),
            loose - doors,
            circles.len(),
            circles.iter().map(Vec::len).sum::<usize>()
        )
    }

    /// All paths of a file that lead to another file of this crate, from the crate's root, with
    /// their lines. A re-export is one only if the file uses the name itself.
    fn arrows(&self, module: &[String], file: &File) -> Vec<(Vec<String>, usize)> {
        let code = without_uses(&file.tokens);
        let is_used = |name: &str| code.iter().any(|token| token.text == name);
        let imports = file.uses.iter().filter(|u| !u.passes_on || is_used(&u.name));
        let imports = imports.map(|u| (u.path.clone(), u.line));
        let paths = all_paths(&code).into_iter().filter(|(path, _)| path.len() > 1);
        let absolute =
            |(path, line): (Vec<String>, usize)| Some((self.absolute(module, &path)?, line));
        imports.chain(paths).filter_map(absolute).collect()
    }

    /// Groups of files that import each other in a circle, each sorted by name.
    fn circles(&self) -> Vec<Vec<&str>> {
        let mut arrows: BTreeMap<&[String], BTreeSet<&[String]>> = BTreeMap::new();
        for (module, file) in self.shipped() {
            let ends = self.arrows(module, file);
            let ends = ends.iter().map(|(path, _)| self.resolve(path).0);
            arrows.insert(module, ends.filter(|end| *end != &module[..]).collect());
        }
        let mut left: BTreeSet<&[String]> = arrows.keys().copied().collect();
        let mut circles = Vec::new();
        while let Some(first) = left.pop_first() {
            let meets = |to: &&&[String]| reached(&arrows, to).contains(first);
            let circle: Vec<&[String]> =
                reached(&arrows, first).iter().filter(meets).copied().collect();
            left.retain(|module| !circle.contains(module));
            if circle.len() > 1 {
                circles.push(circle.iter().map(|module| &self.files[*module].name[..]).collect());
            }
        }
        circles
    }

    /// The file that defines the item of a path, and its module: follows modules as far as
    /// possible, then re-exports.
    fn resolve(&self, path: &[String]) -> (&[String], &File) {
        let mut path = path.to_vec();
        // A bound for chains of re-exports, in case of a cycle.
        for _ in 0..16 {
            let (depth, _) = self.deepest(&path);
            let Some(name) = path.get(depth) else { break };
            let Some(found) = self.re_export(&path[..depth], name) else { break };
            path = [found, path[depth + 1..].to_vec()].concat();
        }
        self.deepest(&path).1
    }

    /// The file of the longest prefix of a path that is a module, and the length of that prefix.
    fn deepest(&self, path: &[String]) -> (usize, (&[String], &File)) {
        let fitting = (0..=path.len()).rev();
        let file = |n: usize| self.files.get_key_value(&path[..n]);
        let found = fitting.filter_map(|n| Some((n, file(n)?))).next();
        let (depth, (module, file)) = found.expect("src/lib.rs is a file");
        (depth, (module, file))
    }

    /// The path from the crate's root from which module `at` imports `name`; `None` if it does not
    /// import it.
    fn re_export(&self, at: &[String], name: &str) -> Option<Vec<String>> {
        let uses = &self.files.get(at)?.uses;
        if let Some(found) = uses.iter().find(|u| u.name == name) {
            return self.absolute(at, &found.path);
        }
        // For `use session::*`: the glob-imported module that defines the name.
        uses.iter().filter(|u| u.name == "*").find_map(|star| {
            let module = self.absolute(at, &star.path)?;
            let has = |t: &[Token]| t[1].text == name && DEFINES.contains(&t[0].text.as_str());
            let defines = self.files.get(&module)?.tokens.windows(2).any(has);
            defines.then(|| [module, vec![name.to_string()]].concat())
        })
    }

    /// A path as seen from module `at`, from the crate's root; `None` for paths into other crates,
    /// and for names that are no modules.
    fn absolute(&self, at: &[String], path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let ups = path.iter().take_while(|word| *word == "super").count();
        let absolute = match first.as_str() {
            "crate" => rest.to_vec(),
            "self" => [at, rest].concat(),
            "super" => [&at[..at.len().checked_sub(ups)?], &path[ups..]].concat(),
            _ => {
                let child = [at, path].concat();
                if self.deepest(&child).0 > at.len() {
                    child
                } else {
                    let uses = &self.files.get(at)?.uses;
                    let module = uses.iter().find(|u| u.name == *first && u.path[0] != *first)?;
                    let module = self.absolute(at, &module.path)?;
                    self.files.contains_key(&module).then(|| [&module, rest].concat())?
                }
            }
        };
        (!absolute.is_empty()).then_some(absolute)
    }
}

/// All modules that can be reached from one along arrows.
fn reached<'a>(
    arrows: &BTreeMap<&'a [String], BTreeSet<&'a [String]>>,
    from: &[String],
) -> BTreeSet<&'a [String]> {
    let mut found = BTreeSet::new();
    let mut next: Vec<&[String]> = arrows.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = next.pop() {
        if found.insert(module) {
            next.extend(arrows.get(module).into_iter().flatten());
        }
    }
    found
}

/// The place of a module's layer in the list.
fn layer_of(module: &[String], layers: Layers<'_>) -> Option<usize> {
    let name = module.first()?;
    layers.iter().position(|(layer, _)| layer == name)
}

fn is_pure(file: &str, impure: Impure) -> bool {
    let stem = file.trim_end_matches(".rs");
    let covers = |name: &str| {
        let name = name.trim_end_matches(".rs");
        stem.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    match impure {
        Impure::None => true,
        Impure::Only(names) => !names.iter().any(|name| covers(name)),
        Impure::All => false,
    }
}

const DEFINES: [&str; 8] = ["struct", "enum", "trait", "fn", "type", "const", "static", "union"];

fn forbidden_words(file: &File, whom: &str, words: &[&str], faults: &mut Vec<String>) {
    for (path, line) in all_paths(&file.tokens) {
        for word in words {
            if says(&path, word) {
                faults.push(format!("src/{}:{line}: {whom} may say `{word}`", file.name));
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
    for item in use_items(tokens) {
        let mut leaves = Vec::new();
        use_leaves(&tokens[item.start + 1..item.end], 0, &[], &mut leaves);
        let before = item.start.checked_sub(1).and_then(|i| tokens.get(i));
        // `pub use`, or the bracket of `pub(crate) use`.
        let passes_on = before.is_some_and(|token| ["pub", ")"].contains(&token.text.as_str()));
        let line = tokens[item.start].line;
        found.extend(leaves.into_iter().map(|leaf| Use { line, passes_on, ..leaf }));
    }
    found
}

/// The places of all `use` items, from their `use` to their semicolon.
fn use_items(tokens: &[Token]) -> Vec<Range<usize>> {
    let starts = (0..tokens.len()).filter(|i| at(tokens, *i, "use"));
    let end = |start: usize| tokens[start..].iter().position(|t| t.text == ";");
    starts.map(|start| start..start + end(start).unwrap_or(1)).collect()
}

/// The tokens outside of all `use` items.
fn without_uses(tokens: &[Token]) -> Vec<Token> {
    let items = use_items(tokens);
    let is_free = |i: usize| !items.iter().any(|item| item.contains(&i));
    tokens.iter().enumerate().filter(|(i, _)| is_free(*i)).map(|(_, t)| t.clone()).collect()
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
    found.push(Use { path, name, line: 0, passes_on: false });
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
    Crate::build(&sources).faults(SOME, &[])
}

const LINK: [(&str, &str); 4] = [
    (
        "link/mod.rs",
        "mod session;\nmod frame;\npub(crate) use session::Session;\npub use crate::words::*;\npub struct Door;",
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
        [
            "src/plan.rs:3: plan uses crate::link::session::Session, which is above it (src/link/session.rs)"
        ]
    );
}

#[test]
fn a_re_export_counts_as_the_file_that_defines_it() {
    let plan = |line: &str| faults_beside_link("plan.rs", line).len();
    assert_eq!(plan("use crate::link::Session;"), 1);
    assert_eq!(plan("use crate::link::Session as S;"), 1);
    assert_eq!(plan("use crate::link::Frame;"), 0, "passed on by a star, defined below");
    assert_eq!(plan("use crate::link::Door;"), 1, "the door itself is above");
    let via_lib = ("lib.rs", "mod link;\npub use link::{Frame, Session};");
    let with = |name: &str| {
        let user = format!("use crate::{name};");
        faults(&[&LINK[..], &[via_lib, ("plan.rs", user.as_str())]].concat()).len()
    };
    assert_eq!((with("Frame"), with("Session")), (0, 1));
}

#[test]
fn names_in_modules_of_the_root_are_not_names_of_the_root() {
    let lib = "pub use a::{B, C};\npub mod d { pub use a::{E, F}; }\nmod g;\npub use a::H;";
    assert_eq!(root_names(&tokens(lib)), 3);
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
        ["src/cellar.rs: tests/layers.rs lists no such layer"]
    );
    let sources = [("lib.rs", ""), LINK[0]].map(|(file, text)| (file.into(), text.into()));
    let found = Crate::build(&sources.into()).faults(SOME, &[]);
    assert_eq!(found, ["no src/link/session.rs"]);
}
