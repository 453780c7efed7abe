//! A parser of Rust source, as far as imports need it: words, paths, `use` items, and what is
//! compiled for tests only.

use std::ops::Range;

/// One leaf of a `use`: `pub(crate) use session::Session as S` imports `session::Session` under the
/// name `S`.
pub struct Use {
    pub path: Vec<String>,
    pub name: String,
    pub line: usize,
    /// It is a re-export.
    pub passes_on: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

/// The module path of a file of `src/`: `["election", "machine"]` is `election/machine.rs`, `[]` is
/// `lib.rs`.
pub fn module_path(file: &str) -> Vec<String> {
    let stem = file.trim_end_matches(".rs");
    let mut path: Vec<String> = stem.split('/').map(String::from).collect();
    if path.last().is_some_and(|last| last == "mod") || stem == "lib" {
        path.pop();
    }
    path
}

/// Every path `a::b::c`, with brace groups expanded.
pub fn all_paths(tokens: &[Token]) -> Vec<(Vec<String>, usize)> {
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

/// The number of names that `lib.rs` re-exports itself, without those in its modules.
pub fn root_names(lib: &[Token]) -> usize {
    let mut outside = lib.to_vec();
    let is_module = |tokens: &[Token], i: usize| at(tokens, i, "mod") && at(tokens, i + 2, "{");
    while let Some(start) = (0..outside.len()).find(|i| is_module(&outside, *i)) {
        let end = closing(&outside, start + 2);
        outside.drain(start..end);
    }
    uses(&outside).iter().filter(|u| u.passes_on).count()
}

/// The leaves of all `use` items, with the names that they import.
pub fn uses(tokens: &[Token]) -> Vec<Use> {
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
pub fn without_uses(tokens: &[Token]) -> Vec<Token> {
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
pub fn without_tests(tokens: &[Token]) -> Vec<Token> {
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
pub fn test_files(file: &str, tokens: &[Token]) -> Vec<String> {
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

/// Names of the modules for tests alone that are written in `text` itself with more than `most`
/// lines between their braces, and the number of these lines.
pub fn long_test_modules(text: &str, most: usize) -> Vec<(String, usize)> {
    let mut long = Vec::new();
    let mut is_for_tests = false;
    let mut lines = text.lines().enumerate();
    while let Some((start, line)) = lines.next() {
        let module =
            line.strip_suffix(" {").and_then(|l| l.rsplit_once("mod ")).map(|(_, name)| name);
        if let Some(name) = module.filter(|_| is_for_tests) {
            let end = lines.find(|(_, line)| *line == "}").map_or(start, |(end, _)| end);
            let inside = end.saturating_sub(start + 1);
            long.extend((inside > most).then(|| (name.to_owned(), inside)));
        }
        let is_attribute = line.starts_with("#[");
        is_for_tests = is_attribute && (is_for_tests || test_attribute(&tokens(line), 0).is_some());
    }
    long
}

/// The index after the attribute at `i` if it is `#[cfg(test)]`, `#[cfg(all(test, …))]`, or
/// `#[cfg(any(fuzzing, test))]`.
fn test_attribute(tokens: &[Token], i: usize) -> Option<usize> {
    let starts = [
        &["#", "[", "cfg", "(", "test", ")"][..],
        &["#", "[", "cfg", "(", "all", "(", "test", ","],
        &["#", "[", "cfg", "(", "any", "(", "fuzzing", ",", "test", ")", ")"],
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
pub fn tokens(text: &str) -> Vec<Token> {
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
