//! A fluid model of a home for tests: concurrent messages flow at max-min fair rates by progressive
//! filling (Bertsekas and Gallager 1992, 6.5.2). On each connection messages are sent one after the
//! other, as the native engine does.

use super::homes::{Home, HomePath};
use crate::collective::{Schedule, Then};
use crate::memory::DType;
use crate::protocol::{Call, CallKind, Plan, Rank, ReduceOp, rank_pairs, ranks};
use std::collections::{BTreeMap, VecDeque};

/// The simulated duration of an all-reduce of `count` f32 under this plan, chunk by chunk, in
/// seconds.
pub(super) fn simulated_s(home: &Home, plan: &Plan, count: u64) -> f64 {
    let call = Call::new(CallKind::AllReduce(ReduceOp::Sum), DType::F32, count);
    let schedule = Schedule::of(&call, None, plan, home.size()).expect("a plan that fits");
    let mut model = Fluid::new(home, &schedule);
    for rank in ranks(home.size()) {
        for (flow, chunk) in schedule.feed_order(rank) {
            model.contribute(rank, flow, chunk);
        }
    }
    while model.step() {}
    assert_eq!(
        model.held,
        home.size() * (0..schedule.flows.len()).map(|flow| schedule.chunks(flow)).sum::<usize>()
    );
    model.now_s
}

/// A chunk in transit: a partial sum, or the result.
#[derive(Clone, Copy)]
struct Message {
    flow: usize,
    chunk: usize,
    is_result: bool,
}

/// The send queue from one rank to another.
struct Connection {
    path: HomePath,
    queue: VecDeque<Message>,
    /// The unsent part of the first message in the queue.
    bits_left: f64,
    bits_per_s: f64,
}

struct Fluid<'a> {
    schedule: &'a Schedule,
    resources: usize,
    connections: BTreeMap<(Rank, Rank), Connection>,
    /// Messages that are sent and have not arrived, by arrival time.
    in_flight: BTreeMap<(u64, usize), (Rank, Message)>,
    contributions: BTreeMap<(usize, usize, Rank), usize>,
    sent: usize,
    /// The number of result chunks that have arrived.
    held: usize,
    now_s: f64,
}

impl<'a> Fluid<'a> {
    fn new(home: &Home, schedule: &'a Schedule) -> Fluid<'a> {
        let connection =
            |path| Connection { path, queue: VecDeque::new(), bits_left: 0.0, bits_per_s: 0.0 };
        Fluid {
            schedule,
            resources: home.resources(),
            connections: rank_pairs(home.size())
                .filter_map(|pair| Some((pair, connection(home.path(pair.0.0, pair.1.0)?))))
                .collect(),
            in_flight: BTreeMap::new(),
            contributions: BTreeMap::new(),
            sent: 0,
            held: 0,
            now_s: 0.0,
        }
    }

    /// A contribution to the sum of this chunk has reached this rank.
    fn contribute(&mut self, rank: Rank, flow: usize, chunk: usize) {
        let role = self.schedule.role(flow, rank);
        let have = self.contributions.entry((flow, chunk, rank)).or_default();
        *have += 1;
        if *have == role.contributors.len() {
            match role.then {
                Then::Send(parent) => {
                    self.send(rank, parent, Message { flow, chunk, is_result: false });
                }
                Then::HandOn => self.hold(rank, flow, chunk),
                Then::Keep => panic!("whole buffers to everybody are not modelled"),
            }
        }
    }

    fn hold(&mut self, rank: Rank, flow: usize, chunk: usize) {
        self.held += 1;
        for to in self.schedule.role(flow, rank).down_to {
            self.send(rank, to, Message { flow, chunk, is_result: true });
        }
    }

    fn send(&mut self, from: Rank, to: Rank, message: Message) {
        let bits = self.bits(message);
        let connection = self.connections.get_mut(&(from, to)).expect("a direct link");
        connection.queue.push_back(message);
        if connection.queue.len() == 1 {
            connection.bits_left = bits;
            self.share();
        }
    }

    fn bits(&self, message: Message) -> f64 {
        let elements = self.schedule.elements(message.flow, message.chunk).len();
        self.schedule.wire_bytes(None, elements) as f64 * 8.0
    }

    /// Advances to the next event; `false` if there is none.
    fn step(&mut self) -> bool {
        let busy = self.connections.values().filter(|connection| !connection.queue.is_empty());
        let sent_s = busy.map(|c| self.now_s + c.bits_left / c.bits_per_s).min_by(f64::total_cmp);
        let arrival =
            self.in_flight.first_key_value().map(|(key, _)| (*key, f64::from_bits(key.0)));
        let Some(next_s) =
            arrival.map(|(_, at_s)| at_s).into_iter().chain(sent_s).min_by(f64::total_cmp)
        else {
            return false;
        };
        let passed_s = next_s - self.now_s;
        self.now_s = next_s;
        for connection in
            self.connections.values_mut().filter(|connection| !connection.queue.is_empty())
        {
            connection.bits_left -= passed_s * connection.bits_per_s;
        }
        if let Some((key, _)) = arrival.filter(|(_, at_s)| *at_s <= next_s) {
            let (rank, Message { flow, chunk, is_result }) =
                self.in_flight.remove(&key).expect("it was there");
            if is_result {
                self.hold(rank, flow, chunk);
            } else {
                self.contribute(rank, flow, chunk);
            }
        } else {
            self.finish_what_is_sent();
        }
        true
    }

    fn finish_what_is_sent(&mut self) {
        let done = |c: &Connection| !c.queue.is_empty() && c.bits_left < 1e-3;
        let done: Vec<(Rank, Rank)> =
            self.connections.iter().filter(|(_, c)| done(c)).map(|(pair, _)| *pair).collect();
        let mut idle = false;
        for (from, to) in done {
            let Some(connection) = self.connections.get_mut(&(from, to)) else { continue };
            let Some(message) = connection.queue.pop_front() else { continue };
            let next = connection.queue.front().copied();
            let arrives_s = self.now_s + connection.path.latency_s;
            self.sent += 1;
            self.in_flight.insert((arrives_s.to_bits(), self.sent), (to, message));
            let bits_left = next.map_or(0.0, |next| self.bits(next));
            self.connections
                .entry((from, to))
                .and_modify(|connection| connection.bits_left = bits_left);
            idle |= next.is_none();
        }
        if idle {
            self.share();
        }
    }

    fn share(&mut self) {
        let open = self.connections.values_mut().filter(|c| !c.queue.is_empty());
        let mut open: Vec<&mut Connection> = open.collect();
        let paths: Vec<&HomePath> = open.iter().map(|c| &c.path).collect();
        let rates = max_min_bits_per_s(&paths, self.resources);
        open.iter_mut().zip(rates).for_each(|(connection, rate)| connection.bits_per_s = rate);
    }
}

/// The rates of paths that all send. Progressive filling raises the rates of all of them equally
/// until a resource is saturated, fixes those that use it, and continues with the others.
pub(super) fn max_min_bits_per_s(paths: &[&HomePath], resources: usize) -> Vec<f64> {
    let mut rates = vec![0.0; paths.len()];
    let mut open: Vec<usize> = (0..paths.len()).collect();
    let mut free = vec![1.0f64; resources];
    let mut rate = 0.0;
    while !open.is_empty() {
        let mut need = vec![0.0; resources];
        open.iter()
            .flat_map(|index| &paths[*index].busy)
            .for_each(|(resource, time)| need[*resource] += time);
        let room = |resource: &usize| free[*resource] / need[*resource];
        let more = (0..resources)
            .filter(|r| need[*r] > 0.0)
            .map(|r| room(&r))
            .fold(f64::INFINITY, f64::min);
        rate += more;
        let full: Vec<bool> =
            (0..resources).map(|r| need[r] > 0.0 && room(&r) <= more * (1.0 + 1e-9)).collect();
        free.iter_mut().zip(&need).for_each(|(free, need)| *free -= need * more);
        open.retain(|index| {
            rates[*index] = rate;
            !paths[*index].busy.iter().any(|(resource, _)| full[*resource])
        });
    }
    rates
}
