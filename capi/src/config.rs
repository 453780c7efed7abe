//! The configuration of a node.
#![allow(non_camel_case_types)]

use crate::border::{freed, given, guarded, handle_mut, text};
use crate::error::potluck_error;
use crate::status::potluck_status;
use potluck_foreign::Failure;
use potluck_library::keys::ClusterKey;
use potluck_library::{Admission, Config, EngineOffer, Network, Partition};
use std::ffi::c_char;

/// The configuration of a node.
pub struct potluck_config {
    pub(crate) config: Config,
}

/// The configuration of a node that finds others on this home's network.
#[unsafe(no_mangle)]
pub extern "C" fn potluck_config_new() -> *mut potluck_config {
    given(potluck_config { config: Config::home() })
}

/// Sets one setting. A setting without a value comes from the environment (POTLUCK_NAMESPACE,
/// POTLUCK_JOB, POTLUCK_KEY, POTLUCK_MEMBERS, ...), else from the documented defaults.
///
/// | key | value |
/// | --- | --- |
/// | network | `home`: this machine's interfaces; `loopback`: 127.0.0.1; `process`: for tests |
/// | namespace | the cluster's name |
/// | job | which program this is: nodes of one job form a group |
/// | key | the cluster key, as `potluck key --show` prints it |
/// | open | a namespace that every node on the network may join, without a key |
/// | home | the directory of key and state files |
/// | name | this node's display name |
/// | members | with how many members the group begins, 1 to 32 |
/// | min_members | with how many it goes on |
/// | max_members | how many it may have |
/// | partition | which part of a cut network goes on |
/// | stateless | `true`: this node keeps no state in step with the others |
/// | peers | addresses to dial, with commas between: `host` or `host:port` |
/// | interfaces | which to use: `eth0,en*`, or `^wlan0` for all others |
/// | trusted_links | interfaces on which bulk data is not encrypted, with commas between |
/// | engine | `auto`, `native` or `gloo` |
/// | notices | `false`: never a line on stderr |
///
/// Returns POTLUCK_ARGUMENT for another key, and for a value that cannot be read. The configuration
/// is then as before. potluck_join checks further: POTLUCK_CONFIG for an invalid value.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_config_set(
    config: *mut potluck_config,
    key: *const c_char,
    value: *const c_char,
    error: *mut *mut potluck_error,
) -> potluck_status {
    // SAFETY: see `border`.
    unsafe {
        guarded(error, || {
            let config = handle_mut(config, "config")?;
            set(&mut config.config, text(key, "key")?, text(value, "value")?)?;
            Ok(())
        })
    }
}

/// Frees a configuration. Nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn potluck_config_free(config: *mut potluck_config) {
    // SAFETY: see `border`.
    unsafe { freed(config) };
}

fn set(config: &mut Config, key: &str, value: &str) -> Result<(), Failure> {
    let owned = || Some(value.to_owned());
    let listed = || value.split(',').map(str::trim).filter(|part| !part.is_empty());
    match key {
        "network" => {
            // As the presets do: only nodes of a home network have ports that are known.
            let network = network(value)?;
            config.ports = if network == Network::Lan { Config::home().ports } else { Vec::new() };
            config.network = network;
        }
        "namespace" => config.namespace = owned(),
        "job" => config.job = owned(),
        "key" => config.admission = Admission::Key(cluster_key(value)?),
        "open" => {
            config.namespace = owned();
            config.admission = Admission::Open;
        }
        "home" => config.home = Some(value.into()),
        "name" => config.name = owned(),
        "members" => config.members = Some(parsed(key, value)?),
        "min_members" => config.min_members = Some(parsed(key, value)?),
        "max_members" => config.max_members = Some(parsed(key, value)?),
        "partition" => config.partition = Some(parsed::<Partition>(key, value)?),
        "stateless" => config.stateless = parsed(key, value)?,
        "peers" => config.peers = listed().map(str::to_owned).collect(),
        "interfaces" => config.interfaces = owned(),
        "trusted_links" => config.trusted_links = listed().map(str::to_owned).collect(),
        "engine" => config.engine = Some(parsed::<EngineOffer>(key, value)?),
        "notices" => config.notices = Some(parsed(key, value)?),
        _ => return Err(Failure::Argument(format!("there is no setting {key:?}"))),
    }
    Ok(())
}

fn network(value: &str) -> Result<Network, Failure> {
    match value {
        "home" => Ok(Network::Lan),
        "loopback" => Ok(Network::Loopback),
        "process" => Ok(Network::Process),
        _ => Err(Failure::Argument(format!("network is home, loopback or process, not {value:?}"))),
    }
}

fn cluster_key(value: &str) -> Result<ClusterKey, Failure> {
    // The problem does not repeat the text, which is a secret.
    ClusterKey::parse(value).map_err(|problem| Failure::Argument(format!("key: {problem}")))
}

fn parsed<T: std::str::FromStr>(key: &str, value: &str) -> Result<T, Failure>
where
    T::Err: std::fmt::Display,
{
    value.parse().map_err(|problem| Failure::Argument(format!("{key}: {problem}")))
}
