//! The bounds of unfinished handshakes: of one source, of all together, and of members.

use super::*;

fn host(n: u32) -> IpAddr {
    IpAddr::from((0x0a00_0000 + n).to_be_bytes())
}

#[test]
fn one_source_cannot_hold_more_than_its_share() {
    let mut gate = HandshakeLimiter::new();
    let held: Vec<_> = (0..4).map(|_| gate.admit(0, host(1)).expect("within the share")).collect();
    assert_eq!(gate.admit(0, host(1)), Err(Overload::SourceHalfOpen));
    assert!(gate.admit(0, host(2)).is_ok(), "another source");
    held.into_iter().for_each(|ticket| gate.release(ticket));
    assert!(gate.admit(0, host(1)).is_ok());
}

#[test]
fn a_source_is_slowed_to_five_a_second() {
    let mut gate = HandshakeLimiter::new();
    let mut pass = |now| gate.admit(now, host(1)).map(|ticket| gate.release(ticket));
    assert_eq!((0..20).filter(|_| pass(0).is_ok()).count(), 10);
    assert_eq!(pass(199), Err(Overload::SourceRate));
    assert_eq!(pass(200), Ok(()));
    assert_eq!(
        (0..20).filter(|_| pass(1_000_000).is_ok()).count(),
        10,
        "no more than the burst is saved up"
    );
}

#[test]
fn everybody_together_is_slowed_but_not_members() {
    let mut gate = HandshakeLimiter::new();
    gate.authenticated(0, host(0));
    let passed =
        (1..200).filter(|n| gate.admit(0, host(*n)).map(|t| gate.release(t)).is_ok()).count();
    assert_eq!(passed, 50);
    assert_eq!(gate.admit(0, host(999)), Err(Overload::Rate));
    assert!(gate.admit(0, host(0)).is_ok());
    assert!(gate.admit(0, IpAddr::from([127, 0, 0, 1])).is_ok());
}

#[test]
fn one_source_cannot_use_up_the_rate_of_all() {
    let mut gate = HandshakeLimiter::new();
    for _ in 0..1000 {
        let _ = gate.admit(0, host(1)).map(|ticket| gate.release(ticket));
    }
    assert!(gate.admit(0, host(2)).is_ok());
}

#[test]
fn members_find_a_place_when_strangers_hold_all() {
    let mut gate = HandshakeLimiter::new();
    gate.authenticated(0, host(500));
    let held: Vec<_> =
        (0..64).filter_map(|n| gate.admit(u64::from(n) * 100, host(n)).ok()).collect();
    assert_eq!(held.len(), HandshakeLimiter::HALF_OPEN_MAX);
    assert_eq!(gate.admit(7000, host(100)), Err(Overload::HalfOpen));
    let reserved = gate.admit(7000, host(500)).expect("a reserved place");
    gate.release(reserved);
    assert_eq!(
        gate.admit(HandshakeLimiter::AUTHENTICATED_MS, host(500)),
        Err(Overload::HalfOpen),
        "an hour later"
    );
}

#[test]
fn loopback_has_room_for_many_nodes() {
    let mut gate = HandshakeLimiter::new();
    let ip = IpAddr::from([127, 0, 0, 1]);
    let held: Vec<_> = (0..50).filter_map(|_| gate.admit(0, ip).ok()).collect();
    assert_eq!(held.len(), HandshakeLimiter::TRUSTED_HALF_OPEN_MAX);
    let mut gate = HandshakeLimiter::new();
    let passed = (0..200).filter(|_| gate.admit(0, ip).map(|t| gate.release(t)).is_ok()).count();
    assert_eq!(passed, 100);
}

#[test]
fn the_table_is_bounded_and_keeps_members() {
    let mut gate = HandshakeLimiter::new();
    gate.authenticated(0, host(0));
    for n in 1..5000 {
        if let Ok(ticket) = gate.admit(u64::from(n) * 100, host(n)) {
            gate.release(ticket);
        }
    }
    assert_eq!(gate.sources.len(), HandshakeLimiter::SOURCES_MAX);
    assert!(gate.sources.contains_key(&Source::of(host(0))));
}

#[test]
fn one_ipv6_host_does_not_block_its_neighbours() {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    for network in ["fe80::", "fd00::", "2001:db8::"] {
        let mut gate = HandshakeLimiter::new();
        let held: Vec<_> =
            (0..100).filter_map(|_| gate.admit(0, ip(&format!("{network}1"))).ok()).collect();
        assert_eq!(held.len(), HandshakeLimiter::SOURCE_HALF_OPEN_MAX);
        assert!(gate.admit(0, ip(&format!("{network}2"))).is_ok(), "{network}");
    }
}

#[test]
fn a_member_is_not_slowed_like_a_stranger() {
    let mut gate = HandshakeLimiter::new();
    let pass = |gate: &mut HandshakeLimiter, now| gate.admit(now, host(1)).map(|t| gate.release(t));
    assert_eq!((0..50).filter(|_| pass(&mut gate, 0).is_ok()).count(), 10);
    gate.authenticated(0, host(1));
    assert_eq!((0..200).filter(|_| pass(&mut gate, 0).is_ok()).count(), 100);
    let held: Vec<_> = (0..50).filter_map(|_| gate.admit(9000, host(1)).ok()).collect();
    assert_eq!(held.len(), HandshakeLimiter::TRUSTED_HALF_OPEN_MAX);
    held.into_iter().for_each(|ticket| gate.release(ticket));
    // An hour later it is a stranger again.
    let later = HandshakeLimiter::AUTHENTICATED_MS;
    assert_eq!((0..50).filter(|_| pass(&mut gate, later).is_ok()).count(), 10);
}

#[test]
fn a_mapped_address_is_ipv4() {
    let of = |text: &str| Source::of(text.parse().expect("an address"));
    assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    assert_eq!(of("::1"), of("127.0.0.1"));
}

#[test]
fn a_clock_that_stands_still_or_overflows_does_no_harm() {
    let mut gate = HandshakeLimiter::new();
    gate.admit(u64::MAX, host(1)).map(|t| gate.release(t)).expect("first");
    gate.admit(0, host(1)).map(|t| gate.release(t)).expect("second");
}

#[test]
fn a_first_message_is_first_once() {
    let mut replays = Replays::default();
    assert!(replays.is_first([1; 32]));
    assert!(!replays.is_first([1; 32]));
    for n in 0..Replays::KNOWN_MAX as u64 {
        let mut key = [2; 32];
        key[..8].copy_from_slice(&n.to_le_bytes());
        assert!(replays.is_first(key));
    }
    assert_eq!(
        (replays.known.len(), replays.order.len()),
        (Replays::KNOWN_MAX, Replays::KNOWN_MAX)
    );
}
