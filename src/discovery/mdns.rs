//! Layer: Shells.
//!
//! Discovery by multicast DNS: service `_potluck._tcp.local.`, one random instance and host name
//! per boot.
//!
//! The responder is a thread of its own that talks to every interface unless told otherwise. It is
//! told first: all off, then those of the [`MdnsScope`] on, and only then is anything asked or
//! announced. What cannot be prevented is that it joins the multicast group on every interface when
//! it starts and leaves it a moment later, so the kernel's own group-membership reports (IGMP, MLD;
//! nothing of ours in them) may be seen there.
//!
//! Two nodes that start within a second see each other after 10 to 60 milliseconds one way and
//! after up to about a second the other way, since a record must not be multicast twice within a
//! second. It is enough: whoever sees first dials.
//!
//! A flood of foreign records is held off in two places. The responder keeps every record until its
//! time to live is over, so beyond a number it is made to forget them all; and it gives up a
//! listener that falls a thousand events behind, and is then started anew.

use super::Discovery;
use super::address::is_link_local;
use super::report::{Activity, DiscoveryProblem, InterfaceReport, Skip};
use super::sighting::{Advert, Sighting};
use async_trait::async_trait;
use if_addrs::Interface;
use mdns_sd::{
    DaemonEvent, IfKind, Metrics, Receiver, ResolvedService, ScopedIp, ServiceDaemon, ServiceEvent,
    ServiceInfo,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;
use tokio::time::Instant;

/// What we are called on the network.
const SERVICE: &str = "_potluck._tcp.local.";

/// Between two looks at the responder's state.
const CHECK: Duration = Duration::from_secs(1);

/// Seconds between its looks for new interfaces and addresses; its own default of 5 is long for a
/// cable plugged in.
const INTERFACES_EVERY_S: u32 = 2;

/// Between two looks while there are many records, and how many those are.
const CHECK_BUSY: Duration = Duration::from_millis(100);
const RECORDS_MANY: i64 = 400;

/// Records it may keep. A cluster of 16 needs a hundred; each packet costs it time in proportion to
/// them, and all are told again at once when we ask again, which must fit into its channel of a
/// thousand events.
const RECORDS_MAX: i64 = 1600;

/// Silence after a good-bye. It takes effect after a second, and the same name announced within
/// that second goes unnoticed.
const SILENCE: Duration = Duration::from_millis(1500);

/// When to ask again, besides the responder's own 1, 2, 4, 8 ... seconds: early, for answers that
/// were held back because the record had been sent within the second before, and every minute,
/// which also tells again of everybody still there.
const ASK_AGAIN: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_millis(350), Duration::from_millis(350)];
const ASK_ALWAYS: Duration = Duration::from_secs(60);

/// How long a withdrawal may take: the first good-bye is immediate, a second follows after 120 ms.
const UNREGISTER: Duration = Duration::from_millis(500);
const SECOND_GOODBYE: Duration = Duration::from_millis(150);

/// Where multicast may go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MdnsScope {
    /// Only 127.0.0.1, for nodes of one machine.
    Loopback,
    /// These interfaces, by name or by one of their IP addresses, with IPv4 and IPv6, whenever they
    /// are there.
    Interfaces(Vec<String>),
}

/// Multicast DNS behind the door of discovery. Needs a tokio runtime with time.
pub struct MdnsDiscovery {
    scope: MdnsScope,
    responder: Option<Responder>,
    announced: Option<Advert>,
    check_at: Instant,
    restart_at: Option<Instant>,
    /// New interfaces are asked about as if nobody were known.
    forget_at: Option<Instant>,
    /// The name last taken back, and until when it must not be announced.
    withdrawn: Option<(String, Instant)>,
    counts: Counts,
}

/// The thread and what it tells us.
struct Responder {
    daemon: ServiceDaemon,
    /// Oldest first. Asking again opens a new channel and ends the one before, which may still hold
    /// events.
    events: VecDeque<Receiver<ServiceEvent>>,
    asked: usize,
    ask_at: Instant,
    /// Whether it had to forget its records at the last look.
    forgot: bool,
    monitor: Receiver<DaemonEvent>,
    metrics: Option<Receiver<Metrics>>,
}

#[derive(Default)]
struct Counts {
    /// Adverts heard, by interface.
    adverts: BTreeMap<String, u64>,
    dropped: u64,
    /// Questions that responders before this one sent, and this one.
    queries_before: u64,
    queries: u64,
    errors: u64,
}

impl MdnsDiscovery {
    /// Starts to listen. Nothing of ours is sent but questions, and those only within `scope`.
    pub fn start(scope: MdnsScope) -> Result<MdnsDiscovery, DiscoveryProblem> {
        if matches!(&scope, MdnsScope::Interfaces(names) if names.is_empty()) {
            return Err(DiscoveryProblem::NoInterface);
        }
        let responder = Responder::start(&scope).ok_or(DiscoveryProblem::Unavailable)?;
        Ok(MdnsDiscovery {
            scope,
            responder: Some(responder),
            announced: None,
            check_at: Instant::now() + ASK_AGAIN[0],
            restart_at: None,
            forget_at: None,
            withdrawn: None,
            counts: Counts::default(),
        })
    }

    fn register(&self) -> Result<(), DiscoveryProblem> {
        let (Some(responder), Some(advert)) = (&self.responder, &self.announced) else {
            return Ok(());
        };
        let info = self.service_info(advert).ok_or(DiscoveryProblem::BadAdvert)?;
        responder.daemon.register(info).map_err(|_| DiscoveryProblem::Unavailable)
    }

    fn service_info(&self, advert: &Advert) -> Option<ServiceInfo> {
        let host = format!("{}.local.", advert.instance);
        // The interfaces' own addresses are announced and followed when they change; on loopback
        // there is only one.
        let (follow, addresses) = match &self.scope {
            MdnsScope::Loopback => (false, vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            MdnsScope::Interfaces(_) => (true, Vec::new()),
        };
        let info = ServiceInfo::new(
            SERVICE,
            &advert.instance,
            &host,
            &addresses[..],
            advert.port,
            &advert.to_txt()[..],
        );
        let mut info = info.ok()?;
        // The names are random: probing for namesakes would only cost 750 ms.
        info.set_requires_probe(false);
        Some(if follow { info.enable_addr_auto() } else { info })
    }

    fn noticed(&mut self, event: ServiceEvent) -> Option<Sighting> {
        match event {
            ServiceEvent::ServiceResolved(service) => self.resolved(&service),
            ServiceEvent::ServiceRemoved(_, name) => {
                let instance = instance_of(&name)?.to_owned();
                (!self.is_own(&instance)).then_some(Sighting::Vanished { instance })
            }
            // A name without its records yet; they follow or they do not.
            _ => None,
        }
    }

    fn resolved(&mut self, service: &ResolvedService) -> Option<Sighting> {
        let instance = instance_of(&service.fullname)?;
        if self.is_own(instance) {
            return None;
        }
        let txt = service
            .txt_properties
            .iter()
            .map(|property| (property.key(), property.val().unwrap_or_default()));
        let addresses = service.addresses.iter().filter_map(|ip| socket_addr(ip, service.port));
        let Ok(advert) = Advert::from_txt(instance, service.port, addresses, txt) else {
            self.counts.dropped += 1;
            return None;
        };
        for interface in interfaces_of(service) {
            *self.counts.adverts.entry(interface).or_default() += 1;
        }
        Some(Sighting::Appeared(advert))
    }

    fn is_own(&self, instance: &str) -> bool {
        self.announced.as_ref().is_some_and(|advert| advert.instance.eq_ignore_ascii_case(instance))
    }

    /// Once a second, and when it is time to ask again: starts a responder that was given up, reads
    /// the counters, asks for new ones.
    fn check(&mut self) {
        let now = Instant::now();
        self.check_at = now + CHECK;
        if self.restart_at.is_some_and(|at| at <= now) {
            self.responder = Responder::start(&self.scope);
            self.restart_at = if self.responder.is_some() { None } else { Some(now + SILENCE) };
            // A refusal shows in the report as an interface on which nothing is sent; the next
            // announcement tries again.
            let _ = self.register();
        }
        let Some(responder) = &mut self.responder else { return };
        if self.forget_at.take_if(|at| *at <= now).is_some() {
            responder.forget(now);
        }
        responder.ask_again(now);
        self.check_at =
            self.check_at.min(responder.ask_at).min(self.forget_at.unwrap_or(self.check_at));
        let metrics = responder.metrics.take().and_then(|metrics| metrics.try_recv().ok());
        responder.metrics = responder.daemon.get_metrics().ok();
        self.counts.errors += responder
            .monitor
            .try_iter()
            .filter(|event| matches!(event, DaemonEvent::Error(_)))
            .count() as u64;
        let Some(metrics) = metrics else { return };
        self.counts.queries = count(&metrics, "browse").unsigned_abs();
        let records = ["cached-ptr", "cached-srv", "cached-txt", "cached-addr", "cached-nsec"];
        let records = records.iter().map(|key| count(&metrics, key)).sum::<i64>();
        if records > RECORDS_MANY {
            self.check_at = now + CHECK_BUSY;
        }
        let forgot = std::mem::replace(&mut responder.forgot, records > RECORDS_MAX);
        match records > RECORDS_MAX {
            // What it keeps in spite of forgetting is not of our service; only a new start ends
            // that.
            true if forgot && records > 4 * RECORDS_MAX => self.give_up(),
            true => responder.forget(now),
            false => {}
        }
    }

    /// Ends the responder and with it all that it remembers.
    fn give_up(&mut self) {
        self.counts.dropped += 1;
        self.counts.queries_before += std::mem::take(&mut self.counts.queries);
        self.responder = None;
        self.restart_at = Some(Instant::now() + SILENCE);
        self.check_at = Instant::now() + SILENCE;
    }

    fn report_of(&self, name: &str, addresses: &[&Interface]) -> Activity {
        if !addresses.iter().any(|at| is_asked(&self.scope, at)) && !asks_for(&self.scope, name) {
            return Activity::Skipped(Skip::NotAsked);
        }
        if addresses.iter().all(|at| at.is_p2p()) {
            return Activity::Skipped(Skip::PointToPoint);
        }
        if !addresses.iter().any(|at| at.is_oper_up()) {
            return Activity::Skipped(Skip::Down);
        }
        Activity::Active {
            addresses: addresses
                .iter()
                .filter(|at| is_used(&self.scope, at))
                .map(|at| at.ip())
                .collect(),
            // Every question goes out on every interface.
            queries: Some(self.counts.queries_before + self.counts.queries),
            adverts: self.counts.adverts.get(name).copied().unwrap_or_default(),
            dropped: self.counts.dropped + self.counts.errors,
        }
    }
}

impl Responder {
    fn start(scope: &MdnsScope) -> Option<Responder> {
        let daemon = ServiceDaemon::new().ok()?;
        match Responder::confine(daemon.clone(), scope) {
            Ok(responder) => Some(responder),
            Err(_) => {
                drop(daemon.shutdown());
                None
            }
        }
    }

    /// The order is the point: commands are carried out one after the other, so nothing is asked
    /// before all is off.
    fn confine(daemon: ServiceDaemon, scope: &MdnsScope) -> mdns_sd::Result<Responder> {
        daemon.disable_interface(IfKind::All)?;
        daemon.enable_interface(kinds(scope))?;
        daemon.set_ip_check_interval(INTERFACES_EVERY_S)?;
        let monitor = daemon.monitor()?;
        let events = daemon.browse(SERVICE)?;
        let metrics = daemon.get_metrics().ok();
        let ask_at = Instant::now() + ASK_AGAIN[0];
        Ok(Responder {
            daemon,
            events: VecDeque::from([events]),
            asked: 0,
            ask_at,
            forgot: false,
            monitor,
            metrics,
        })
    }

    fn ask_again(&mut self, now: Instant) {
        // A listener that has not even emptied its older channels does not need more answers.
        if now < self.ask_at || self.events.len() > ASK_AGAIN.len() {
            return;
        }
        self.asked += 1;
        self.ask_at = now + ASK_AGAIN.get(self.asked).copied().unwrap_or(ASK_ALWAYS);
        self.events.extend(self.daemon.browse(SERVICE));
    }

    /// Drops all records of our service. Whoever is still there answers the question that follows.
    fn forget(&mut self, now: Instant) {
        if self.daemon.stop_browse(SERVICE).is_ok() {
            self.events.extend(self.daemon.browse(SERVICE));
            self.asked = 0;
            self.ask_at = now + ASK_AGAIN[0];
        }
    }

    /// The next event, or `None` when the thread gave us up. Cancel-safe.
    async fn event(&mut self) -> Option<ServiceEvent> {
        while let Some(oldest) = self.events.front() {
            match oldest.recv_async().await {
                Ok(event) => return Some(event),
                Err(_) => drop(self.events.pop_front()),
            }
        }
        None
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // Ends the thread, which says good-bye for what is still announced.
        drop(self.daemon.shutdown());
    }
}

#[async_trait]
impl Discovery for MdnsDiscovery {
    async fn announce(&mut self, advert: &Advert) -> Result<(), DiscoveryProblem> {
        if self.announced.as_ref().is_some_and(|before| before.instance != advert.instance) {
            self.withdraw().await;
        }
        if let Some((_, until)) =
            self.withdrawn.as_ref().filter(|(instance, _)| *instance == advert.instance)
        {
            tokio::time::sleep_until(*until).await;
        }
        self.announced = Some(advert.clone());
        self.register()
    }

    async fn next(&mut self) -> Sighting {
        loop {
            let Some(responder) = &mut self.responder else {
                tokio::time::sleep_until(self.check_at).await;
                self.check();
                continue;
            };
            tokio::select! {
                // In this order, so that a flood of events cannot keep the check from seeing it.
                biased;
                () = tokio::time::sleep_until(self.check_at) => self.check(),
                event = responder.event() => match event {
                    Some(event) => {
                        if let Some(sighting) = self.noticed(event) {
                            return sighting;
                        }
                    }
                    // The listener fell behind and was given up, or the thread ended.
                    None => self.give_up(),
                },
            }
        }
    }

    fn follow(&mut self, interfaces: &[String]) {
        let MdnsScope::Interfaces(before) = &self.scope else { return };
        let gone: Vec<IfKind> = before
            .iter()
            .filter(|name| !interfaces.contains(name))
            .flat_map(|name| kinds_of(name))
            .collect();
        let come: Vec<IfKind> = interfaces
            .iter()
            .filter(|name| !before.contains(name))
            .flat_map(|name| kinds_of(name))
            .collect();
        self.scope = MdnsScope::Interfaces(interfaces.to_vec());
        let Some(responder) = &mut self.responder else { return };
        // A thread that has ended is noticed, and replaced, by whoever waits for its events.
        if !gone.is_empty() {
            let _ = responder.daemon.disable_interface(gone);
        }
        if !come.is_empty() {
            let _ = responder.daemon.enable_interface(come);
            // Who is known by another interface already does not answer on this one, and what was
            // just said is not said again.
            let at = Instant::now() + SILENCE;
            self.forget_at = Some(at);
            self.check_at = self.check_at.min(at);
        }
    }

    fn report(&self) -> Vec<InterfaceReport> {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let names: BTreeSet<&str> = interfaces.iter().map(|at| at.name.as_str()).collect();
        let mut reports: Vec<InterfaceReport> = Vec::new();
        for name in names {
            let addresses: Vec<&Interface> =
                interfaces.iter().filter(|at| at.name == name).collect();
            reports.push(InterfaceReport {
                interface: name.to_owned(),
                activity: self.report_of(name, &addresses),
            });
        }
        if let MdnsScope::Interfaces(asked) = &self.scope {
            let here = |asked: &str| {
                interfaces.iter().any(|at| at.name == asked || asked.parse() == Ok(at.ip()))
            };
            for asked in asked.iter().filter(|asked| !here(asked)) {
                reports.push(InterfaceReport {
                    interface: asked.clone(),
                    activity: Activity::Skipped(Skip::Missing),
                });
            }
        }
        reports
    }

    async fn withdraw(&mut self) {
        let Some(advert) = self.announced.take() else { return };
        self.withdrawn = Some((advert.instance.clone(), Instant::now() + SILENCE));
        let Some(responder) = &self.responder else { return };
        let name = format!("{}.{SERVICE}", advert.instance);
        if let Ok(done) = responder.daemon.unregister(&name)
            && let Ok(Ok(_)) = tokio::time::timeout(UNREGISTER, done.recv_async()).await
        {
            tokio::time::sleep(SECOND_GOODBYE).await;
        }
    }
}

fn kinds(scope: &MdnsScope) -> Vec<IfKind> {
    match scope {
        MdnsScope::Loopback => vec![IfKind::LoopbackV4],
        MdnsScope::Interfaces(names) => names.iter().flat_map(|name| kinds_of(name)).collect(),
    }
}

/// Of an interface that is named by an address both families are used, so its other addresses count
/// too.
fn kinds_of(name: &str) -> Vec<IfKind> {
    let Ok(ip) = name.parse::<IpAddr>() else { return vec![IfKind::from(name)] };
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let found = interfaces.iter().find(|at| at.ip() == ip);
    vec![found.map_or(IfKind::Addr(ip), |at| IfKind::Name(at.name.clone()))]
}

/// Whether the scope names this address or its interface.
fn is_asked(scope: &MdnsScope, at: &Interface) -> bool {
    match scope {
        MdnsScope::Loopback => at.ip() == IpAddr::V4(Ipv4Addr::LOCALHOST),
        MdnsScope::Interfaces(names) => {
            names.iter().any(|name| *name == at.name || name.parse() == Ok(at.ip()))
        }
    }
}

fn asks_for(scope: &MdnsScope, interface: &str) -> bool {
    matches!(scope, MdnsScope::Interfaces(names) if names.iter().any(|name| name == interface))
}

/// Whether the address is announced: on loopback one, elsewhere all of the interface.
fn is_used(scope: &MdnsScope, at: &Interface) -> bool {
    *scope != MdnsScope::Loopback || is_asked(scope, at)
}

/// The instance in a full service name; what is not of our form is of no use.
fn instance_of(full_name: &str) -> Option<&str> {
    let instance = full_name.strip_suffix(SERVICE)?.strip_suffix('.')?;
    (instance.len() <= Advert::INSTANCE_BYTES_MAX).then_some(instance)
}

fn socket_addr(ip: &ScopedIp, port: u16) -> Option<SocketAddr> {
    match ip {
        ScopedIp::V4(v4) => Some(SocketAddr::from((*v4.addr(), port))),
        ScopedIp::V6(v6) => {
            // Only link-local addresses need the interface, and only without it are two sightings
            // of another one equal.
            let scope = if is_link_local(v6.addr()) { v6.scope_id().index } else { 0 };
            Some(SocketAddr::V6(SocketAddrV6::new(*v6.addr(), port, 0, scope)))
        }
        _ => None,
    }
}

/// The interfaces on which an advert was heard.
fn interfaces_of(service: &ResolvedService) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for ip in &service.addresses {
        match ip {
            ScopedIp::V4(v4) => names.extend(v4.interface_ids().iter().map(|id| id.name.clone())),
            ScopedIp::V6(v6) => names.extend([v6.scope_id().name.clone()]),
            _ => {}
        }
    }
    names
}

fn count(metrics: &Metrics, key: &str) -> i64 {
    metrics.get(key).copied().unwrap_or_default()
}

#[cfg(test)]
#[path = "mdns_tests.rs"]
mod tests;
