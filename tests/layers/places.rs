//! The places where tests may stand beside the code, see CONTRIBUTING.md.

use super::parser::long_test_modules;

/// Files that are tests by their name, wherever they stand.
const NAMES: [&str; 4] = ["contract.rs", "golden.rs", "memory_model.rs", "schedules.rs"];

/// Folders that are for tests alone.
const FOLDERS: [&str; 2] = ["src/sim/", "/suite/"];

/// Whether this source has tests.
pub fn has_tests(text: &str) -> bool {
    let begins = |line: &str| {
        let line = line.trim_start();
        ["#[test]", "#[tokio::test", "proptest! {"].iter().any(|start| line.starts_with(start))
    };
    text.lines().any(begins)
}

/// Whether `file` is a place for the tests in its `text`. `exists` says which other files there
/// are.
pub fn is_place(file: &str, text: &str, exists: &dyn Fn(&str) -> bool) -> bool {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let is_at_the_bottom = !long_test_modules(text, 0).is_empty();
    is_at_the_bottom
        || NAMES.contains(&name)
        || name.ends_with("_tests.rs")
        || name == "tests.rs" && exists(&format!("{folder}.rs"))
        || file.contains("/tests/")
        || name == "suite.rs"
        || FOLDERS.iter().any(|part| file.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_in_other_places_are_found() {
        let is_place =
            |file: &str, text: &str| is_place(file, text, &|file| file == "src/link/frame.rs");
        let alone = "#[test]\nfn it_works() {}\n";
        assert!(has_tests(alone) && has_tests("proptest! {\n") && !has_tests("fn test() {}\n"));
        let bottom = format!("fn it() {{}}\n\n#[cfg(test)]\nmod tests {{\n    {alone}}}\n");
        assert!(is_place("src/link/frame.rs", &bottom));
        for place in [
            "src/link/frame/tests.rs",
            "src/link/frame_tests.rs",
            "src/link/tests/frame.rs",
            "src/link/frame/schedules.rs",
            "src/collective/suite/order.rs",
            "src/sim/model/runs.rs",
        ] {
            assert!(is_place(place, alone), "{place}");
        }
        for other in ["src/link/tests.rs", "src/link/frame.rs", "src/link/frame/checks.rs"] {
            assert!(!is_place(other, alone), "{other}");
        }
    }
}
