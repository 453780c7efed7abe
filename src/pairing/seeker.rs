//! The joiner: finds the invitation of a code, and takes the key there.

#[cfg(test)]
mod tests;

use super::message::Welcome;
use super::problem::PairingProblem;
use super::talk::{Reply, Stage, Trouble, ask};
use crate::discovery::{Advert, Discovery, FixedPeer, Sighting};
use crate::identity::{PairingCode, Selector};
use crate::link::{Net, Stream};
use crate::os::AddressPolicy;
use crate::trace;
use crate::wire::PROTOCOL_VERSION;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Where to look for the invitation.
pub enum Hints {
    /// Among the announcements on the network.
    Announced {
        /// The source of the announcements.
        discovery: Box<dyn Discovery>,
        /// The announced addresses that may be dialled.
        policy: AddressPolicy,
        /// The machines to ask if none whose announcement is heard has been shown the code.
        otherwise: Vec<FixedPeer>,
    },
    /// At these addresses, one list for each machine.
    Named(Vec<Vec<SocketAddr>>),
}

/// An invitation that has let this machine in.
pub struct Found {
    /// The inviter's message.
    pub welcome: Welcome,
    /// Its address.
    pub from: SocketAddr,
    /// Tells it whether the key was kept.
    pub reply: Reply,
}

/// Looks for the invitation of `code` and proves the code there. Takes at most
/// [`SEEK_TIMEOUT`]. Each machine is shown the code once, because it may count a wrong one.
pub async fn seek(
    net: Arc<dyn Net>,
    hints: Hints,
    code: PairingCode,
) -> Result<Found, PairingProblem> {
    let mut search = Search {
        net,
        code,
        guesses: Arc::new(AtomicUsize::new(GUESSES_MAX)),
        attempts: JoinSet::new(),
        known: BTreeMap::new(),
        problem: PairingProblem::NotFound,
    };
    let found = timeout(SEEK_TIMEOUT, search.run(hints)).await;
    found.unwrap_or(None).ok_or(search.problem)
}

struct Search {
    net: Arc<dyn Net>,
    code: PairingCode,
    /// How many peers may still learn whether a guess of theirs at the code is right.
    guesses: Arc<AtomicUsize>,
    attempts: JoinSet<Result<Found, PairingProblem>>,
    /// The machines that are or were asked, by the instance of their advert.
    known: BTreeMap<String, Asked>,
    /// The most that is known about why there is no key.
    problem: PairingProblem,
}

/// A machine that is or was asked.
#[derive(Default)]
struct Asked {
    /// The addresses that were dialled.
    dialled: BTreeSet<SocketAddr>,
    shown: Shown,
}

/// Whether a machine was shown the code. All attempts at it share this.
type Shown = Arc<AtomicBool>;

impl Asked {
    /// Takes those addresses that were not dialled yet.
    fn new_of(&mut self, addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let dialled = &mut self.dialled;
        let is_new = |to: &SocketAddr| dialled.len() < ADDRESSES_MAX && dialled.insert(*to);
        addresses.into_iter().filter(is_new).collect()
    }
}

impl Search {
    async fn run(&mut self, hints: Hints) -> Option<Found> {
        match hints {
            Hints::Named(machines) => self.ask_all(machines).await,
            Hints::Announced { discovery, policy, otherwise } => {
                match self.listen(discovery, &policy).await {
                    // One of the others may be the same machine, which may count a wrong code.
                    None if !self.has_shown() => self.ask_all(resolved(otherwise).await).await,
                    found => found,
                }
            }
        }
    }

    fn has_shown(&self) -> bool {
        self.known.values().any(|asked| asked.shown.load(Ordering::Relaxed))
    }

    async fn ask_all(&mut self, machines: Vec<Vec<SocketAddr>>) -> Option<Found> {
        for addresses in machines.into_iter().take(MACHINES_MAX) {
            self.attempt(addresses, At::Named, Shown::default());
        }
        while let Some(ended) = self.attempts.join_next().await {
            if let Some(found) = self.ended(ended.ok()?) {
                return Some(found);
            }
        }
        None
    }

    async fn listen(
        &mut self,
        mut discovery: Box<dyn Discovery>,
        policy: &AddressPolicy,
    ) -> Option<Found> {
        let began = Instant::now();
        let mut until = began + LISTEN;
        loop {
            tokio::select! {
                sighting = discovery.next() => self.sighted(sighting, policy),
                Some(ended) = self.attempts.join_next() => {
                    if let Some(found) = self.ended(ended.ok()?) {
                        return Some(found);
                    }
                    // Another invitation may have the same selector: those on the network are known
                    // by then.
                    until = until.min(Instant::now().max(began + ALL_HEARD));
                }
                () = sleep_until(until), if self.attempts.is_empty() => return None,
            }
        }
    }

    fn sighted(&mut self, sighting: Sighting, policy: &AddressPolicy) {
        let Sighting::Appeared(advert) = sighting else { return };
        let is_one_more = !self.known.contains_key(&advert.instance);
        if !invites(&advert, self.code.selector())
            || (is_one_more && self.known.len() >= MACHINES_MAX)
        {
            return;
        }
        if advert.version != PROTOCOL_VERSION {
            self.learned(PairingProblem::OtherVersion { theirs: advert.version });
            return;
        }
        let addresses: Vec<SocketAddr> =
            advert.addresses.iter().copied().filter(|to| policy.allows_advertised(*to)).collect();
        // Its addresses may come later than its name.
        if addresses.is_empty() {
            return;
        }
        // Those of the other family may come later still.
        let asked = self.known.entry(advert.instance).or_default();
        let (addresses, shown) = (asked.new_of(addresses), Arc::clone(&asked.shown));
        if !addresses.is_empty() && !shown.load(Ordering::Relaxed) {
            self.attempt(addresses, At::Announced, shown);
        }
    }

    /// Dials these addresses of a machine, and takes the first that answers. Another attempt at the
    /// same machine may go on.
    fn attempt(&mut self, addresses: Vec<SocketAddr>, at: At, shown: Shown) {
        let (net, code, guesses) =
            (Arc::clone(&self.net), self.code.clone(), Arc::clone(&self.guesses));
        self.attempts.spawn(async move {
            let mut problem = match (at, addresses.first()) {
                (At::Announced, Some(at)) => PairingProblem::Unreachable { at: *at },
                _ => PairingProblem::NotFound,
            };
            let mut dials = dials(&net, addresses);
            while let Some(dialled) = dials.join_next().await {
                let Ok(Some((from, stream))) = dialled else { continue };
                let mut is_shown = false;
                let may_show = || {
                    is_shown = shown.swap(true, Ordering::Relaxed);
                    !is_shown && take_one(&guesses)
                };
                match ask(stream, &code, may_show).await {
                    Ok((welcome, reply)) => return Ok(Found { welcome, from, reply }),
                    Err((Stage::Confirmed, trouble)) => return Err(problem_of(trouble)),
                    // The attempt that has shown the code tells its outcome.
                    Err(_) if is_shown => return Err(PairingProblem::NotFound),
                    // A node of the same machine does not answer either.
                    Err((Stage::Unanswered, trouble)) => {
                        trace::debug!(%from, %trouble, "no invitation there");
                        if at == At::Announced {
                            problem = PairingProblem::Refused;
                        }
                    }
                }
            }
            Err(problem)
        });
    }

    fn ended(&mut self, attempt: Result<Found, PairingProblem>) -> Option<Found> {
        attempt.map_err(|problem| self.learned(problem)).ok()
    }

    /// Keeps the problem that says most.
    fn learned(&mut self, problem: PairingProblem) {
        if problem.weight() > self.problem.weight() {
            self.problem = problem;
        }
    }
}

/// How a machine was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Announced,
    Named,
}

/// The addresses of the machines to ask, one list for each. Names without an address are left out.
async fn resolved(peers: Vec<FixedPeer>) -> Vec<Vec<SocketAddr>> {
    let mut machines = Vec::new();
    for peer in peers.into_iter().take(MACHINES_MAX) {
        match peer.resolve().await {
            Ok(addresses) => machines.push(addresses),
            Err(why) => trace::warn!(host = peer.host(), %why, "this machine cannot be asked"),
        }
    }
    machines
}

fn invites(advert: &Advert, selector: Selector) -> bool {
    advert.pairing == Some(selector)
}

fn dials(
    net: &Arc<dyn Net>,
    addresses: Vec<SocketAddr>,
) -> JoinSet<Option<(SocketAddr, Box<dyn Stream>)>> {
    let mut dials = JoinSet::new();
    for to in addresses.into_iter().take(ADDRESSES_MAX) {
        let net = Arc::clone(net);
        dials.spawn(async move { Some((to, net.dial(to).await.ok()?)) });
    }
    dials
}

fn take_one(guesses: &AtomicUsize) -> bool {
    let one_less = |left: usize| left.checked_sub(1);
    guesses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok()
}

/// The problem with a peer that has answered.
fn problem_of(trouble: Trouble) -> PairingProblem {
    match trouble {
        Trouble::Fault(_) => PairingProblem::Forged,
        _ => PairingProblem::Refused,
    }
}

impl PairingProblem {
    fn weight(self) -> u8 {
        match self {
            PairingProblem::NotFound => 0,
            PairingProblem::OtherVersion { .. } => 1,
            PairingProblem::Unreachable { .. } => 2,
            PairingProblem::Forged => 3,
            PairingProblem::Refused => 4,
        }
    }
}

/// How long to wait for an announcement. A query may be lost; it is repeated within the first
/// second and after one, two, four and eight.
const LISTEN: Duration = Duration::from_secs(10);
/// After this time all invitations on the network have usually been heard.
const ALL_HEARD: Duration = Duration::from_secs(2);
/// Bound for a search with all its dials and exchanges.
pub const SEEK_TIMEOUT: Duration = Duration::from_secs(25);
/// Machines to ask. There is one, unless two invitations have the same selector by chance, or an
/// attacker pretends to invite.
const MACHINES_MAX: usize = 4;
/// Peers that may learn whether one guess at the code is right.
const GUESSES_MAX: usize = 3;
/// Addresses of one machine: eight with sixteen ports each.
const ADDRESSES_MAX: usize = 128;
