//! The shape of a JSON document: the paths of its values and their types, as a golden file in
//! `tests/golden/json` lists them.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// For each path, the types that were seen there; `[]` is any element of a list.
type Shape = BTreeMap<String, BTreeSet<&'static str>>;

/// Fails unless these documents, together, have the shape that the golden file `NAME.txt` lists: a
/// line `path type|type`. Each path must be there, unless its parent is null or an empty list or
/// object, and no other path or type may be.
pub fn is_as_listed(name: &str, golden: &str, documents: &[Value]) -> Result<()> {
    let mut shape = Shape::new();
    for document in documents {
        collect(document, "", &mut shape);
    }
    let listed = parsed(golden).with_context(|| format!("tests/golden/json/{name}.txt"))?;
    let mut wrong: Vec<String> = Vec::new();
    for (path, types) in &shape {
        let allowed = listed.get(path).cloned().unwrap_or_default();
        // Where a list may stand, it may be empty, and an unknown value is null.
        let is_allowed = |kind: &str| match kind {
            "empty" => allowed.contains(kind) || allowed.contains("list"),
            "null" => !allowed.is_empty(),
            kind => allowed.contains(kind),
        };
        let new = types.iter().filter(|kind| !is_allowed(kind));
        wrong.extend(new.map(|kind| format!("new: {path} {kind}")));
    }
    for path in listed.keys().filter(|path| !shape.contains_key(*path)) {
        if !is_excused(path, &shape) {
            wrong.push(format!("gone: {path}"));
        }
    }
    ensure!(
        wrong.is_empty(),
        "cli/tests/golden/json/{name}.txt says otherwise: {wrong:?}\nThe documents have\n{}",
        printed(&shape)
    );
    Ok(())
}

fn collect(value: &Value, at: &str, shape: &mut Shape) {
    let (kind, children): (&str, Vec<(String, &Value)>) = match value {
        Value::Null => ("null", Vec::new()),
        Value::Bool(_) => ("bool", Vec::new()),
        Value::Number(_) => ("number", Vec::new()),
        Value::String(_) => ("string", Vec::new()),
        Value::Array(list) if list.is_empty() => ("empty", Vec::new()),
        Value::Array(list) => ("list", list.iter().map(|v| (format!("{at}[]"), v)).collect()),
        Value::Object(map) => {
            let dot = if at.is_empty() { "" } else { "." };
            ("object", map.iter().map(|(name, v)| (format!("{at}{dot}{name}"), v)).collect())
        }
    };
    shape.entry(at.to_owned()).or_default().insert(kind);
    children.iter().for_each(|(path, child)| collect(child, path, shape));
}

/// Whether an ancestor is null or empty in every document.
fn is_excused(path: &str, shape: &Shape) -> bool {
    shape.iter().any(|(known, types)| {
        let is_above = path
            .strip_prefix(known.as_str())
            .is_some_and(|rest| rest.starts_with('.') || rest.starts_with('['));
        is_above && !types.contains("object") && !types.contains("list")
    })
}

fn parsed(golden: &str) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let line = |line: &str| {
        let (path, types) = line.split_once(' ').with_context(|| format!("no type: {line}"))?;
        let path = if path == "." { "" } else { path };
        Ok((path.to_owned(), types.split('|').map(str::to_owned).collect()))
    };
    golden.lines().map(line).collect()
}

fn printed(shape: &Shape) -> String {
    let line = |(path, types): (&String, &BTreeSet<&str>)| {
        let types: Vec<&str> = types.iter().copied().collect();
        format!("{} {}\n", if path.is_empty() { "." } else { path }, types.join("|"))
    };
    shape.iter().map(line).collect()
}
