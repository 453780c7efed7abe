//! The copies of the cluster key in the memory of a process: one while nodes use it, none after.

#![cfg(target_os = "linux")]

use potluck::Config;
use potluck::blocking::{self, Wait};
use potluck::keys::ClusterKey;
use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;
use zeroize::Zeroize;

/// The bytes of the key, each changed by [`MASK`], so that this program's own data are no copy.
const MASKED: [u8; 32] = *b"bytes that are nowhere but here.";
const MASK: u8 = 0xa5;

/// Memory read at a time.
const PIECE: usize = 64 * 1024;

/// How many copies of the key are in the writable memory of this process.
fn copies() -> usize {
    let memory = File::open("/proc/self/mem").expect("own memory");
    let maps = read_to_string("/proc/self/maps").expect("own memory");
    let mut piece = vec![0; PIECE];
    // The bytes that were read are a copy, too.
    let own = piece.as_ptr() as usize..piece.as_ptr() as usize + PIECE;
    let mut found = 0;
    for line in maps.lines().filter(|line| line.contains(" rw")) {
        let range = line.split(' ').next().expect("a range");
        let (from, to) = range.split_once('-').expect("a range");
        let place = |text| usize::from_str_radix(text, 16).expect("a number");
        let (mut at, to) = (place(from), place(to));
        while at + MASKED.len() <= to {
            let len = PIECE.min(to - at);
            // Some pages cannot be read.
            let read = memory.read_at(&mut piece[..len], at as u64).unwrap_or(0);
            let begins = |window: &[u8]| window.iter().zip(MASKED).all(|(a, b)| *a == b ^ MASK);
            let places = piece[..read].windows(MASKED.len()).enumerate();
            found += places.filter(|(n, w)| begins(w) && !own.contains(&(at + n))).count();
            at += (len - MASKED.len() + 1).max(1);
        }
    }
    piece.zeroize();
    found
}

fn key() -> ClusterKey {
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(MASKED).for_each(|(byte, masked)| *byte = masked ^ MASK);
    let key = ClusterKey::from_bytes(&bytes);
    bytes.zeroize();
    key
}

#[test]
fn the_cluster_key_is_wiped_when_nobody_uses_it() {
    let join = || {
        let config = Config::local();
        let builder = potluck::Builder::new(config).key(key()).min_members(2);
        blocking::Cluster::join_with(builder).expect("joined")
    };
    assert_eq!(copies(), 0, "before there is any");
    let (one, two) = (join(), join());
    let (mut a, mut b) = (one.context().expect("one"), two.context().expect("two"));
    std::thread::scope(|scope| {
        scope.spawn(|| a.all_reduce(&mut [1.0_f32; 100]).wait().expect("one"));
        b.all_reduce(&mut [2.0_f32; 100]).wait().expect("two");
    });
    drop((a, b));
    let during = copies();
    one.leave();
    two.leave();
    let after = copies();
    println!("measured: {during} copies of the key while two nodes use it, {after} afterwards");
    assert!((1..=4).contains(&during), "{during} copies");
    assert_eq!(after, 0);
}
