//! The name of a job: which program a node runs.

use crate::wire::layout::{Text, layout};
use derive_more::Display;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

/// The name of a job: 1 to 32 of `a-z`, `0-9`, `-` and `_`. Part of file names.
///
/// Nodes of one cluster form a group if they have the same job.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobName(String);

layout! {
    JobName(text: Text(JobName::CHARS_MAX))
    if |job| JobName::parse(&job.0).is_ok()
}

/// Why a text is not the name of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Display)]
#[non_exhaustive]
pub enum JobNameError {
    /// It is empty.
    #[display("the name of a job must not be empty; use 1 to 32 of a-z, 0-9, - and _")]
    Empty,
    /// It has more than 32 characters.
    #[display("the name of a job has at most 32 characters; shorten it")]
    TooLong,
    /// The character at this position, counted from 1, is not one of `a-z`, `0-9`, `-` and `_`.
    #[display(
        "character {_0} of the name of the job is not one of a-z, 0-9, - and _; choose another name"
    )]
    Character(usize),
}

impl JobName {
    /// Most characters of a name.
    pub const CHARS_MAX: usize = 32;

    /// Parses a name. The error names the fault.
    pub fn parse(text: &str) -> Result<JobName, JobNameError> {
        if text.is_empty() {
            return Err(JobNameError::Empty);
        }
        if let Some(place) = text.chars().position(|c| !is_allowed(c)) {
            return Err(JobNameError::Character(place + 1));
        }
        if text.len() > JobName::CHARS_MAX {
            return Err(JobNameError::TooLong);
        }
        Ok(JobName(text.to_owned()))
    }

    /// The job of a program without a configured one: the name of its executable without directory,
    /// `.exe` and the `-` and 16 hexadecimal digits that Cargo appends to the name of a test, in
    /// lower case, as far as its characters are allowed, cut to 32; `program` if none is left. So
    /// the same program has the same job on all machines.
    pub fn of_program(executable: &Path) -> JobName {
        let file = executable.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        // Linux appends this when the file was replaced after the start.
        let file = file.strip_suffix(" (deleted)").unwrap_or(&file).to_lowercase();
        let stem = without_hash(file.strip_suffix(".exe").unwrap_or(&file));
        let kept: String =
            stem.chars().filter(|c| is_allowed(*c)).take(JobName::CHARS_MAX).collect();
        JobName(if kept.is_empty() { "program".to_owned() } else { kept })
    }

    /// The text of the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for JobNameError {}

fn is_allowed(c: char) -> bool {
    matches!(c, 'a'..='z' | '0'..='9' | '-' | '_')
}

/// Without the hash that Cargo appends to the name of a test binary.
fn without_hash(stem: &str) -> &str {
    let is_hash = |hash: &str| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    match stem.rsplit_once('-') {
        Some((name, hash)) if is_hash(hash) && !name.is_empty() => name,
        _ => stem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Decode, assert_codec, put_blob};

    #[test]
    fn names_are_fit_for_file_names() {
        assert_eq!(JobName::parse("train_2-b").as_ref().map(JobName::as_str), Ok("train_2-b"));
        assert_eq!(JobName::parse(""), Err(JobNameError::Empty));
        assert_eq!(JobName::parse(&"x".repeat(33)), Err(JobNameError::TooLong));
        assert!(JobName::parse(&"x".repeat(32)).is_ok());
        for (bad, place) in [("../etc", 1), ("Lab", 1), ("a b", 2), ("a.b", 2), ("aé", 2)] {
            assert_eq!(JobName::parse(bad), Err(JobNameError::Character(place)));
        }
    }

    #[test]
    fn the_same_program_has_the_same_job_wherever_it_lies() {
        for (path, job) in [
            ("/usr/local/bin/train", "train"),
            ("C/Train.EXE", "train"),
            ("/home/ada/target/release/examples/quickstart", "quickstart"),
            ("/target/debug/deps/contract-0123456789abcdef", "contract"),
            ("/target/debug/deps/fine-tune-0123456789abcde", "fine-tune-0123456789abcde"),
            ("/opt/train (deleted)", "train"),
            ("-0123456789abcdef", "-0123456789abcdef"),
            ("/bin/Größe 2.0", "gre20"),
            ("/bin/数", "program"),
            ("/", "program"),
            ("/bin/a-very-long-name-of-a-program-that-trains", "a-very-long-name-of-a-program-th"),
        ] {
            let derived = JobName::of_program(Path::new(path));
            assert_eq!(derived.as_str(), job, "{path}");
            assert_eq!(JobName::parse(derived.as_str()), Ok(derived), "{path}");
        }
    }

    #[test]
    fn a_job_survives_the_wire_and_a_forged_one_does_not() {
        assert_codec(&JobName::of_program(Path::new("train")));
        for forged in ["", "Train", "a\u{1b}b", &"x".repeat(33)] {
            let mut bytes = Vec::new();
            put_blob(&mut bytes, forged.as_bytes());
            assert!(JobName::from_bytes(&bytes).is_err(), "{forged}");
        }
    }
}
