//! Several nodes on one network of the lab, each with its own home directory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::engine;
use crate::lab::Lab;
use crate::peer::{KEY, Peer, Start};
use crate::scratch::Scratch;

/// Nodes on the machines `n1`, `n2`, ... of a lab. Fields drop in order: the nodes end before their
/// network.
#[derive(Debug)]
pub struct Group {
    /// The nodes; `peers[i]` was started on machine `n{i + 1}`.
    pub peers: Vec<Peer>,
    /// The network of the nodes.
    pub lab: Lab,
    homes: Scratch,
    profile: String,
}

/// The time limit for everything that is not timed itself; long enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The time limit for measured rates: a disturbed burst is repeated after a pause, on a busy
/// machine more than once.
pub const MEASURED: Duration = Duration::from_secs(120);

impl Group {
    /// A lab with `machines` machines and no nodes.
    pub fn empty(profile: &str, machines: usize) -> Result<Group> {
        Group::on(Lab::up_with(profile, machines)?, profile)
    }

    /// Like [`empty`](Group::empty), with this line rate in Mbit/s on every cable.
    pub fn empty_at(profile: &str, machines: usize, mbit: u32) -> Result<Group> {
        Group::on(Lab::up_at(profile, machines, mbit)?, profile)
    }

    fn on(lab: Lab, profile: &str) -> Result<Group> {
        Ok(Group { peers: Vec::new(), lab, homes: Scratch::new()?, profile: profile.to_owned() })
    }

    /// `size` nodes that have joined one View and hold its Context.
    pub fn up(profile: &str, size: usize) -> Result<Group> {
        Group::up_with(profile, size, 2)
    }

    /// Like [`up`](Group::up), with `min` as the nodes' `min_members`.
    pub fn up_with(profile: &str, size: usize, min: usize) -> Result<Group> {
        Group::empty(profile, size)?.filled(size, min)
    }

    /// Like [`up`](Group::up), with this line rate in Mbit/s on every cable.
    pub fn up_at(profile: &str, size: usize, mbit: u32) -> Result<Group> {
        Group::empty_at(profile, size, mbit)?.filled(size, 2)
    }

    /// Like [`up`](Group::up), with these line rates in Mbit/s, one per machine.
    pub fn up_rated(profile: &str, mbit: &[u32]) -> Result<Group> {
        let lab = Lab::up_with(profile, mbit.len())?;
        for (node, mbit) in lab.nodes().iter().zip(mbit) {
            lab.rate(node, *mbit, *mbit)?;
        }
        Group::on(lab, profile)?.filled(mbit.len(), 2)
    }

    /// The same with `size` nodes that have joined one View and hold its Context, and want `min`
    /// members at least.
    pub fn filled(mut self, size: usize, min: usize) -> Result<Group> {
        self.found(size, &json!({"do": "join", "min": min}), |_, usual| usual)?;
        Ok(self)
    }

    /// Starts nodes on the first `size` machines, each with the options that `adjusted` makes of
    /// the usual ones. They join by this order and meet. Returns their events `joined`.
    pub fn found(
        &mut self,
        size: usize,
        order: &Value,
        adjusted: impl Fn(usize, Start) -> Start,
    ) -> Result<Vec<Value>> {
        for index in 0..size {
            let start = adjusted(index, self.start(index));
            self.add(index, &start)?;
        }
        let joined = self.all(order, "joined")?;
        self.meet()?;
        Ok(joined)
    }

    /// The start options of the node on machine `n{index + 1}`: the common key and its own home
    /// directory.
    pub fn start(&self, index: usize) -> Start {
        let where_to: &[&str] = match self.profile.as_str() {
            "lo" => &["--loopback"],
            // These machines have several cables; the nodes find out where each one leads.
            "twin2" | "direct3" | "chain4" | "ring4" => &[],
            _ => &["--interface", "eth0"],
        };
        Start {
            key: Some(KEY.to_owned()),
            home: self.homes.path().join(format!("n{}", index + 1)),
            name: format!("p{}", index + 1),
            engine: engine::current().map(str::to_owned),
            program: None,
            options: where_to.iter().map(|word| (*word).to_owned()).collect(),
            variables: Vec::new(),
        }
    }

    /// Gives the node on machine `n{index + 1}`, before it is started, a disk of its own for its
    /// home directory. `kind` is a word of `lab disk`: `lab spoil` then fills it or lets it die.
    pub fn disk(&self, index: usize, kind: &str) -> Result<()> {
        let home = self.start(index).home;
        let words = ["disk", &format!("n{}", index + 1), &home.to_string_lossy(), kind];
        self.lab.tell(&words).map(drop)
    }

    /// Starts another node on machine `n{index + 1}` and appends it to `peers`.
    pub fn add(&mut self, index: usize, start: &Start) -> Result<&mut Peer> {
        self.peers.push(Peer::start(&self.lab, &format!("n{}", index + 1), start)?);
        let last = self.peers.len() - 1;
        Ok(&mut self.peers[last])
    }

    /// Starts another node on machine `n{index + 1}`, which joins. Returns its event `joined`.
    pub fn join(&mut self, index: usize) -> Result<Value> {
        let start = self.start(index);
        self.add(index, &start)?.ask(&json!({"do": "join"}), "joined", PATIENCE)
    }

    /// Like [`restart`](Group::restart); the node joins.
    pub fn rejoin(&mut self, index: usize) -> Result<&mut Peer> {
        let peer = self.restart(index)?;
        peer.ask(&json!({"do": "join"}), "joined", PATIENCE)?;
        Ok(peer)
    }

    /// Starts the node at `index` again and replaces the old one, which is killed if it still runs.
    pub fn restart(&mut self, index: usize) -> Result<&mut Peer> {
        let peer = Peer::start(&self.lab, &format!("n{}", index + 1), &self.start(index))?;
        self.peers[index] = peer;
        Ok(&mut self.peers[index])
    }

    /// Writes the nodes' logs to a directory below `target`; returns a text with its path.
    pub fn keep_logs(&self, name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(name);
        let kept = std::fs::create_dir_all(&folder).and_then(|()| {
            self.peers.iter().try_for_each(|peer| {
                std::fs::write(folder.join(peer.name()).with_extension("log"), peer.log())
            })
        });
        kept.map_or_else(
            |error| format!("could not be kept: {error}"),
            |()| folder.display().to_string(),
        )
    }

    /// Sends all nodes one command and waits for each one's event of this kind.
    pub fn all(&mut self, order: &Value, kind: &str) -> Result<Vec<Value>> {
        self.some(|_| true, order, kind)
    }

    /// Like [`all`](Group::all), for the nodes whose index `takes_part`.
    pub fn some(
        &mut self,
        takes_part: impl Fn(usize) -> bool,
        order: &Value,
        kind: &str,
    ) -> Result<Vec<Value>> {
        self.chosen(&takes_part).try_for_each(|peer| peer.order(order))?;
        self.events(takes_part, kind, PATIENCE)
    }

    /// Sends each node the command for its index.
    pub fn each(&mut self, order: impl Fn(usize) -> Value) -> Result<()> {
        self.peers.iter_mut().enumerate().try_for_each(|(index, peer)| peer.order(&order(index)))
    }

    /// The nodes whose index `takes_part`.
    pub fn chosen(
        &mut self,
        takes_part: impl Fn(usize) -> bool,
    ) -> impl Iterator<Item = &mut Peer> {
        let all = self.peers.iter_mut().enumerate();
        all.filter(move |(index, _)| takes_part(*index)).map(|(_, peer)| peer)
    }

    /// The next event of this kind from each of these nodes, all within the given time.
    pub fn events(
        &mut self,
        takes_part: impl Fn(usize) -> bool,
        kind: &str,
        within: Duration,
    ) -> Result<Vec<Value>> {
        let until = Instant::now() + within;
        self.chosen(takes_part)
            .map(|peer| peer.event(kind, until.saturating_duration_since(Instant::now())))
            .collect()
    }

    /// All nodes take a Context of one View of all of them.
    pub fn meet(&mut self) -> Result<Vec<Value>> {
        self.meet_of(|_| true)
    }

    /// The ranks of the nodes in a View of all of them.
    pub fn ranks(&mut self) -> Result<Vec<Value>> {
        Ok(self.meet()?.iter().map(|context| context["rank"].clone()).collect())
    }

    /// Like [`meet`](Group::meet), for the nodes whose index `takes_part`.
    pub fn meet_of(&mut self, takes_part: impl Fn(usize) -> bool + Copy) -> Result<Vec<Value>> {
        let size = self.chosen(takes_part).count();
        let order = json!({"do": "context", "min": size, "within_s": PATIENCE.as_secs()});
        let until = Instant::now() + PATIENCE;
        loop {
            let contexts = self.some(takes_part, &order, "context")?;
            // A View may be replaced while it is handed out, by one with a late node or without a
            // dead one; its plan may change too.
            let same =
                |c: &Value| c["view"] == contexts[0]["view"] && c["plan"] == contexts[0]["plan"];
            let common = contexts.iter().all(|c| c["size"] == size && same(c));
            if common || Instant::now() >= until {
                agree(&contexts, size)?;
                let view = &contexts[0]["view"];
                self.chosen(takes_part).try_for_each(|peer| {
                    peer.status_where(|status| status["view"]["id"] == *view, PATIENCE).map(drop)
                })?;
                return Ok(contexts);
            }
            // Polls the condition; the pause keeps the nodes from only answering.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until every node's status satisfies `likes`.
    pub fn all_show(
        &mut self,
        likes: impl Fn(&Value) -> bool,
        within: Duration,
    ) -> Result<Vec<Value>> {
        self.peers.iter_mut().map(|peer| peer.status_where(&likes, within)).collect()
    }

    /// Checks that all nodes are in this View still. Returns their statuses.
    pub fn still_in(&mut self, view: &Value) -> Result<Vec<Value>> {
        let told = self.all(&json!({"do": "status"}), "status")?;
        let is_same = told.iter().all(|status| status["view"]["id"] == *view);
        ensure!(is_same, "another View than {view}: {told:?}");
        Ok(told)
    }
}

/// How many paths have a measured rate in this status.
pub fn rated(status: &Value) -> usize {
    let paths = status["view"]["paths"].as_array().into_iter().flatten();
    paths.filter(|path| path["rate_kbps"].is_u64()).count()
}

/// Whether this status shows a View with so many members.
pub fn has_members(status: &Value, size: usize) -> bool {
    status["view"]["members"].as_array().is_some_and(|members| members.len() == size)
}

/// Checks that these Contexts have different ranks of one View of `size` members.
fn agree(contexts: &[Value], size: usize) -> Result<()> {
    let mut places: Vec<u64> = contexts.iter().filter_map(|c| c["rank"].as_u64()).collect();
    places.sort_unstable();
    ensure!(places.iter().copied().eq(0..size as u64), "ranks {places:?} of {size}");
    for field in ["size", "view", "members", "engine", "plan"] {
        let same = contexts.iter().all(|c| c[field] == contexts[0][field]);
        ensure!(same, "different {field}: {contexts:?}");
    }
    ensure!(contexts[0]["size"] == size, "{} members instead of {size}", contexts[0]["size"]);
    Ok(())
}
