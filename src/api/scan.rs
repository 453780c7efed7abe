//! A passive scan of the local network for other nodes.

use super::admissions::namespace;
use super::config::{Admission, Config, Network};
use super::environment::home_of;
use super::start::{choose, discover};
use crate::discovery::{Advert, Discovery, Sighting};
use crate::identity::Namespace;
use crate::node::own_thread;
use crate::os::inventory;
use crate::report::{ConfigProblem, Error, Membership, Neighbour, Result, Scan};
use crate::wire::PROTOCOL_VERSION;
use std::collections::BTreeMap;
use std::time::Duration;

/// Listens for `patience` to the nodes that announce themselves on the interfaces of `config`. It
/// sends mDNS queries but announces nothing and connects to no node. It works without a cluster
/// key: then every cluster counts as [`Membership::Other`]. With [`Network::Process`] the result is
/// empty at once.
///
/// It runs on its own thread with its own runtime, so the caller needs no tokio runtime. If the
/// future is dropped, the scan still runs until `patience` is over and its result is discarded.
///
/// # Errors
/// [`Error::Config`] if the configuration is invalid, if there is no thread, or if discovery cannot
/// start and neither the configuration nor `POTLUCK_PEERS` names a peer. [`Error::Identity`] if the
/// cluster key cannot be used or there is no directory for files.
pub async fn scan(config: Config, patience: Duration) -> Result<Scan> {
    let seen = own_thread(
        "potluck-look",
        |_| unavailable(),
        async move |done| {
            // An error means that the caller has dropped the future.
            drop(done.send(look(&config, patience).await));
        },
    );
    seen?.await.unwrap_or_else(|_| Err(unavailable()))
}

async fn look(config: &Config, patience: Duration) -> Result<Scan> {
    let ours = own_namespace(config)?;
    if config.network == Network::Process {
        return Ok(Scan { neighbours: Vec::new(), interfaces: Vec::new() });
    }
    let chosen = choose(config, &inventory().unwrap_or_default())?;
    let mut discovery = discover(config, &chosen)?;
    let mut adverts = BTreeMap::new();
    // The scan normally ends by this timeout: another node could always announce itself.
    let _ = tokio::time::timeout(patience, listen(&mut *discovery, &mut adverts)).await;
    let mut neighbours: Vec<Neighbour> =
        adverts.into_values().map(|advert| neighbour(advert, ours.as_ref())).collect();
    neighbours.sort_by(|a, b| a.addresses.cmp(&b.addresses));
    Ok(Scan { neighbours, interfaces: discovery.report() })
}

async fn listen(discovery: &mut dyn Discovery, adverts: &mut BTreeMap<String, Advert>) {
    loop {
        match discovery.next().await {
            Sighting::Appeared(advert)
                if adverts.len() < NEIGHBOURS_MAX || adverts.contains_key(&advert.instance) =>
            {
                adverts.insert(advert.instance.clone(), advert);
            }
            Sighting::Appeared(_) => {}
            Sighting::Vanished { instance } => {
                adverts.remove(&instance);
            }
        }
    }
}

fn own_namespace(config: &Config) -> Result<Option<Namespace>> {
    match namespace(config, &home_of(config)?) {
        Ok(namespace) => Ok(Some(namespace)),
        Err(Error::Config(ConfigProblem::NoClusterKey)) if config.admission == Admission::Found => {
            Ok(None)
        }
        Err(problem) => Err(problem),
    }
}

fn neighbour(advert: Advert, ours: Option<&Namespace>) -> Neighbour {
    let membership = match advert.tags {
        _ if advert.version != PROTOCOL_VERSION => Membership::OtherVersion,
        _ if advert.pairing.is_some() => Membership::Invitation,
        None => Membership::None,
        Some(tags) if ours.is_some_and(|it| it.knows(advert.boot, tags.cluster)) => {
            Membership::Ours
        }
        Some(_) => Membership::Other,
    };
    Neighbour { version: advert.version, addresses: advert.addresses, membership }
}

fn unavailable() -> Error {
    Error::Config(ConfigProblem::NoDiscovery("this process may not start a thread".to_owned()))
}

// More announcements than this mean that the network is flooded; the list is for people to read.
const NEIGHBOURS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::{Medium, Tags};
    use crate::identity::{Boot, ClusterKey, NamespaceName, Selector};
    use std::net::SocketAddr;

    fn advert(instance: &str, version: u8, tag: Option<[u8; 8]>) -> Advert {
        let addresses = vec![SocketAddr::from(([10, 0, 0, 1], 47474))];
        let (instance, boot) = (instance.to_owned(), Boot(7));
        let tags = tag.map(|tag| Tags { cluster: tag, job: tag });
        Advert { instance, boot, tags, version, suites: 1, pairing: None, port: 47474, addresses }
    }

    #[test]
    fn the_tag_tells_our_cluster_from_others() {
        let namespace =
            |byte| Namespace::keyed(NamespaceName::default(), ClusterKey::from_bytes(&[byte; 32]));
        let (ours, other) = (namespace(1), namespace(2));
        let membership = |tag, version, of: Option<&Namespace>| {
            neighbour(advert("a", version, tag), of).membership
        };
        assert_eq!(
            membership(Some(ours.tag(Boot(7))), PROTOCOL_VERSION, Some(&ours)),
            Membership::Ours
        );
        assert_eq!(
            membership(Some(other.tag(Boot(7))), PROTOCOL_VERSION, Some(&ours)),
            Membership::Other
        );
        assert_eq!(membership(Some(ours.tag(Boot(7))), PROTOCOL_VERSION, None), Membership::Other);
        assert_eq!(membership(None, PROTOCOL_VERSION, Some(&ours)), Membership::None);
        let invites = Advert { pairing: Selector::of(42), ..advert("a", PROTOCOL_VERSION, None) };
        assert_eq!(neighbour(invites, None).membership, Membership::Invitation);
        assert_eq!(
            membership(Some(ours.tag(Boot(7))), PROTOCOL_VERSION + 1, Some(&ours)),
            Membership::OtherVersion
        );
    }

    #[tokio::test(start_paused = true)]
    async fn adverts_are_kept_until_they_end() {
        let medium = Medium::new();
        let (mut ear, mut one, mut two) = (medium.node(), medium.node(), medium.node());
        one.announce(&advert("one", 1, None)).await.expect("announced");
        two.announce(&advert("two", 1, None)).await.expect("announced");
        let mut adverts = BTreeMap::new();
        let _ = tokio::time::timeout(Duration::from_secs(1), listen(&mut ear, &mut adverts)).await;
        assert_eq!(adverts.len(), 2);
        two.withdraw().await;
        let _ = tokio::time::timeout(Duration::from_secs(1), listen(&mut ear, &mut adverts)).await;
        assert!(adverts.len() == 1 && adverts.contains_key("one"), "{adverts:?}");
    }
}
