//! Takes the cluster key of another machine by its pairing code.

use super::config::{Config, Network};
use super::environment::{home_of, lookup, namespace_of};
use super::machine_interfaces::MachineInterfaces;
use super::start::{choose, discover, name_of, network_of, peer_texts};
use crate::discovery::FixedPeer;
use crate::identity::{
    ClusterKey, Home, IdentityProblem, NAMESPACE_VARIABLE, Name, NamespaceName, PairingCode,
    Stored, store_cluster_key, store_next_key,
};
use crate::node::own_thread;
use crate::os::{AddressPolicy, InterfaceSource, inventory};
use crate::pairing::{Found, Hints, KeyOutcome, Receipt, seek};
use crate::report::{ConfigProblem, Error, Result};
use crate::trace;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The action if this machine has another cluster key under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OtherKey {
    /// Keep it: joining fails.
    Keep,
    /// Replace it: this machine leaves the other cluster for good.
    Replace,
    /// Keep it, and store the new one as the next key of the same cluster, whose key is being
    /// changed.
    Follow,
}

/// The cluster that has let this machine in.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Paired {
    /// The namespace under which the key is stored.
    pub namespace: String,
    /// The file of the key.
    pub file: PathBuf,
    /// The content of that file before this call.
    pub before: KeyBefore,
    /// The name of the machine that invited.
    pub inviter: Name,
    /// Its address.
    pub address: SocketAddr,
}

/// The content of the cluster key's file before a key was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyBefore {
    /// No key.
    Nothing,
    /// The same key.
    SameKey,
    /// Another key, which was replaced.
    AnotherKey,
    /// The current key, beside which the next one now stands.
    CurrentKey,
}

/// Takes the cluster key from the machine that shows `code`, and stores it. Ends within half a
/// minute, plus up to two seconds for each host name in `config.peers`.
///
/// That machine is found by multicast DNS on the interfaces of `config`. If no invitation that is
/// heard has been shown the code, the peers in `POTLUCK_PEERS` are asked; those without an address
/// are left out. If `config.peers` names peers, these are asked instead of all others. The key is
/// stored under `config.namespace`, else `POTLUCK_NAMESPACE`, else the name that the cluster has on
/// the other machine.
///
/// It runs on its own thread with its own runtime, so the caller needs no tokio runtime. If the
/// future is dropped, the attempt is given up; the key may be stored by then.
///
/// # Errors
/// [`Error::Pairing`] if the code has led to no key. [`Error::Identity`] if the key was not stored,
/// in particular because another one is there ([`IdentityProblem::OtherKeyStored`]); the other
/// machine is told so, and its invitation still stands. [`Error::Config`] if the configuration is
/// invalid, or discovery cannot start.
pub async fn join_by_code(config: Config, code: PairingCode, other: OtherKey) -> Result<Paired> {
    let paired = own_thread(
        "potluck-join",
        |_| unavailable(),
        async move |mut done| {
            tokio::select! {
                // An error means that the caller has dropped the future in this moment.
                joined = join(&config, code, other) => drop(done.send(joined)),
                () = done.closed() => {}
            }
        },
    );
    paired?.await.unwrap_or_else(|_| Err(unavailable()))
}

async fn join(config: &Config, code: PairingCode, other: OtherKey) -> Result<Paired> {
    let home = home_of(config)?;
    let named = named_namespace(config)?;
    let hints = hints(config).await?;
    let found = seek(Arc::new(network_of(config)), hints, code).await.map_err(Error::Pairing)?;
    let Found { welcome, from, reply } = found;
    let namespace = named.unwrap_or(welcome.namespace);
    let stored = store(&namespace, &home, &welcome.key, other);
    let kept = if stored.is_ok() { KeyOutcome::Stored } else { KeyOutcome::Declined };
    if let Err(trouble) = reply.send(&Receipt { kept, name: name_of(config) }).await {
        trace::debug!(%trouble, "the other machine may not know that the key has arrived");
    }
    Ok(Paired {
        file: home.cluster_key_path(&namespace),
        namespace: namespace.as_str().to_owned(),
        before: stored?,
        inviter: welcome.name,
        address: from,
    })
}

/// The namespace, if this machine names one.
fn named_namespace(config: &Config) -> Result<Option<NamespaceName>> {
    let by_variable = lookup(NAMESPACE_VARIABLE).is_some_and(|value| !value.is_empty());
    if config.namespace.is_none() && !by_variable {
        return Ok(None);
    }
    namespace_of(config).map(Some)
}

async fn hints(config: &Config) -> Result<Hints> {
    if config.network == Network::Process {
        return Err(unavailable());
    }
    if !config.peers.is_empty() {
        return Ok(Hints::Named(peers(&config.peers).await?));
    }
    let mut otherwise = Vec::new();
    for text in peer_texts(config) {
        otherwise.extend(FixedPeer::parse_list(&text).map_err(|why| bad_peer(&text, why))?);
    }
    let chosen = choose(config, &inventory().unwrap_or_default())?;
    if chosen.is_empty() && config.network == Network::Lan {
        let why = "this machine has no network: no interface is up with an address".to_owned();
        return Err(Error::Config(ConfigProblem::NoDiscovery(why)));
    }
    let interface_set = MachineInterfaces::of(config)?.look();
    let policy =
        interface_set.map_or_else(AddressPolicy::everywhere, |interface_set| interface_set.policy);
    let discovery = discover(config, &chosen)?;
    Ok(Hints::Announced { discovery, policy, otherwise })
}

/// The addresses of the named peers, one list for each.
async fn peers(texts: &[String]) -> Result<Vec<Vec<SocketAddr>>> {
    let mut machines = Vec::new();
    for text in texts {
        let bad = |why| bad_peer(text, why);
        for peer in FixedPeer::parse_list(text).map_err(bad)? {
            machines.push(peer.resolve().await.map_err(bad)?);
        }
    }
    Ok(machines)
}

fn bad_peer(text: &str, why: impl Display) -> Error {
    Error::Config(ConfigProblem::BadPeer(format!("{text}: {why}")))
}

fn store(
    namespace: &NamespaceName,
    home: &Home,
    key: &ClusterKey,
    other: OtherKey,
) -> Result<KeyBefore> {
    let there = home.cluster_key_path(namespace).symlink_metadata().is_ok();
    match store_cluster_key(namespace, home, key, Stored::Keep) {
        Ok(()) => Ok(if there { KeyBefore::SameKey } else { KeyBefore::Nothing }),
        Err(IdentityProblem::OtherKeyStored { .. }) if other == OtherKey::Replace => {
            store_cluster_key(namespace, home, key, Stored::Replace)?;
            Ok(KeyBefore::AnotherKey)
        }
        Err(IdentityProblem::OtherKeyStored { .. }) if other == OtherKey::Follow => {
            store_next_key(namespace, home, key)?;
            Ok(KeyBefore::CurrentKey)
        }
        Err(problem) => Err(problem.into()),
    }
}

fn unavailable() -> Error {
    let why = "this process cannot start a thread, or has no network".to_owned();
    Error::Config(ConfigProblem::NoDiscovery(why))
}
