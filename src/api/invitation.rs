//! Lets other machines into the cluster by a short code.

use super::admissions::cluster_keys;
use super::config::{Config, Network};
use super::environment::{home_of, namespace_of};
use super::machine_interfaces::MachineInterfaces;
use super::start::{choose, discover, name_of, network_of, random};
use crate::discovery::{Advert, Discovery, Medium};
use crate::identity::{ClusterKey, Name, PairingCode, new_boot};
use crate::link::Net;
use crate::node::{no_port, own_thread};
use crate::os::{Interface, InterfaceSource, inventory};
use crate::pairing::{Doors, InvitationEnd, Terms, Visit, Welcome, Window, invite};
use crate::report::{ConfigProblem, Error, Result};
use crate::trace;
use crate::wire::PROTOCOL_VERSION;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// An open invitation: other machines that are told its [code](Invitation::code) get the cluster
/// key by [`join_by_code`](super::joining::join_by_code).
///
/// It ends when as many machines as were invited have the key, when its time is over, when the code
/// was wrong three times, when its port takes no connections any more, and when this value is
/// dropped. It runs on a thread of its own, so it needs no tokio runtime.
#[derive(Debug)]
pub struct Invitation {
    code: PairingCode,
    addresses: Vec<SocketAddr>,
    events: mpsc::Receiver<InvitationEvent>,
    closed: oneshot::Receiver<()>,
}

/// Something that happened to an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvitationEvent {
    /// A machine has the key.
    Joined {
        /// Its name; `None` if it has not confirmed that it has the key.
        name: Option<Name>,
        /// Its address.
        address: IpAddr,
        /// How many more machines are invited.
        left: usize,
    },
    /// A machine knew the code, and did not keep the key: it has another one, or could not write
    /// the file. Its place is free again.
    Declined {
        /// Its name.
        name: Name,
        /// Its address.
        address: IpAddr,
    },
    /// A machine tried a wrong code.
    WrongCode {
        /// The address.
        address: IpAddr,
        /// How many more wrong codes end the invitation.
        left: u32,
    },
    /// The invitation has ended. The last event.
    Ended(InvitationEnd),
}

impl Invitation {
    /// How long an invitation usually stands.
    pub const LASTS: Duration = Duration::from_secs(600);
    /// How long it may stand.
    pub const LASTS_MAX: Duration = Duration::from_secs(3600);
    /// How many machines it may be for: a full group without this one.
    pub const MACHINES_MAX: usize = crate::protocol::MEMBERS_MAX - 1;

    /// Invites `machines` machines, from one to [`Invitation::MACHINES_MAX`], for at most `lasts`,
    /// up to [`Invitation::LASTS_MAX`]; a value outside counts as the nearest of these. The cluster
    /// is the one that a node with this configuration would join. If its key changes meanwhile, the
    /// machines that come later get the new one.
    ///
    /// It listens on the first free port of `config.ports` and announces itself on the interfaces
    /// of `config`, like a node; a node of this machine may run beside it. Connections to other
    /// interfaces are refused. If this future is dropped, the invitation ends.
    ///
    /// # Errors
    /// [`Error::Config`] if the configuration is invalid, names no cluster key
    /// ([`ConfigProblem::NoClusterKey`]), or there is no port or no thread. [`Error::Identity`] if
    /// the cluster key cannot be used, there is no directory for files, or the system has no
    /// randomness.
    pub async fn open(config: Config, machines: usize, lasts: Duration) -> Result<Invitation> {
        let open = own_thread("potluck-invite", no_port, async move |opened| {
            run(&config, machines, lasts, opened).await;
        });
        open?.await.unwrap_or(Err(Error::Closed))
    }

    /// The code, for the people at the other machines.
    pub fn code(&self) -> &PairingCode {
        &self.code
    }

    /// Where the invitation can be reached without multicast: the present addresses of this machine
    /// on the interfaces that it uses.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Waits for the next event; `None` after [`InvitationEvent::Ended`]. Cancel-safe. Of more than
    /// 64 events that wait, the latest are lost, except the last.
    pub async fn next(&mut self) -> Option<InvitationEvent> {
        self.events.recv().await
    }

    /// Ends the invitation, and waits, for about a second at most, until it is no longer announced.
    pub async fn close(mut self) {
        self.events.close();
        // An error means that the thread has ended.
        let _ = self.closed.await;
    }
}

/// The invitation's thread.
async fn run(
    config: &Config,
    machines: usize,
    lasts: Duration,
    opened: oneshot::Sender<Result<Invitation>>,
) {
    let (tell, events) = mpsc::channel(EVENTS_MAX);
    let (_open, closed) = oneshot::channel();
    match prepare(config, machines, lasts).await {
        Ok(Prepared { doors, advert, terms, addresses }) => {
            let code = terms.code.clone();
            let invitation = Invitation { code, addresses, events, closed };
            if opened.send(Ok(invitation)).is_ok() {
                stand(doors, advert, terms, &tell).await;
            }
        }
        // An error means that the caller has dropped the future.
        Err(error) => drop(opened.send(Err(error))),
    }
}

async fn stand(doors: Doors, advert: Advert, terms: Terms, tell: &mpsc::Sender<InvitationEvent>) {
    let heard = |from, visit| {
        if let Some(event) = event_of(from, visit) {
            // A reader that does not read loses it.
            let _ = tell.try_send(event);
        }
    };
    let end = invite(doors, advert, Arc::new(terms), heard, tell.closed()).await;
    if let Some(end) = end {
        // An error means that the invitation was dropped.
        let _ = tell.send(InvitationEvent::Ended(end)).await;
    }
}

fn event_of(address: IpAddr, visit: Visit) -> Option<InvitationEvent> {
    match visit {
        Visit::Took { name, left } => Some(InvitationEvent::Joined { name, address, left }),
        Visit::Declined(name) => Some(InvitationEvent::Declined { name, address }),
        Visit::WrongCode { left } => Some(InvitationEvent::WrongCode { address, left }),
        Visit::Left(_) => None,
    }
}

/// All that an invitation needs.
struct Prepared {
    doors: Doors,
    advert: Advert,
    terms: Terms,
    addresses: Vec<SocketAddr>,
}

async fn prepare(config: &Config, machines: usize, lasts: Duration) -> Result<Prepared> {
    let welcome =
        Welcome { key: key_of(config)?, namespace: namespace_of(config)?, name: name_of(config) };
    if config.network == Network::Process {
        let why = "machines are invited over a network".to_owned();
        return Err(Error::Config(ConfigProblem::NoDiscovery(why)));
    }
    let chosen = choose(config, &inventory().unwrap_or_default())?;
    let mut interface_source = MachineInterfaces::of(config)?;
    let listener =
        network_of(config).listen(&config.ports).await.map_err(|error| no_port(&error))?;
    let port = listener.port();
    let addresses = match config.network {
        Network::Loopback => vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))],
        _ => addresses_of(
            &interface_source.look().map_or(chosen.clone(), |interface_set| interface_set.chosen),
            port,
        ),
    };
    let code = PairingCode::of_random(&*random()?);
    let advert = advert_of(&code, port)?;
    let machines = machines.clamp(1, Invitation::MACHINES_MAX);
    let lasts_ms = lasts.min(Invitation::LASTS_MAX).as_millis() as u64;
    let window = Mutex::new(Window::open(0, lasts_ms, machines));
    let welcome = lasting(config.clone(), welcome);
    let terms = Terms { code, welcome, window, began: Instant::now() };
    let doors = Doors {
        listener,
        discovery: announced(config, &chosen),
        interface_source: Box::new(interface_source),
    };
    Ok(Prepared { doors, advert, terms, addresses })
}

/// Gives the welcome with the key that lasts at the time of the call: the key file may change while
/// the invitation stands. A file that cannot be used any longer changes nothing.
fn lasting(config: Config, first: Welcome) -> Box<dyn Fn() -> Welcome + Send + Sync> {
    Box::new(move || {
        let key = key_of(&config).unwrap_or_else(|problem| {
            trace::warn!(%problem, "the invitation hands on the key that it began with");
            first.key.clone()
        });
        Welcome { key, ..first.clone() }
    })
}

/// The cluster key of the configuration, while it is being changed the next one. A namespace
/// without one has nothing to give.
fn key_of(config: &Config) -> Result<ClusterKey> {
    let keys = cluster_keys(config, &config.admission, &home_of(config)?)?;
    Ok(keys.lasting().clone())
}

/// The advert of an invitation. Its instance and boot are new and it has no tags, so only the
/// addresses of this machine connect it to the cluster.
fn advert_of(code: &PairingCode, port: u16) -> Result<Advert> {
    Ok(Advert {
        instance: Advert::instance_of(*random()?),
        boot: new_boot()?,
        tags: None,
        version: PROTOCOL_VERSION,
        suites: 1,
        pairing: Some(code.selector()),
        port,
        addresses: Vec::new(),
    })
}

/// Multicast discovery; where it cannot start, joiners have to name this machine.
fn announced(config: &Config, chosen: &[Interface]) -> Box<dyn Discovery> {
    discover(config, chosen).unwrap_or_else(|problem| {
        trace::warn!(%problem, "only machines that are told this one's address find it");
        Box::new(Medium::new().node())
    })
}

/// IPv4 addresses first, which are easier to type; no link-local ones, which need an interface.
fn addresses_of(chosen: &[Interface], port: u16) -> Vec<SocketAddr> {
    let all = chosen.iter().flat_map(|interface| &interface.addresses).map(|a| a.ip);
    let mut ips: Vec<IpAddr> = all.filter(|ip| !is_link_local(*ip)).collect();
    ips.sort_unstable();
    ips.dedup();
    ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

impl fmt::Display for InvitationEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvitationEvent::Joined { name: Some(name), address, .. } => {
                write!(f, "{name} at {address} has the key")
            }
            InvitationEvent::Joined { name: None, address, .. } => {
                write!(f, "a machine at {address} was sent the key, and has not confirmed it")
            }
            InvitationEvent::Declined { name, address } => write!(
                f,
                "{name} at {address} knew the code and did not keep the key; see what it says there"
            ),
            InvitationEvent::WrongCode { address, left: 0 } => {
                write!(f, "a wrong code came from {address}")
            }
            InvitationEvent::WrongCode { address, left } => {
                write!(f, "a wrong code came from {address}; {left} more end the invitation")
            }
            InvitationEvent::Ended(end) => write!(f, "the invitation has ended: {end}"),
        }
    }
}

/// Events that wait for the reader: more than an honest invitation has.
const EVENTS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::config::Admission;
    use super::super::keys::Keys;
    use super::*;
    use crate::identity::Scratch;

    #[test]
    fn an_invitation_hands_on_the_key_that_lasts() {
        let scratch = Scratch::new();
        let mut config = Config::loopback();
        config.home = Some(scratch.path().join("home"));
        let keys = Keys::of(&config).expect("a home");
        let first = keys.create_cluster_key().expect("a key");
        let namespace = namespace_of(&config).expect("a name");
        let welcome = Welcome { key: first.clone(), namespace, name: name_of(&config) };
        let lasting = lasting(config.clone(), welcome.clone());
        assert_eq!(lasting(), welcome);
        let next = keys.rotate_cluster_key().expect("a next key");
        assert_eq!(lasting(), Welcome { key: next.clone(), ..welcome.clone() });
        keys.finish_rotation().expect("the next key is the only one");
        assert_eq!(lasting(), Welcome { key: next, ..welcome.clone() });
        std::fs::remove_file(keys.cluster_key_file()).expect("removed");
        assert_eq!(lasting(), welcome, "the one that it began with");
        config.admission = Admission::Key(first);
        keys.create_cluster_key().expect("another key");
        assert_eq!(super::lasting(config, welcome.clone())(), welcome, "the given key stays");
    }
}
