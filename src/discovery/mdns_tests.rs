//! Layer: Shells.
//!
//! Multicast DNS tried in network namespaces of its own, so that no packet of it leaves the test.

use super::super::contract::{self, Stage};
use super::super::sighting::testing::advert;
use super::*;
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
        let mut info = ServiceInfo::new(SERVICE, instance, &host, "127.0.0.1", port, txt).expect("a service");
        info.set_requires_probe(false);
        responder.daemon.register(info).expect("the thread runs");
        Box::new(responder)
    }
}

/// Runs `story` on a thread with a network namespace of its own in which nothing but loopback is up.
#[allow(deprecated)] // In favour of an unsafe twin: it may split file descriptors between threads, which NEWNET does not.
fn alone<F: Future<Output = ()>>(story: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::spawn(move || {
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET).expect("needs root");
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("needs iproute2").success());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(story());
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
#[ignore = "needs root for a network namespace"]
fn keeps_the_contract_of_discovery() {
    alone(|| contract::suite(|| OnLoopback));
}

#[test]
#[ignore = "needs root for a network namespace"]
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
            matches!(&lo.activity, Activity::Active { addresses, adverts: 1.., .. } if addresses.first().copied() == expected),
            "{lo}"
        );
        let away = MdnsDiscovery::start(MdnsScope::Interfaces(vec!["eth7".to_owned()])).expect("it may come later");
        let lines: Vec<String> = away.report().iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["lo: skipped (not asked for)", "eth7: skipped (not on this machine)"]);
    });
}

#[test]
fn no_interface_is_an_error() {
    let started = MdnsDiscovery::start(MdnsScope::Interfaces(Vec::new()));
    assert_eq!(started.err(), Some(DiscoveryProblem::NoInterface));
}

/// Not a test but a node for scripts/mdns-namespaces.sh: announces for some seconds and prints what it sees when.
#[test]
#[ignore = "a node for a script"]
fn probe() {
    let Ok(spec) = std::env::var("POTLUCK_MDNS_PROBE") else { return };
    let mut words = spec.split_whitespace();
    let scope = words.next().unwrap_or_default();
    let number: u16 = words.next().and_then(|n| n.parse().ok()).unwrap_or_default();
    let millis: u64 = words.next().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let scope = match scope {
        "loopback" => MdnsScope::Loopback,
        names => MdnsScope::Interfaces(names.split(',').map(str::to_owned).collect()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let started = Instant::now();
        let mut node = MdnsDiscovery::start(scope).expect("it starts");
        node.announce(&advert(number, None)).await.expect("it announces");
        let end = started + Duration::from_millis(millis);
        while let Ok(sighting) = tokio::time::timeout_at(end, node.next()).await {
            let after = started.elapsed().as_millis();
            match sighting {
                Sighting::Appeared(seen) => println!("PROBE {number} +{after} sees {} at {:?}", seen.boot.0, seen.addresses),
                Sighting::Vanished { instance } => println!("PROBE {number} +{after} lost {instance}"),
            }
        }
        node.report().iter().for_each(|line| println!("PROBE {number} {line}"));
        node.withdraw().await;
    });
}
