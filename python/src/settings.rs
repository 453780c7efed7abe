//! The arguments of `join`, as the configuration of a node.

use potluck::keys::ClusterKey;
use potluck::report::ConfigProblem;
use potluck::{Admission, Config, EngineOffer, Error};
use potluck_foreign::Failure;
use pyo3::prelude::*;
use std::path::{Path, PathBuf};

/// The arguments of `join`.
pub struct Settings {
    pub namespace: Option<String>,
    pub key: Option<String>,
    pub open_lan: Option<String>,
    pub loopback: bool,
    pub job: Option<String>,
    pub members: Option<usize>,
    pub min_members: Option<usize>,
    pub max_members: Option<usize>,
    pub peers: Vec<String>,
    pub interfaces: Option<String>,
    pub name: Option<String>,
    pub home: Option<PathBuf>,
    pub engine: Option<String>,
    pub partition: Option<String>,
    pub stateless: bool,
    pub notices: Option<bool>,
}

impl Settings {
    /// The configuration of the node.
    ///
    /// # Errors
    /// [`Failure`] for a text that cannot be read.
    pub fn config(self, program: &Path) -> Result<Config, Failure> {
        let mut config = if self.loopback { Config::loopback() } else { Config::home() };
        config.admission = admission(self.key.as_deref(), self.open_lan.is_some())?;
        if self.namespace.is_some() && self.open_lan.is_some() {
            return wrong("open_lan is the name of an open namespace; give it or namespace");
        }
        config.namespace = self.namespace.or(self.open_lan);
        config.job = self.job.or_else(|| job_of(program));
        (config.members, config.min_members) = (self.members, self.min_members);
        config.max_members = self.max_members;
        config.peers = self.peers;
        config.interfaces = self.interfaces;
        config.name = self.name;
        config.home = self.home;
        config.engine = self
            .engine
            .map(|text| text.parse::<EngineOffer>())
            .transpose()
            .map_err(|_| Failure::Argument("engine is \"auto\" or \"native\"".to_owned()))?;
        let partition = self.partition.map(|text| text.parse()).transpose();
        config.partition = partition
            .map_err(|why: String| Failure::Argument(format!("partition cannot be used: {why}")))?;
        config.stateless = self.stateless;
        config.notices = self.notices;
        Ok(config)
    }
}

fn admission(key: Option<&str>, is_open: bool) -> Result<Admission, Failure> {
    match (key, is_open) {
        (Some(_), true) => wrong("an open namespace has no key; give key or open_lan"),
        (None, true) => Ok(Admission::Open),
        (None, false) => Ok(Admission::Found),
        (Some(text), false) => {
            let bad = |why: potluck::keys::KeyTextError| {
                Failure::Call(Error::Config(ConfigProblem::BadKey(why.to_string())))
            };
            ClusterKey::parse(text).map(Admission::Key).map_err(bad)
        }
    }
}

/// The job that the script names, unless the environment does: the executable is Python for all of
/// them.
fn job_of(program: &Path) -> Option<String> {
    if std::env::var_os("POTLUCK_JOB").is_some_and(|job| !job.is_empty()) {
        return None;
    }
    let is_main = program.file_name().is_some_and(|file| file == "__main__.py");
    let named = if is_main { program.parent().unwrap_or(program) } else { program };
    let stem = named.file_stem().map(|stem| stem.to_string_lossy().to_lowercase());
    let stem = stem.filter(|stem| stem != "-c" && stem != "-m").unwrap_or_default();
    let is_allowed = |c: &char| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_');
    let kept: String = stem.chars().filter(is_allowed).take(JOB_CHARS_MAX).collect();
    Some(if kept.is_empty() { "python".to_owned() } else { kept })
}

const JOB_CHARS_MAX: usize = 32;

/// The path of the script that runs.
///
/// # Errors
/// Those of a `sys` that is none.
pub fn program(py: Python<'_>) -> PyResult<PathBuf> {
    let argv = py.import("sys")?.getattr("argv")?;
    Ok(argv.get_item(0).and_then(|first| first.extract()).unwrap_or_default())
}

fn wrong<T>(problem: &str) -> Result<T, Failure> {
    Err(Failure::Argument(problem.to_owned()))
}
