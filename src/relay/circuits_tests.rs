//! Complete control links over circuits: three nodes with real handshakes, and a relay in the
//! middle that is honest or not.

use super::switch::{Act, End, Switch};
use super::tunnel::{Said, Tunnels};
use crate::identity::MemberId;
use crate::link::{
    ControlReceiver, ControlSender, Local, Purpose, Refusal, Replays, SecureChannel, Stream,
    initiate, into_control, local, respond,
};
use crate::protocol::{RelayBody, RelayFrame};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

type Outcome = Result<(Box<dyn Stream>, SecureChannel), Refusal>;

/// The changes that the relay makes to the frames.
type Deed = Box<dyn FnMut(&mut RelayFrame) + Send>;

/// One node, and its frames that wait to be sent.
struct Node {
    switch: Switch,
    tunnels: Tunnels,
    said: mpsc::UnboundedReceiver<Said>,
}

/// Nodes 1, 2 and 3 in a row. Frames arrive without delay.
struct Row {
    nodes: BTreeMap<MemberId, Node>,
    deed: Deed,
    /// All bytes that the relay has seen.
    seen: Arc<Mutex<Vec<u8>>>,
    begun: mpsc::UnboundedSender<Box<dyn Stream>>,
}

impl Row {
    fn act(&mut self, at: MemberId, acts: Vec<Act>) {
        for act in acts {
            let Some(node) = self.nodes.get_mut(&at) else { continue };
            match act {
                Act::Begun(end, _) => drop(self.begun.send(node.tunnels.begin(end))),
                Act::Bytes(end, bytes) => node.tunnels.bytes(end, bytes),
                Act::Room(end, cost) => node.tunnels.room(end, cost),
                Act::Ended(end) => node.tunnels.ended(end),
                Act::Send(to, mut frame) => {
                    let Some((middle, _)) = self.nodes.iter().nth(1) else { continue };
                    if let RelayBody::Bytes(bytes) = &frame.body {
                        self.seen.lock().expect("no panic").extend_from_slice(bytes);
                    }
                    if at == *middle {
                        (self.deed)(&mut frame);
                    }
                    let Some(node) = self.nodes.get_mut(&to) else { continue };
                    let acts = node.switch.on_frame(0, at, frame, |_| true).expect("honest");
                    self.act(to, acts);
                }
            }
        }
    }

    fn said(&mut self, at: MemberId, said: Said) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let act = match said {
            Said::Bytes(end, bytes) => node.switch.send(end, bytes),
            Said::Took(end, cost) => node.switch.took(end, cost),
            Said::Closed(end) => node.switch.close(end),
        };
        self.act(at, act.into_iter().collect());
    }

    /// Runs until no node has an end.
    async fn run(mut self) {
        let ids: Vec<MemberId> = self.nodes.keys().copied().collect();
        loop {
            let mut heard = None;
            {
                let mut nodes = self.nodes.values_mut();
                let [Some(a), Some(b), Some(c)] = [nodes.next(), nodes.next(), nodes.next()] else {
                    return;
                };
                tokio::select! {
                    Some(said) = a.said.recv() => heard = Some((ids[0], said)),
                    Some(said) = b.said.recv() => heard = Some((ids[1], said)),
                    Some(said) = c.said.recv() => heard = Some((ids[2], said)),
                    else => {}
                }
            }
            let Some((at, said)) = heard else { return };
            self.said(at, said);
        }
    }
}

/// Links the first node to the third over the second; also returns the bytes that the second has
/// seen.
async fn met(deed: Deed) -> ((Outcome, Outcome), Arc<Mutex<Vec<u8>>>) {
    let locals: [Local; 3] = [local(1, 1, 7), local(2, 2, 7), local(3, 3, 7)];
    let mut by_id: Vec<MemberId> = locals.iter().map(|local| local.hello.id).collect();
    by_id.sort();
    let of = |id: MemberId| locals.iter().find(|local| local.hello.id == id).expect("one of three");
    let node = |id: &MemberId| {
        let (tunnels, said) = Tunnels::new();
        (*id, Node { switch: Switch::new(*id), tunnels, said })
    };
    let (begun, mut begins) = mpsc::unbounded_channel();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut row =
        Row { nodes: by_id.iter().map(node).collect(), deed, seen: Arc::clone(&seen), begun };
    let first = row.nodes.get_mut(&by_id[0]).expect("the first");
    let (end, open): (End, Act) = first.switch.open(by_id.clone()).expect("room");
    let near = first.tunnels.begin(end);
    row.act(by_id[0], vec![open]);
    let far = begins.recv().await.expect("it has begun");
    tokio::spawn(row.run());
    let replays = Mutex::new(Replays::default());
    let outcomes = tokio::join!(
        initiate(near, of(by_id[0]), Purpose::Control, Some(by_id[2])),
        respond(far, of(by_id[2]), &replays, |_| None)
    );
    (outcomes, seen)
}

fn halves(outcome: Outcome) -> (ControlSender, ControlReceiver) {
    let (stream, channel) = outcome.expect("a link");
    into_control(stream, channel)
}

#[tokio::test]
async fn a_link_over_others_is_a_link_and_they_read_nothing() {
    let ((near, far), seen) = met(Box::new(|_| {})).await;
    let ((mut near_to, mut near_from), (mut far_to, mut far_from)) = (halves(near), halves(far));
    let secret = b"what nobody else may read, said often enough to be found ".repeat(400);
    let talking = async {
        near_to.send(&secret).await.expect("sent");
        assert_eq!(far_from.recv().await.expect("received"), secret);
        far_to.send(b"heard").await.expect("sent");
        assert_eq!(near_from.recv().await.expect("received"), b"heard");
    };
    talking.await;
    let seen = seen.lock().expect("no panic");
    assert!(seen.len() > 2 * secret.len(), "both of its links are looked at");
    assert!(
        !seen.windows(16).any(|window| secret.windows(16).take(64).any(|known| known == window))
    );
}

/// At every offset, including those of the handshake.
#[tokio::test]
async fn whoever_changes_what_it_passes_on_ends_the_link_and_nothing_else_comes_of_it() {
    for place in [0_usize, 3, 20, 100, 735, 740, 760, 900] {
        let mut passed = 0;
        let bend = move |frame: &mut RelayFrame| {
            let RelayBody::Bytes(bytes) = &mut frame.body else { return };
            if let Some(byte) = place.checked_sub(passed).and_then(|at| bytes.get_mut(at)) {
                *byte ^= 1;
            }
            passed += bytes.len();
        };
        let ((near, far), _) = met(Box::new(bend)).await;
        let (Ok((near, near_session)), Ok((far, far_session))) = (near, far) else { continue };
        // The offset counts both directions together. If the handshake is over before it, it hits a
        // record.
        let (mut near_to, _near_from) = into_control(near, near_session);
        let (_far_to, mut far_from) = into_control(far, far_session);
        for _ in 0..20 {
            let _ = near_to.send(&[7; 100]).await;
        }
        drop(near_to);
        let mut got = Vec::new();
        while let Ok(message) = far_from.recv().await {
            got.push(message);
        }
        assert!(
            got.len() < 20 && got.iter().all(|message| message[..] == [7; 100]),
            "place {place}: {}",
            got.len()
        );
    }
}
