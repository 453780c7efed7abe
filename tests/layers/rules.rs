//! The rules: layers, circles, and the words that a file must not contain.

use crate::imports::{Crate, File};
use crate::parser::{all_paths, root_names};
use crate::{CLOCK_FILE, IMPURE, Impure, Layers, WALL_CLOCK};
use std::collections::{BTreeMap, BTreeSet};

impl Crate {
    /// All violations of the rules.
    pub fn faults(&self, layers: Layers<'_>) -> Vec<String> {
        let mut faults = Vec::new();
        for (module, file) in self.shipped() {
            let Some(layer) = layer_of(module, layers) else {
                faults.push(format!("src/{}: tests/layers lists no such layer", file.name));
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
            if file.name != CLOCK_FILE {
                forbidden_words(file, "no file", &WALL_CLOCK, &mut faults);
            }
            if is_pure(&file.name, layers[layer].1) {
                forbidden_words(file, "no pure file", &IMPURE, &mut faults);
            }
        }
        let circles = self.circles();
        faults.extend(circles.iter().map(|names| format!("a circle: {}", names.join(", "))));
        let impure = layers.iter().flat_map(|(_, impure)| match impure {
            Impure::Only(names) => *names,
            Impure::None | Impure::All => &[],
        });
        let is_there = |name: &str| self.files.values().any(|file| file.name.starts_with(name));
        faults.extend(impure.filter(|name| !is_there(name)).map(|name| format!("no src/{name}")));
        faults.dedup();
        faults
    }

    /// A summary of the imports, in one line.
    pub fn figures(&self) -> String {
        let loose = self.files.keys().filter(|module| module.len() <= 1).count();
        let folders = self.files.values().filter(|file| file.name.matches('/').count() == 1);
        let doors = folders.filter(|file| file.name.ends_with("/mod.rs")).count();
        let root = self.files.get(&[][..]).map_or(0, |lib| root_names(&lib.tokens));
        let circles = self.circles();
        format!(
            "{doors} folders and {} loose files in src/, {root} names at the root, {} circles of \
             {} files",
            loose - doors,
            circles.len(),
            circles.iter().map(Vec::len).sum::<usize>()
        )
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
