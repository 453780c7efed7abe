//! The decoders of bytes from the network and from files, one function per fuzz target. Only
//! compiled with `--cfg fuzzing`, and in tests, which replay the inputs in `fuzz/kept`.
//!
//! A decoded value must encode to the same bytes. No input may panic, hang, or allocate more memory
//! than the decoder's bounds allow.

use crate::collective::{
    Engine, EngineCall, Input, Ledger, NativeEngine, Schedule, Threads, ViewBoard,
};
use crate::discovery::Advert;
use crate::election::Durable;
use crate::gloo_ffi::{EAGER_OP_BYTES, Endpoint, Owned, PIECE, SLOTS_MAX};
use crate::identity::{
    ClusterKey, Name, NamespaceName, PairingCode, decode_identity, decode_nodes, encode_identity,
    peers_file, state_file,
};
use crate::link::{
    Binding, DataHeader, DataLink, DataReceiver, DataSender, FrameReader, Hello, MESSAGE1_BYTES,
    PROVEN_BYTES, Phase, Preamble, Purpose, Responder, Role, Sealer, Shutdown, Suite, TAG_BYTES,
    channel_pair_of, control, local,
};
use crate::memory::{DType, Pool};
use crate::node::{Said, StatusReader};
use crate::pairing::{
    CONFIRMATION_BYTES, ELEMENT_BYTES, Inviter, Joiner, RECEIPT_BYTES, Receipt, WELCOME_BYTES,
    Welcome,
};
use crate::protocol::{
    Call, CallKind, Descriptor, Enclosed, EngineFault, EngineKind, Lane, Message,
    OPS_IN_FLIGHT_MAX, OpId, OpMessage, Plan, Rank, ReduceOp, RelayBody, RelayFrame, View,
    member_id, view_of,
};
use crate::relay::{Act, Switch};
use crate::report::Sight;
use crate::topology::KnownPaths;
use crate::wire::{Decode, Encode, Reader};
use std::io;
use std::io::Cursor;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use zeroize::Zeroizing;

/// A fuzz target.
#[cfg(test)]
type Target = fn(&[u8]);

/// All targets by name.
#[cfg(test)]
const TARGETS: [(&str, Target); 15] = [
    ("data_frames", frames),
    ("deliver", deliver),
    ("engine_frames", engine),
    ("handshake", handshake),
    ("identity_file", identity),
    ("nodes_file", nodes),
    ("op_message", op_message),
    ("pairing", pairing),
    ("relay_frames", relay_frames),
    ("sealed_frames", sealed_frames),
    ("state_file", state),
    ("status_link", status_link),
    ("txt_advert", txt),
    ("wire_message", message),
    ("wire_view", view),
];

/// A View, and the queries on its plan.
pub fn view(bytes: &[u8]) {
    let Some(view) = round_trip::<View>(bytes) else { return };
    assert!(view.ranks().all(|rank| view.member(rank).is_some()));
    for count in [0, 1, 7, 100_003] {
        let order = view.plan.fold_order(view.size(), count, 4);
        assert_eq!(order.segments.iter().map(|s| s.elements.len()).sum::<usize>(), count);
        let call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, count as u64);
        if view.engine.kind == EngineKind::Native {
            Schedule::of(&call, None, &view.plan, view.size())
                .expect("a View's plan fits the View");
        }
    }
}

/// A message on the control link.
pub fn message(bytes: &[u8]) {
    round_trip::<Message>(bytes);
}

/// Frames of relay circuits from the neighbours of a node. One frame may cause at most one
/// forwarded frame, and all state is freed when the neighbours disconnect.
pub fn relay_frames(bytes: &[u8]) {
    let neighbours = [1, 2, 3].map(member_id);
    let me = neighbours[1];
    let mut switch = Switch::new(me);
    let mut rest = bytes;
    let mut now = 0;
    while let [from, length, more @ ..] = rest {
        let (frame, after) = more.split_at(more.len().min(usize::from(*length)));
        rest = after;
        now += 1;
        let Some(frame) = round_trip::<RelayFrame>(frame) else { continue };
        let from = neighbours[usize::from(from % 3)];
        match switch.on_frame(now, from, frame, |to| to != me) {
            Ok(acts) => {
                let on = acts.iter().filter(
                    |act| matches!(act, Act::Send(_, frame) if frame.body != RelayBody::Close),
                );
                assert!(on.count() <= 1 && acts.len() <= 2);
                for act in acts {
                    if let Act::Bytes(end, bytes) = act {
                        switch.took(end, bytes.len() as u32);
                    }
                }
            }
            Err(_) => drop(switch.unlinked(from)),
        }
    }
    for neighbour in neighbours {
        switch.unlinked(neighbour);
    }
    assert!(switch.is_empty());
}

/// A message about operations, the schedule of its call, and the ledger that hears it.
pub fn op_message(bytes: &[u8]) {
    round_trip::<OpMessage>(bytes);
    let Some(descriptor) = round_trip::<Descriptor>(bytes) else { return };
    let mut ledger = Ledger::new(&view_of(3), Rank(1));
    if ledger.on_descriptor(Rank(2), descriptor).is_ok() {
        let group = descriptor.op.lane.group(3);
        assert!([1, 2].iter().all(|rank| group.in_group(Rank(*rank)).is_some()));
    }
    for size in [1, 2, 16] {
        let plan = Plan::mesh(size);
        if let Ok(schedule) =
            Schedule::of(&descriptor.call, Some((Rank(0), descriptor.call.count)), &plan, size)
        {
            schedule.input_bytes(Rank(0));
        }
    }
}

/// Unencrypted frames.
pub fn frames(bytes: &[u8]) {
    if let Some(header) = bytes.first_chunk().and_then(|header| DataHeader::from_bytes(header).ok())
    {
        assert_eq!(header.to_bytes()[..], bytes[..DataHeader::BYTES]);
    }
    read_all(FrameReader::new(Cursor::new(bytes.to_vec()), None));
}

/// Authentic records with arbitrary contents, as from a member that violates the protocol. With
/// both cipher suites.
pub fn sealed_frames(bytes: &[u8]) {
    for suite in [Suite::Aes256Gcm, Suite::ChaCha20Poly1305] {
        sealed_frames_of(suite, bytes);
    }
}

fn sealed_frames_of(suite: Suite, bytes: &[u8]) {
    let (ours, theirs) = channel_pair_of(suite);
    let mut stream = Vec::new();
    let mut sealer = theirs.into_halves().0;
    let mut rest = bytes;
    while let Some((length, more)) = rest.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(more.len());
        let (plain, more) = more.split_at(length);
        append_sealed(&mut sealer, plain, &mut stream);
        rest = more;
    }
    stream.extend_from_slice(rest);
    read_all(FrameReader::new(Cursor::new(stream), Some(ours.into_halves().1)));
}

/// Bytes from an unauthenticated peer: a preamble, a first handshake message, a `Hello`.
pub fn handshake(bytes: &[u8]) {
    let asked = bytes.first_chunk().map(Preamble::parse);
    if let (Some(Ok(Preamble::Control)), Some(bytes)) =
        (&asked, bytes.first_chunk::<{ Preamble::BYTES }>())
    {
        assert_eq!(Purpose::Control.preamble(), *bytes);
    }
    if let (Some(Ok(Preamble::Pairing(selector))), Some(bytes)) =
        (&asked, bytes.first_chunk::<{ Preamble::BYTES }>())
    {
        assert_eq!(Preamble::of_pairing(*selector), *bytes);
    }
    round_trip::<Hello>(bytes);
    let binding = Binding { role: Role::Initiator, hash: &[7; 32], static_public: &[9; 32] };
    if let Some(proven) = bytes.first_chunk::<PROVEN_BYTES>() {
        assert!(Hello::verified(proven, &binding).is_err(), "forged a signature");
    }
    let us = local(1, 1, 7);
    if let Some(message1) = bytes.first_chunk::<MESSAGE1_BYTES>() {
        assert!(Responder::open(&us, control(), message1).is_err(), "forged a first message");
    }
}

/// A code that a user types, and the messages of a peer that does not know the code of an exchange,
/// first as a joiner, then as an inviter. The peer gets neither the key nor a confirmation that
/// fits.
pub fn pairing(bytes: &[u8]) {
    if let Ok(code) = PairingCode::parse(&String::from_utf8_lossy(bytes)) {
        assert_eq!(PairingCode::parse(&code.to_text()), Ok(code));
    }
    if let Ok(welcome) = Welcome::from_bytes(bytes) {
        assert_eq!(welcome.to_bytes()[..], *bytes);
    }
    if let Ok(receipt) = Receipt::from_bytes(bytes) {
        assert_eq!(receipt.to_bytes()[..], *bytes);
    }
    let code = PairingCode::of_random(&[5; 16]);
    let seed = || Zeroizing::new([9; 32]);
    let Some((element, rest)) = bytes.split_first_chunk::<ELEMENT_BYTES>() else { return };
    if let (Ok((inviter, _)), Some(confirmation)) =
        (Inviter::answer(&code, seed(), element), rest.first_chunk::<CONFIRMATION_BYTES>())
    {
        assert!(inviter.verify(confirmation).is_err(), "guessed a confirmation");
    }
    let (joiner, first) = Joiner::start(&code, seed());
    if let (Ok((joiner, _)), Some(message)) =
        (joiner.confirm(element), rest.first_chunk::<WELCOME_BYTES>())
    {
        assert!(joiner.open(message).is_err(), "forged a welcome");
    }
    // A joiner that knows the code, and then sends anything.
    let element = first.last_chunk().expect("the first message ends with an element");
    let (inviter, own) = Inviter::answer(&code, seed(), element).expect("an element");
    let confirmation = Joiner::start(&code, seed()).0.confirm(&own).expect("an element").1;
    let welcome = Welcome {
        key: ClusterKey::from_bytes(&[7; 32]),
        namespace: NamespaceName::default(),
        name: Name::from_lossy("fuzz"),
    };
    let (inviter, _) = inviter.verify(&confirmation).expect("it knows the code").welcome(&welcome);
    if let Some(message) = rest.first_chunk::<RECEIPT_BYTES>() {
        assert!(inviter.receipt(message).is_err(), "forged a receipt");
    }
}

/// A TXT record: the instance's name, then one entry per line.
pub fn txt(bytes: &[u8]) {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let instance = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let keys_and_values: Vec<(String, &[u8])> = lines
        .map(|line| {
            let at = line.iter().position(|byte| *byte == b'=').unwrap_or(line.len());
            (
                String::from_utf8_lossy(&line[..at]).into_owned(),
                line.get(at + 1..).unwrap_or_default(),
            )
        })
        .collect();
    let borrowed = keys_and_values.iter().map(|(key, value)| (key.as_str(), *value));
    if let Ok(advert) = Advert::from_txt(&instance, 1, [], borrowed) {
        let written = advert.to_txt();
        let again = Advert::from_txt(
            &instance,
            1,
            [],
            written.iter().map(|(key, value)| (*key, value.as_bytes())),
        );
        assert_eq!(again, Ok(advert));
    }
}

/// The text files of an identity and of a cluster key, and the list of known peers.
pub fn identity(bytes: &[u8]) {
    if let Ok(identity) = decode_identity(bytes) {
        assert_eq!(encode_identity(&identity).as_bytes(), bytes);
    }
    if let Ok(key) = ClusterKey::parse(&String::from_utf8_lossy(bytes)) {
        assert!(ClusterKey::parse(&key.to_text()).is_ok());
    }
    peers_file::decode_peers(bytes);
}

/// The state file, and the election state in it.
pub fn state(bytes: &[u8]) {
    // An input of a fuzzer rarely passes the checksum, so the inner format is also tried alone.
    if let Ok(inner) = state_file::decode_state(bytes) {
        let _ = (Durable::from_bytes(&inner), KnownPaths::from_bytes(&inner));
    }
    round_trip::<Durable>(bytes);
    round_trip::<KnownPaths>(bytes);
}

/// A member of the View that sends arbitrary frames during an operation. The operation ends, with a
/// result or an error.
pub fn engine(bytes: &[u8]) {
    let (size, rest) =
        bytes.split_first().map_or((2, bytes), |(first, rest)| (2 + usize::from(first % 3), rest));
    let view = view_of(size as u8);
    let board = Arc::new(ViewBoard::new(Rank(0), tokio::sync::mpsc::unbounded_channel().0));
    let backend = NativeEngine::new(Pool::new()).open(&Arc::new(view.clone()), Rank(0), board);
    let op = OpId { lane: Lane::MAIN, number: 0 };
    let call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, 16);
    let (report, outcome) = channel();
    let done = Box::new(move |result| drop(report.send(result)));
    backend.start(EngineCall {
        op,
        call,
        plan: Arc::new(view.plan.clone()),
        sync_root: None,
        lengths: None,
        model: None,
        done,
    });
    if let Ok(enclosed) = Enclosed::decode(&mut Reader::new(rest)) {
        backend.receive_enclosed(op, Rank(1), &enclosed);
    }
    for peer in view.ranks().skip(1) {
        backend.attach(peer, Box::new(Scripted(stream_of(rest))));
        backend.credit(op, peer);
    }
    if rest.len().is_multiple_of(2) {
        backend.feed(op, &Input::Borrowed(&[1; 64]));
    } else {
        _ = backend.feed_enclosing(op, &Input::Borrowed(&[1; 64]));
    }
    let ended = outcome
        .recv_timeout(Duration::from_secs(20))
        .expect("the operation ends when its links do");
    assert!(ended.is_err() || rest.len() >= 4, "a result without a contribution");
    backend.close();
}

/// A member of the View that sends arbitrary pieces of messages. Every receive ends, and early
/// pieces are kept only within their bounds.
pub fn deliver(bytes: &[u8]) {
    const LENS: [usize; 3] = [100, 20_000, 300_000];
    const PATIENCE: Duration = Duration::from_secs(20);
    let (threads, peer) = (Arc::new(Threads::default()), Rank(1));
    let end = Endpoint::new(Rank(0), 2, Pool::new(), Arc::clone(&threads));
    let begun = [0, 1].map(|number| {
        let op = OpId { lane: Lane::MAIN, number };
        end.begin(op);
        let region = Owned::new(&end, op, vec![0; LENS.iter().sum()], None);
        let mut offset = 0;
        for (slot, len) in LENS.into_iter().enumerate() {
            // No link is attached yet, so neither call can fail.
            region.region().recv(peer, slot as u64 % 2, offset, len).expect("posted");
            region.region().send(peer, slot as u64 % 2, offset, 0).expect("an empty message");
            offset += len;
        }
        region
    });
    end.attach(peer, Box::new(Scripted(pieces_of(bytes))));
    for region in &begun {
        let received = LENS.map(|_| region.region().wait_recv(PATIENCE));
        let honest = |end: &Result<_, _>| {
            matches!(
                end,
                Ok(Some(Rank(1))) | Err(EngineFault::LinkLost(_) | EngineFault::Protocol(_))
            )
        };
        assert!(received.iter().all(honest), "{received:?}");
    }
    let (ops, bytes) = end.kept();
    assert!(ops <= begun.len() + OPS_IN_FLIGHT_MAX);
    assert!(bytes <= ops * SLOTS_MAX * EAGER_OP_BYTES);
    drop(begun);
    end.close();
    assert_eq!((threads.wait(PATIENCE), threads.panics()), (0, 0));
}

/// Builds frames from four bytes each: operation, phase and flow, chunk, length.
fn pieces_of(bytes: &[u8]) -> Cursor<Vec<u8>> {
    const LENS: [usize; 10] = [
        100,
        0,
        1,
        EAGER_OP_BYTES,
        EAGER_OP_BYTES + 1,
        20_000,
        PIECE,
        300_000 - PIECE,
        PIECE + 1,
        PIECE - 1,
    ];
    let mut stream = Vec::new();
    for frame in bytes.chunks_exact(4).take(160) {
        let op = OpId { lane: Lane::MAIN, number: u64::from(frame[0] >> 1) };
        let phase = match frame[1] >> 5 {
            7 => Phase::Reduce,
            5 | 6 => Phase::Posted,
            _ => Phase::Message,
        };
        let chunk = if frame[2] < 250 { u32::from(frame[2] % 3) } else { u32::MAX };
        let len = match phase {
            Phase::Posted => usize::from(frame[3] / 255),
            _ => LENS[usize::from(frame[3]) % LENS.len()],
        };
        let header =
            DataHeader { op, flow: u32::from(frame[1] % 32), chunk, phase, len: len as u32 };
        stream.extend_from_slice(&header.to_bytes());
        stream.resize(stream.len() + len, frame[3]);
    }
    Cursor::new(stream)
}

/// Builds frames from four bytes each: operation and phase, flow, chunk, length. Nearly every input
/// gives valid frames.
fn stream_of(bytes: &[u8]) -> Cursor<Vec<u8>> {
    let mut stream = Vec::new();
    for frame in bytes.chunks_exact(4).take(32) {
        let op = OpId { lane: Lane::MAIN, number: u64::from(frame[0] >> 6) };
        let phase = if frame[0] & 1 == 0 { Phase::Reduce } else { Phase::Gather };
        // The whole buffer is 64 bytes long.
        let len = if frame[3] < 128 { 64 } else { u32::from(frame[3]) };
        let header = DataHeader {
            op,
            flow: u32::from(frame[1] % 4),
            chunk: u32::from(frame[2] % 4),
            phase,
            len,
        };
        stream.extend_from_slice(&header.to_bytes());
        stream.resize(stream.len() + len as usize, frame[3]);
    }
    Cursor::new(stream)
}

/// A list of denied or known nodes.
pub fn nodes(bytes: &[u8]) {
    if let Some(nodes) = decode_nodes(bytes) {
        let lines: String = nodes
            .keys()
            .map(|node| format!("{} = \"\"\n", data_encoding::HEXLOWER.encode(&node.0)))
            .collect();
        let again = decode_nodes(lines.as_bytes()).expect("a list");
        assert!(again.keys().eq(nodes.keys()));
    }
}

/// The messages of the other end of a link for the status, in parts, as an observer reads them. A
/// message that was read is the same when it is encoded and read again.
pub fn status_link(bytes: &[u8]) {
    let mut reader = StatusReader::default();
    let mut rest = bytes;
    while let [low, high, more @ ..] = rest {
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        let (part, after) = more.split_at(more.len().min(length));
        rest = after;
        let Ok(said) = reader.take(part) else { return };
        let Some(said) = said else { continue };
        assert_eq!(heard(&said.parts().expect("it was JSON")), said);
        if let Said::LookedBack(answer) = said {
            let sight = Sight::from(*answer);
            assert!(sight.faults.len() <= 8 && sight.dials.len() <= 8);
        }
    }
}

/// The message of these parts.
fn heard(parts: &[Vec<u8>]) -> Said {
    let mut reader = StatusReader::default();
    let mut said = None;
    for part in parts {
        assert!(said.is_none(), "said before the last part");
        said = reader.take(part).expect("a part");
    }
    said.expect("all parts are here")
}

fn round_trip<T: Decode + Encode>(bytes: &[u8]) -> Option<T> {
    let value = T::from_bytes(bytes).ok()?;
    assert_eq!(value.to_bytes(), bytes, "two forms of one value");
    Some(value)
}

fn read_all(mut reader: impl DataReceiver) {
    let pool = Pool::new();
    while let Ok((header, block)) = reader.recv(&pool) {
        assert_eq!(header.len as usize, block.len());
    }
}

fn append_sealed(sealer: &mut Sealer, plain: &[u8], stream: &mut Vec<u8>) {
    let mut record = vec![0; plain.len() + TAG_BYTES];
    if let Ok(sealed) = sealer.seal(plain, &mut record) {
        stream.extend_from_slice(&(sealed as u16).to_le_bytes());
        stream.extend_from_slice(&record[..sealed]);
    }
}

/// A link that discards all sent data and receives a recorded stream.
struct Scripted(Cursor<Vec<u8>>);

impl DataLink for Scripted {
    fn split(self: Box<Self>) -> (Box<dyn DataSender>, Box<dyn DataReceiver>, Arc<dyn Shutdown>) {
        (Box::new(Sink), Box::new(FrameReader::new(self.0, None)), Arc::new(Sink))
    }
}

struct Sink;

impl DataSender for Sink {
    fn send(&mut self, _header: &DataHeader, _payload: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

impl Shutdown for Sink {
    fn shutdown(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Inputs that fuzzing has found, which together reach all that it has reached. `make fuzz`
    /// starts from them, too.
    #[test]
    fn kept_inputs_are_replayed() {
        let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/kept");
        for (name, target) in TARGETS {
            let (folder, mut inputs) = (all.join(name), 0);
            for entry in std::fs::read_dir(&folder).expect("every target has kept inputs") {
                let path = entry.expect("a folder").path();
                println!("{}", path.display());
                target(&std::fs::read(path).expect("a file"));
                inputs += 1;
            }
            assert!(inputs > 0, "{} is empty", folder.display());
        }
    }

    #[test]
    fn every_target_of_make_fuzz_is_one() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/fuzz_targets");
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .expect("a folder")
            .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
            .collect();
        names.sort();
        assert!(TARGETS.iter().map(|(name, _)| *name).eq(names.iter().map(String::as_str)));
    }
}
