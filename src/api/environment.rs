//! Settings that the environment gives where the configuration does not.

use super::config::Config;
use crate::identity::{Home, JobName, NamespaceName, namespace_name};
use crate::os::InterfaceFilter;
use crate::report::{ConfigProblem, Error, Result};
use std::ffi::OsString;

pub(crate) fn namespace_of(config: &Config) -> Result<NamespaceName> {
    let parsed = match &config.namespace {
        Some(name) => NamespaceName::parse(name),
        None => namespace_name(lookup),
    };
    parsed.map_err(|why| Error::Config(ConfigProblem::BadNamespace(why.to_string())))
}

/// The folders of this machine's files.
pub(crate) fn home_of(config: &Config) -> Result<Home> {
    match &config.home {
        Some(directory) => Ok(Home::at(directory.clone())),
        None => Ok(Home::from_env(lookup)?),
    }
}

/// The configured job, else that of the environment, else the name of this program.
pub(crate) fn job_of(config: &Config) -> Result<JobName> {
    let from_env = || lookup("POTLUCK_JOB").filter(|text| !text.is_empty());
    match config.job.clone().or_else(|| from_env().map(|text| text.to_string_lossy().into())) {
        Some(text) => JobName::parse(&text)
            .map_err(|why| Error::Config(ConfigProblem::BadJob(why.to_string()))),
        None => Ok(JobName::of_program(&std::env::current_exe().unwrap_or_default())),
    }
}

/// Whether the program is told on stderr why it waits.
pub(crate) fn notices(config: &Config) -> bool {
    config.notices.unwrap_or_else(|| lookup("POTLUCK_NOTICES").is_none_or(|text| text != "0"))
}

/// The configured interface filter, if there is one.
pub(crate) fn interface_filter(config: &Config) -> Result<Option<InterfaceFilter>> {
    let parsed = interface_text(config).map(|text| InterfaceFilter::parse(&text)).transpose();
    parsed.map_err(|e| Error::Config(ConfigProblem::BadInterfaces(e.to_string())))
}

pub(super) fn interface_text(config: &Config) -> Option<String> {
    let text = config
        .interfaces
        .clone()
        .or_else(|| lookup("POTLUCK_INTERFACES").and_then(|v| v.into_string().ok()));
    text.filter(|t| !t.trim().is_empty())
}

pub(crate) fn lookup(variable: &str) -> Option<OsString> {
    std::env::var_os(variable)
}
