//! Layer: Shells.
//!
//! What fails, and what does not fail with it.

use super::group::{Buffer, Group, LINKS, PATIENCE, marked, op};
use crate::collective::EngineFault;
use crate::view::Rank;

const A: Rank = Rank(0);
const B: Rank = Rank(1);
const C: Rank = Rank(2);

#[test]
fn the_loss_of_a_peer_fails_only_what_needs_it() {
    for (name, link) in LINKS {
        let group = Group::new(3, link);
        for number in 0..4 {
            group.begin(op(number));
        }
        let [needs, done, other, later] = [0, 1, 2, 3].map(|number| Buffer::new(&group.ends[0], op(number), vec![0; 100_000]));
        needs.region.recv(B, 0, 0, 10).expect("posted");
        // Rank 1 says its last word in the second operation, and leaves.
        let last = Buffer::new(&group.ends[1], op(1), marked(10, 0));
        last.region.send(A, 0, 0, 10).expect("sent");
        assert_eq!(last.sent(), Ok(Some(A)));
        let marker = Buffer::new(&group.ends[1], op(3), vec![1]);
        marker.region.send(A, 0, 0, 1).expect("sent");
        later.region.recv(B, 0, 0, 1).expect("posted");
        assert_eq!(later.received(), Ok(Some(B)), "{name}");
        drop((last, marker));
        group.ends[1].close();
        assert_eq!(needs.received(), Err(EngineFault::LinkLost(B)), "{name}");
        assert_eq!(group.ends[0].fault(op(0)), Some(EngineFault::LinkLost(B)), "{name}");
        // What it had said before is heard.
        done.region.recv(B, 0, 0, 10).expect("here");
        assert_eq!(done.received(), Ok(Some(B)), "{name}");
        assert_eq!(done.take()[..10], marked(10, 0), "{name}");
        // Rank 2 is not concerned.
        let far = Buffer::new(&group.ends[2], op(2), marked(100_000, 5));
        other.region.recv(C, 0, 0, 100_000).expect("posted");
        far.region.send(A, 0, 0, 100_000).expect("sent");
        assert_eq!((other.received(), far.sent()), (Ok(Some(C)), Ok(Some(A))), "{name}");
        assert_eq!(later.region.send(B, 0, 0, 1), Err(EngineFault::LinkLost(B)), "{name}");
        assert_eq!(later.region.wait_recv(PATIENCE), Err(EngineFault::LinkLost(B)), "{name}");
        drop((needs, other, later, far));
        group.end();
    }
}
