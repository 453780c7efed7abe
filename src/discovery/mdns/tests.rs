//! Multicast DNS in separate network namespaces, so that no packet leaves the test.

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
        let mut info =
            ServiceInfo::new(SERVICE, instance, &host, "127.0.0.1", port, txt).expect("a service");
        info.set_requires_probe(false);
        responder.daemon.register(info).expect("the thread runs");
        Box::new(responder)
    }
}

/// Runs `story` on a thread with its own network namespace, in which only loopback is up.
#[allow(deprecated)] // Its replacement is unsafe: unsharing descriptors is. NEWNET is not affected.
fn alone<F: Future<Output = ()>>(story: impl FnOnce() -> F + Send + 'static) {
    let thread = std::thread::spawn(move || {
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET).expect("needs root");
        let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status();
        assert!(up.expect("needs iproute2").success());
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
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
        assert_eq!(lines, ["lo: skipped (not asked for)", "eth7: skipped (not on this machine)"]);
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
