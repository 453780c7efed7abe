//! The inviter: answers joiners until the invitation has ended.

#[cfg(test)]
mod tests;

use super::talk::{Terms, Visit, receive};
use super::window::InvitationEnd;
use crate::discovery::{Advert, Discovery};
use crate::link::{HandshakeLimiter, Listener, Stream, Ticket};
use crate::os::{AddressPolicy, InterfaceSet, InterfaceSource};
use crate::trace;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

/// The system interfaces that an inviter needs.
pub struct Doors {
    /// Its port.
    pub listener: Box<dyn Listener>,
    /// Announces it.
    pub discovery: Box<dyn Discovery>,
    /// The interfaces that it uses.
    pub interface_source: Box<dyn InterfaceSource>,
}

/// The inviter while the invitation stands.
struct Inviter {
    terms: Arc<Terms>,
    gate: HandshakeLimiter,
    /// The last answer of [`Doors::interface_source`]; `None` if every interface is used.
    interface_set: Option<InterfaceSet>,
    visits: JoinSet<(Ticket, IpAddr, Visit)>,
}

/// Answers joiners until the invitation has ended or `wanted` does, then withdraws the
/// announcement. Calls `heard` for each visit that has not ended as [`Visit::Left`]. Returns `None`
/// if the invitation was not wanted any longer.
pub async fn invite(
    mut doors: Doors,
    advert: Advert,
    terms: Arc<Terms>,
    mut heard: impl FnMut(IpAddr, Visit),
    wanted: impl Future<Output = ()>,
) -> Option<InvitationEnd> {
    if let Err(problem) = doors.discovery.announce(&advert).await {
        trace::warn!(%problem, "only machines that are told this one's address find it");
    }
    let interface_set = doors.interface_source.look();
    let mut inviter =
        Inviter { terms, gate: HandshakeLimiter::new(), interface_set, visits: JoinSet::new() };
    let end = tokio::select! {
        end = inviter.run(&mut doors, &mut heard) => Some(end),
        () = wanted => None,
    };
    // No joiner is answered while the announcement is withdrawn.
    drop((inviter, doors.listener));
    doors.discovery.withdraw().await;
    end
}

impl Inviter {
    async fn run(
        &mut self,
        doors: &mut Doors,
        heard: &mut impl FnMut(IpAddr, Visit),
    ) -> InvitationEnd {
        let mut look_at = Instant::now() + LOOK;
        loop {
            let (end, is_busy) =
                self.terms.window(|window, now| (window.end(now), window.is_busy()));
            if let Some(end) = end.filter(|_| !is_busy) {
                // Report the visit that has ended the invitation, too: on this thread, a visit that
                // was judged is over.
                while let Some(done) = self.visits.try_join_next() {
                    self.on_visited(done, heard);
                }
                return end;
            }
            tokio::select! {
                accepted = doors.listener.accept(), if end.is_none() => match accepted {
                    Ok((stream, from)) => self.on_accepted(stream, from),
                    Err(_) => return InvitationEnd::PortLost,
                },
                Some(done) = self.visits.join_next() => self.on_visited(done, heard),
                // Discovery works only while it is read.
                _ = doors.discovery.next() => {}
                () = sleep_until(look_at) => {
                    look_at = Instant::now() + LOOK;
                    self.look(doors);
                }
            }
        }
    }

    fn on_accepted(&mut self, stream: Box<dyn Stream>, from: SocketAddr) {
        let ip = from.ip().to_canonical();
        let now_ms = self.terms.window(|_, now| now);
        if !self.is_used(&*stream) {
            trace::debug!(from = %ip, "refused a connection to an interface that is not used");
            return;
        }
        let Ok(ticket) = self.gate.admit(now_ms, ip) else { return };
        let terms = Arc::clone(&self.terms);
        self.visits.spawn(async move { (ticket, ip, receive(stream, &terms).await) });
    }

    fn on_visited(
        &mut self,
        done: Result<(Ticket, IpAddr, Visit), JoinError>,
        heard: &mut impl FnMut(IpAddr, Visit),
    ) {
        // An error would be a panic in the exchange.
        let Ok((ticket, from, visit)) = done else { return };
        self.gate.release(ticket);
        match visit {
            Visit::Left(trouble) => trace::debug!(%from, %trouble, "nobody was let in"),
            visit => heard(from, visit),
        }
    }

    /// Whether a connection has come to an interface that is used. The port itself listens on all.
    fn is_used(&self, stream: &dyn Stream) -> bool {
        let Some(interface_set) = &self.interface_set else { return true };
        if interface_set.policy == AddressPolicy::Loopback {
            return true; // the port listens there only
        }
        let Ok(at) = stream.local_addr() else { return false };
        let ip = at.ip().to_canonical();
        interface_set.chosen.iter().any(|interface| interface.addresses.iter().any(|a| a.ip == ip))
    }

    /// Follows the interfaces, and looks at the clock: the time of the invitation may be over.
    fn look(&mut self, doors: &mut Doors) {
        let Some(interface_set) = doors.interface_source.look() else { return };
        if self.interface_set.as_ref() == Some(&interface_set) {
            return;
        }
        if interface_set.policy != AddressPolicy::Loopback {
            let names: Vec<String> = interface_set.chosen.iter().map(|i| i.name.clone()).collect();
            doors.discovery.follow(&names);
        }
        self.interface_set = Some(interface_set);
    }
}

/// Interval between two looks at the interfaces and the clock.
const LOOK: Duration = Duration::from_millis(500);
