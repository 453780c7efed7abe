//! Which file of `src/` imports which.

use crate::parser::{
    Token, Use, all_paths, module_path, test_files, tokens, uses, without_tests, without_uses,
};
use std::collections::BTreeMap;

/// All files of src/ by module path: `["election", "machine"]` is `election/machine.rs`, `[]` is
/// `lib.rs`.
pub struct Crate {
    pub files: BTreeMap<Vec<String>, File>,
}

pub struct File {
    /// Its path in `src/`.
    pub name: String,
    pub tokens: Vec<Token>,
    pub uses: Vec<Use>,
    /// Path prefixes of files that exist only for tests, as declared by `#[cfg(test)] mod tests;`.
    test_files: Vec<String>,
}

impl Crate {
    pub fn build(sources: &BTreeMap<String, String>) -> Crate {
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
    pub fn shipped(&self) -> impl Iterator<Item = (&Vec<String>, &File)> {
        let ships = |file: &File| {
            let mut starts = self.files.values().flat_map(|file| &file.test_files);
            !starts.any(|start| file.name.starts_with(start))
        };
        self.files.iter().filter(move |(module, file)| !module.is_empty() && ships(file))
    }

    /// All paths of a file that lead to another file of this crate, from the crate's root, with
    /// their lines. A re-export is one only if the file uses the name itself.
    pub fn arrows(&self, module: &[String], file: &File) -> Vec<(Vec<String>, usize)> {
        let code = without_uses(&file.tokens);
        let is_used = |name: &str| code.iter().any(|token| token.text == name);
        let imports = file.uses.iter().filter(|u| !u.passes_on || is_used(&u.name));
        let imports = imports.map(|u| (u.path.clone(), u.line));
        let paths = all_paths(&code).into_iter().filter(|(path, _)| path.len() > 1);
        let absolute =
            |(path, line): (Vec<String>, usize)| Some((self.absolute(module, &path)?, line));
        imports.chain(paths).filter_map(absolute).collect()
    }

    /// The file that defines the item of a path, and its module: follows modules as far as
    /// possible, then re-exports.
    pub fn resolve(&self, path: &[String]) -> (&[String], &File) {
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

/// The words before a name that define it.
const DEFINES: [&str; 8] = ["struct", "enum", "trait", "fn", "type", "const", "static", "union"];
