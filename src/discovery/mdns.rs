//! Discovery by multicast DNS: service `_potluck._tcp.local.`, with one random instance and host
//! name per boot.
//!
//! The responder is a separate thread that uses every interface by default. So it is told first to
//! disable all interfaces and then to enable those of the [`MdnsScope`]; only after that is
//! anything queried or announced. One effect remains: at the start it joins the multicast group on
//! every interface and leaves it a moment later, so the kernel's group-membership reports (IGMP,
//! MLD; without any data of ours) may be seen there.
//!
//! Of two nodes that start within a second, one sees the other after 10 to 60 milliseconds; the
//! reverse takes up to about a second, because a record must not be multicast twice within a
//! second. That suffices: the node that sees the other one dials.
//!
//! A flood of foreign records is limited in two places. The responder keeps every record until its
//! time to live has expired, so beyond a limit it is made to forget all of them. It also drops a
//! listener that is a thousand events behind, and is then restarted.

mod responder;
mod scope;

use super::Discovery;
use super::report::{Activity, DiscoveryProblem, InterfaceReport, SkipReason};
use super::sighting::{Advert, Sighting};
use crate::os::{address_of, is_link_local};
use async_trait::async_trait;
use if_addrs::Interface;
use mdns_sd::{DaemonEvent, IfKind, Metrics, ResolvedService, ScopedIp, ServiceEvent, ServiceInfo};
use responder::{Responder, SERVICE};
pub use scope::MdnsScope;
use scope::kinds_of;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;
use tokio::time::Instant;

/// Interval between two checks of the responder.
const CHECK: Duration = Duration::from_secs(1);

/// Interval between two checks while there are at least this many records.
const CHECK_BUSY: Duration = Duration::from_millis(100);
const RECORDS_MANY: i64 = 400;

/// Most records that it may keep. A cluster of 32 needs two hundred. The cost of each packet grows
/// with the records, and a new query reports all of them at once, which must fit into the channel
/// of a thousand events.
const RECORDS_MAX: i64 = 1600;

/// Pause after a good-bye. It takes effect after one second, and an announcement of the same name
/// within that second would be missed.
const SILENCE: Duration = Duration::from_millis(1500);

/// Timeout of a withdrawal. The first good-bye is sent at once, a second one after 120 ms.
const UNREGISTER: Duration = Duration::from_millis(500);
const SECOND_GOODBYE: Duration = Duration::from_millis(150);

/// [`Discovery`] by multicast DNS. Needs a tokio runtime with time.
pub struct MdnsDiscovery {
    scope: MdnsScope,
    responder: Option<Responder>,
    announced: Option<Advert>,
    check_at: Instant,
    restart_at: Option<Instant>,
    /// When to drop all records, so that new interfaces are queried without known answers.
    forget_at: Option<Instant>,
    /// The last withdrawn name, and until when it must not be announced.
    withdrawn: Option<(String, Instant)>,
    counts: Counts,
    /// This machine's addresses on the network, as of the last check.
    own: BTreeSet<IpAddr>,
}

#[derive(Default)]
struct Counts {
    /// Adverts received, by interface.
    adverts: BTreeMap<String, u64>,
    dropped: u64,
    /// Queries sent by earlier responders, and by the present one.
    queries_before: u64,
    queries: u64,
    errors: u64,
}

impl MdnsDiscovery {
    /// Starts to listen. Sends only queries, and only within `scope`. Without an interface it is
    /// silent until it [follows](Discovery::follow) one.
    pub fn start(scope: MdnsScope) -> Result<MdnsDiscovery, DiscoveryProblem> {
        let responder = Responder::start(&scope).ok_or(DiscoveryProblem::Unavailable)?;
        Ok(MdnsDiscovery {
            scope,
            responder: Some(responder),
            announced: None,
            // At once: the first check learns this machine's addresses.
            check_at: Instant::now(),
            restart_at: None,
            forget_at: None,
            withdrawn: None,
            counts: Counts::default(),
            own: BTreeSet::new(),
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
        // The responder announces the addresses of its interfaces and follows their changes;
        // loopback has a single fixed address.
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
        // The names are random, and probing for conflicts would take 750 ms.
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
            // A name without its records, which may follow.
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
        // An invitation is no node, and a node of this machine is heard whatever the network does.
        let counts = advert.pairing.is_none() && !self.is_here(&advert);
        let interfaces = if counts { interfaces_of(service) } else { BTreeSet::new() };
        for interface in interfaces {
            *self.counts.adverts.entry(interface).or_default() += 1;
        }
        Some(Sighting::Appeared(advert))
    }

    /// Whether a node of this machine announces itself, seen on the network.
    fn is_here(&self, advert: &Advert) -> bool {
        let is_own = |to: &SocketAddr| self.own.contains(&to.ip());
        !advert.addresses.is_empty() && advert.addresses.iter().all(is_own)
    }

    fn is_own(&self, instance: &str) -> bool {
        self.announced.as_ref().is_some_and(|advert| advert.instance.eq_ignore_ascii_case(instance))
    }

    /// Runs once a second and when a query is due: restarts a responder that was given up, reads
    /// the requested counters, and requests new ones.
    fn check(&mut self) {
        let now = Instant::now();
        self.check_at = now + CHECK;
        if matches!(self.scope, MdnsScope::Interfaces(_)) {
            let all = if_addrs::get_if_addrs().unwrap_or_default();
            self.own = all.iter().map(Interface::ip).collect();
        }
        if self.restart_at.is_some_and(|at| at <= now) {
            self.responder = Responder::start(&self.scope);
            self.restart_at = if self.responder.is_some() { None } else { Some(now + SILENCE) };
            // After a failure the report shows an interface without queries; the next announcement
            // tries again.
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
            // The records that remain after forgetting do not belong to our service; only a restart
            // removes them.
            true if forgot && records > 4 * RECORDS_MAX => self.give_up(),
            true => responder.forget(now),
            false => {}
        }
    }

    /// Ends the responder, with all its records.
    fn give_up(&mut self) {
        self.counts.dropped += 1;
        self.counts.queries_before += std::mem::take(&mut self.counts.queries);
        self.responder = None;
        self.restart_at = Some(Instant::now() + SILENCE);
        self.check_at = Instant::now() + SILENCE;
    }

    fn report_of(&self, name: &str, addresses: &[&Interface]) -> Activity {
        if !addresses.iter().any(|at| self.scope.names(at)) && !self.scope.has_name(name) {
            return Activity::Skipped(SkipReason::NotAsked);
        }
        if addresses.iter().all(|at| at.is_p2p()) {
            return Activity::Skipped(SkipReason::PointToPoint);
        }
        if !addresses.iter().any(|at| at.is_oper_up()) {
            return Activity::Skipped(SkipReason::Down);
        }
        Activity::Active {
            addresses: addresses
                .iter()
                .filter(|at| self.scope.announces(at))
                .map(|at| address_of(&at.addr))
                .collect(),
            // Every query goes out on every interface.
            queries: Some(self.counts.queries_before + self.counts.queries),
            adverts: self.counts.adverts.get(name).copied().unwrap_or_default(),
            dropped: self.counts.dropped + self.counts.errors,
        }
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
                // In this order, so that a flood of events cannot prevent the check that detects
                // it.
                biased;
                () = tokio::time::sleep_until(self.check_at) => self.check(),
                event = responder.event() => match event {
                    Some(event) => {
                        if let Some(sighting) = self.noticed(event) {
                            return sighting;
                        }
                    }
                    // The listener fell behind and was dropped, or the thread has ended.
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
        // If the thread has ended, `next` notices and replaces it.
        if !gone.is_empty() {
            let _ = responder.daemon.disable_interface(gone);
        }
        if !come.is_empty() {
            let _ = responder.daemon.enable_interface(come);
            // A node that is known through another interface does not answer on this one, and
            // answers that were just sent are not repeated.
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
                    activity: Activity::Skipped(SkipReason::Missing),
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

/// The instance in a full service name; `None` if the name does not have our form.
fn instance_of(full_name: &str) -> Option<&str> {
    let instance = full_name.strip_suffix(SERVICE)?.strip_suffix('.')?;
    (instance.len() <= Advert::INSTANCE_BYTES_MAX).then_some(instance)
}

fn socket_addr(ip: &ScopedIp, port: u16) -> Option<SocketAddr> {
    match ip {
        ScopedIp::V4(v4) => Some(SocketAddr::from((*v4.addr(), port))),
        ScopedIp::V6(v6) => {
            // Only link-local addresses need the interface. For others it is left out, so that two
            // sightings of the same address are equal.
            let scope = if is_link_local(v6.addr()) { v6.scope_id().index } else { 0 };
            Some(SocketAddr::V6(SocketAddrV6::new(*v6.addr(), port, 0, scope)))
        }
        _ => None,
    }
}

/// The interfaces on which an advert was received.
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

/// Multicast DNS in separate network namespaces, so that no packet leaves the test.
#[cfg(test)]
mod tests {
    use super::super::contract::Stage;
    use super::super::sighting::advert;
    use super::*;
    use crate::discovery::contract;
    use std::any::Any;
    use std::future::Future;

    struct OnLoopback;

    impl Stage for OnLoopback {
        fn node(&mut self) -> Box<dyn Discovery> {
            Box::new(MdnsDiscovery::start(MdnsScope::Loopback).expect("multicast on loopback"))
        }

        fn noise(&mut self, instance: &str, port: u16, txt: &[(&str, &str)]) -> Box<dyn Any> {
            let responder = Responder::start(&MdnsScope::Loopback).expect("multicast on loopback");
            let host = format!("noise{port}.local.");
            let mut info = ServiceInfo::new(SERVICE, instance, &host, "127.0.0.1", port, txt)
                .expect("a service");
            info.set_requires_probe(false);
            responder.daemon.register(info).expect("the thread runs");
            Box::new(responder)
        }
    }

    /// Runs `story` on a thread with its own network namespace, in which only loopback is up.
    // Its replacement is unsafe: unsharing descriptors is. NEWNET is not affected.
    #[allow(deprecated)]
    fn alone<F: Future<Output = ()>>(story: impl FnOnce() -> F + Send + 'static) {
        let thread = std::thread::spawn(move || {
            rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET).expect("needs root");
            let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
            assert!(up.expect("needs iproute2").success());
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(story());
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    #[test]
    #[ignore = "needs root for a network namespace: make test ARGS=multicast"]
    fn keeps_the_contract_of_discovery() {
        alone(|| contract::suite(|| OnLoopback));
    }

    #[test]
    #[ignore = "needs root for a network namespace: make test ARGS=multicast"]
    fn a_report_names_every_interface_and_why_it_is_skipped() {
        alone(|| async {
            let mut a = MdnsDiscovery::start(MdnsScope::Loopback).expect("multicast on loopback");
            let mut b = MdnsDiscovery::start(MdnsScope::Loopback).expect("multicast on loopback");
            b.announce(&advert(2, None)).await.expect("it announces");
            a.next().await;
            let report = a.report();
            let lo = report.iter().find(|line| line.interface == "lo").expect("lo is there");
            let expected = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
            assert!(
                matches!(
                    &lo.activity,
                    Activity::Active { addresses, adverts: 1.., .. }
                        if addresses.first().map(|at| at.ip) == expected
                ),
                "{lo}"
            );
            let away = MdnsDiscovery::start(MdnsScope::Interfaces(vec!["eth7".to_owned()]))
                .expect("it may come later");
            let lines: Vec<String> = away.report().iter().map(ToString::to_string).collect();
            assert_eq!(
                lines,
                ["lo: skipped (not asked for)", "eth7: skipped (not on this machine)"]
            );
        });
    }

    #[test]
    #[ignore = "needs root for a network namespace: make test ARGS=multicast"]
    fn without_an_interface_it_is_silent_until_it_follows_one() {
        alone(|| async {
            let nowhere = MdnsScope::Interfaces(Vec::new());
            let mut waiting = MdnsDiscovery::start(nowhere).expect("it waits");
            let lines = |discovery: &MdnsDiscovery| {
                discovery.report().iter().map(ToString::to_string).collect()
            };
            let before: Vec<String> = lines(&waiting);
            assert_eq!(before, ["lo: skipped (not asked for)"]);
            waiting.follow(&["lo".to_owned()]);
            let after: Vec<String> = lines(&waiting);
            assert_eq!(after, ["lo: 0 queries sent, 0 heard"]);
        });
    }
}
