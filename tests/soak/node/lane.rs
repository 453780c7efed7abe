//! The task of one lane: from View to View, a sync and then call after call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use potluck::calls::{GroupProblem, Rejection};
use potluck::{Context, Error};
use potluck_harness::Chance;
use potluck_harness::history::inputs::hash;
use potluck_harness::history::record::REFUSALS;
use potluck_harness::history::{Coded, Kind, What};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::calls::{InFlight, Made, Scene, begin, drive, make, name};
use super::draw::{Handling, How, ROLES, Role, handling, what};
use super::state::LaneState;
use super::{Node, Program};

pub struct Lane {
    node: Arc<Node>,
    role: Role,
    state: LaneState,
    /// The last dropped call, whose result may still come.
    dropped: Option<Dropped>,
}

/// A dropped call: the result of some kinds can be taken later.
struct Dropped {
    id: u64,
    view: String,
    k: u64,
    what: What,
}

/// The View that a lane works in.
struct At {
    ctx: Context,
    view: String,
    members: Vec<String>,
    /// A call of this lane has taken a number in this View: none is refused for want of a sync.
    is_accepted: bool,
}

/// The tag of all sub-groups.
const GROUPS: u32 = 7;

impl At {
    /// The same among the ranks of a call, if this rank is one of them and they reach each other.
    fn inside(&self, what: &What) -> Option<At> {
        if !what.ranks.contains(&self.ctx.rank().index()) {
            return None;
        }
        match self.ctx.group(&what.ranks, GROUPS) {
            Ok(ctx) => {
                let (view, members) = (self.view.clone(), what.among(&self.members));
                Some(At { ctx, view, members, is_accepted: false })
            }
            // All of them hear so, and none calls.
            Err(Error::Rejected(Rejection::Group(GroupProblem::NoDirectLink { .. }))) => None,
            Err(error) => panic!("{:?} are no group: {error}", what.ranks),
        }
    }

    /// The Context, and the place of its next call.
    fn scene<'a>(&'a mut self, node: &'a Node, lane: u32, k: u64) -> (&'a mut Context, Scene<'a>) {
        let scene = Scene {
            log: &node.log,
            seed: node.program.seed,
            lane,
            view: &self.view,
            k,
            members: &self.members,
            rank: self.ctx.rank().index(),
            flag: u8::from(node.asked.load(Ordering::Relaxed)),
        };
        (&mut self.ctx, scene)
    }
}

/// How the lane goes on after a call.
enum Next {
    /// With the next call.
    Call,
    /// With the same call, which took no number.
    Again,
    /// In the next View.
    View,
    /// Not at all.
    End,
}

/// A program that was asked to end waits for so long for a View, or for the others' sync.
const LAST_WAIT: Duration = Duration::from_secs(4);

impl Lane {
    pub fn new(node: Arc<Node>, role: Role) -> Lane {
        Lane { node, role, state: LaneState::default(), dropped: None }
    }

    fn tag(&self) -> u32 {
        ROLES.iter().position(|role| *role == self.role).unwrap_or_default() as u32
    }

    pub async fn run(mut self) {
        while let Some(mut at) = self.next_view().await {
            if self.role != Role::Free && !self.sync(&mut at).await {
                if self.node.is_over() { break } else { continue }
            }
            if !self.work(&mut at).await {
                break;
            }
        }
        self.node.log.tell(json!({"e": "over", "lane": self.tag()}));
    }

    /// `None` if the node has left, or if it was asked to end and there is no View.
    async fn next_view(&mut self) -> Option<At> {
        self.node.log.tell(json!({"e": "waits", "lane": self.tag()}));
        let mut asked = None;
        let context = loop {
            tokio::select! {
                context = self.node.cluster.context() => break context.ok()?,
                // The interval at which it looks whether the node was asked to end.
                () = sleep(Duration::from_millis(100)) => {}
            }
            if self.node.asked.load(Ordering::Relaxed)
                && asked.get_or_insert_with(Instant::now).elapsed() > LAST_WAIT
            {
                return None;
            }
        };
        let ctx = if self.tag() == 0 { context } else { context.lane(self.tag()) };
        let members = ctx.members().iter().map(|peer| peer.name.as_str().to_owned()).collect();
        let at = At { view: ctx.view(), members, ctx, is_accepted: false };
        self.node.log.tell(json!({
            "e": "took", "lane": self.tag(), "view": at.view, "members": at.members,
            "in_sync": at.ctx.is_in_sync(), "engine": at.ctx.engine().to_string(),
        }));
        Some(at)
    }

    /// Syncs until it succeeds; false if the View is over.
    async fn sync(&mut self, at: &mut At) -> bool {
        let mut tries = 0;
        loop {
            let seed = self.node.program.seed ^ tries;
            let place = format!("{}/{}", self.name(&at.view), self.tag());
            let mut chance = Chance::named(seed, &place);
            let how = match chance.below(25) {
                0 => How::Drop(chance.below(6), Duration::from_millis(chance.below(50) as u64)),
                _ => How::Await,
            };
            let limit = (chance.below(20) == 0).then(|| Duration::from_millis(50));
            let code = self.sync_once(at, how, limit).await;
            match code {
                "ok" => return true,
                "view-changed" | "closed" => return false,
                "lost-result" => self.take_lost(at, &[]).await,
                // Part of the load: the pause before a program tries again.
                _ => sleep(Duration::from_millis(2)).await,
            }
            tries += 1;
        }
    }

    async fn sync_once(&mut self, at: &mut At, how: How, limit: Option<Duration>) -> &'static str {
        let (log, tag) = (&self.node.log, self.tag());
        let mut bytes = self.state.to_bytes(tag, self.node.program.pace);
        let id = log.next_call();
        log.tell(json!({
            "e": "call", "id": id, "lane": tag, "view": at.view, "k": 0,
            "what": What::of(Kind::Sync),
            "way": name(how), "before": hash(&bytes),
            "limit_ms": limit.map(|limit| limit.as_millis() as u64),
            "version": self.state.version, "digest": self.state.digest,
        }));
        let mut call = at.ctx.sync(self.state.version, &mut bytes);
        if let Some(limit) = limit {
            call = call.deadline(limit);
        }
        let (code, why) = drive(call, how).await.code();
        // Also after an error: the bytes of an earlier sync that was dropped may have come.
        self.state = LaneState::of_bytes(&bytes, tag, self.node.program.pace);
        log.tell(json!({
            "e": "return", "id": id, "code": code, "cause": why, "after": hash(&bytes),
            "version": self.state.version, "digest": self.state.digest,
        }));
        code
    }

    /// Calls until the View is over; false if the lane is.
    async fn work(&mut self, at: &mut At) -> bool {
        let (mut k, mut refused) = (0, Instant::now());
        let mut again = false;
        loop {
            let burst = self.burst(at, k);
            let (made, next) = if burst > 1 {
                self.make_several(at, k, burst).await
            } else {
                let next = self.make_one(at, k, again).await;
                (u64::from(matches!(next, Next::Call)), next)
            };
            k += made;
            if made > 0 {
                refused = Instant::now();
            }
            again = matches!(next, Next::Again);
            match next {
                Next::Again
                    if self.node.asked.load(Ordering::Relaxed) && refused.elapsed() > LAST_WAIT =>
                {
                    return false;
                }
                Next::Call | Next::Again => {}
                Next::View => return true,
                Next::End => return false,
            }
        }
    }

    fn what(&self, at: &At, k: u64) -> What {
        let Program { seed, pace, .. } = self.node.program;
        what(seed, &at.view, self.role, k, at.members.len(), pace)
    }

    fn handling(&self, at: &At, k: u64, what: &What) -> Handling {
        let Program { seed, pace, .. } = self.node.program;
        handling(seed, &self.name(&at.view), self.role, k, what, pace)
    }

    /// Names this life of the node, and a View.
    fn name(&self, view: &str) -> String {
        let Program { name, life, .. } = &self.node.program;
        format!("{name}/{life}/{view}")
    }

    /// `again`: it was refused before.
    async fn make_one(&mut self, at: &mut At, k: u64, again: bool) -> Next {
        let what = self.what(at, k);
        let handling = self
            .handling(at, k, &what)
            .polled_if(self.may_be_refused(at) || !what.ranks.is_empty() || cfg!(potluck_tight));
        if !again {
            // Part of the load: the program computes.
            sleep(handling.think).await;
        }
        if what.ranks.is_empty() {
            return self.call(at, k, what, &handling).await;
        }
        match at.inside(&what) {
            Some(mut inside) => self.call(&mut inside, k, what, &handling).await,
            None => Next::Call,
        }
    }

    async fn call(&mut self, at: &mut At, k: u64, what: What, handling: &Handling) -> Next {
        let rank = at.ctx.rank().index();
        if what.kind == Kind::Message && ![what.root, what.to].contains(&rank) {
            return Next::Call;
        }
        let (ctx, scene) = at.scene(&self.node, self.tag(), k);
        let made = make(ctx, &scene, &what, handling).await;
        self.after(at, k, what, &made).await
    }

    /// How many calls from this one on are in flight at a time: plain reductions only, and none
    /// that may be refused one by one, as the first ones of a View and those after a dropped call
    /// are.
    fn burst(&self, at: &At, k: u64) -> u64 {
        let Program { seed, name, .. } = &self.node.program;
        let mut chance = Chance::named(seed ^ k, &format!("{name}/{}", at.view));
        if self.role != Role::Main || self.may_be_refused(at) || chance.below(8) != 0 {
            return 1;
        }
        let plain = |k: &u64| {
            let what = self.what(at, *k);
            what.kind == Kind::AllReduce && what.coded == Coded::Plain
        };
        (k..k + 2 + chance.below(4) as u64).take_while(plain).count() as u64
    }

    /// Makes several calls that are in flight at a time, until one is refused. Returns how many
    /// took a number.
    async fn make_several(&mut self, at: &mut At, k: u64, calls: u64) -> (u64, Next) {
        let mut flights = Vec::new();
        for k in k..k + calls {
            let what = self.what(at, k);
            let handling = Handling { how: How::Await, ..self.handling(at, k, &what) };
            let (ctx, scene) = at.scene(&self.node, self.tag(), k);
            let flight = Flight::begin(&self.node, begin(ctx, &scene, &what, &handling)).await;
            let is_refused = flight.is_refused();
            flights.push(flight);
            // A later call would take its number.
            if is_refused {
                break;
            }
        }
        let (mut made, mut next) = (0, Next::Call);
        for (k, flight) in (k..).zip(flights) {
            // A task ends by a panic only, which ends the process too.
            let Some(end) = flight.end().await else { return (made, Next::End) };
            made += u64::from(!REFUSALS.contains(&end.code));
            let what = self.what(at, k);
            match self.after(at, k, what, &end).await {
                Next::Call => {}
                ends => next = ends,
            }
        }
        (made, next)
    }

    /// Whether the next call may take no number: the members may not be in sync, or the result of a
    /// dropped call may come.
    fn may_be_refused(&self, at: &At) -> bool {
        !at.is_accepted || self.dropped.is_some()
    }

    async fn after(&mut self, at: &mut At, k: u64, what: What, made: &Made) -> Next {
        let is_refused = REFUSALS.contains(&made.code);
        // A message between members without a direct link is rejected, whether or not the members
        // are in sync.
        at.is_accepted |= !is_refused && made.code != "rejected";
        // All have voted on the dropped call before they voted on a later one of the same ranks.
        let is_voted = what.kind != Kind::Message && !what.best_effort && made.code != "dropped";
        let was_here = self.dropped.as_ref().is_some_and(|call| call.what.ranks == what.ranks);
        if was_here && is_voted && !is_refused {
            // It would have been refused if the result of a dropped call could still come.
            self.dropped = None;
        }
        match made.code {
            "ok" => {
                let result = if is_common(&what) { made.result.unwrap_or(made.after) } else { 0 };
                self.apply(&at.view, k, &what, result, false);
                if what.kind == Kind::Control && made.after == hash(&[1]) {
                    return Next::End;
                }
            }
            "view-changed" => return Next::View,
            "closed" => return Next::End,
            // Part of the load: the pauses before a program tries again.
            "needs-sync" => {
                sleep(Duration::from_millis(20)).await;
                return Next::Again;
            }
            "too-many-in-flight" => {
                sleep(Duration::from_millis(5)).await;
                return Next::Again;
            }
            "lost-result" => {
                self.take_lost(at, &what.ranks).await;
                return Next::Again;
            }
            "dropped" => {
                self.dropped = Some(Dropped { id: made.id, view: at.view.clone(), k, what });
            }
            _ => {}
        }
        Next::Call
    }

    /// A committed result enters the state. `kept`: the call was dropped, and its result was kept,
    /// perhaps for long.
    fn apply(&mut self, view: &str, k: u64, what: &What, result: u64, kept: bool) {
        if self.role == Role::Free || !what.is_voted_by_all() {
            return;
        }
        self.state = self.state.with(view, k, result);
        self.node.log.tell(json!({
            "e": "applied", "lane": self.tag(), "view": view, "k": k,
            "version": self.state.version, "digest": self.state.digest, "kept": kept,
        }));
    }

    /// Takes the result of a dropped call of these ranks, if it is decided.
    async fn take_lost(&mut self, at: &mut At, ranks: &[usize]) {
        // Of several groups only the last dropped call is remembered.
        let dropped = self.dropped.take_if(|dropped| dropped.what.ranks == ranks);
        let is_known = dropped.as_ref().is_some_and(|dropped| is_common(&dropped.what));
        let taken = if is_known {
            at.ctx.take_result::<u8>().map(|bytes| hash(&bytes))
        } else {
            at.ctx.discard_result().then_some(0)
        };
        // The pause before a program asks for the result again.
        let Some(result) = taken else {
            self.dropped = dropped.or(self.dropped.take());
            return sleep(Duration::from_millis(2)).await;
        };
        let Some(dropped) = dropped else { return };
        if is_known {
            self.node.log.tell(json!({"e": "kept", "id": dropped.id, "result": result}));
        }
        self.apply(&dropped.view, dropped.k, &dropped.what, result, true);
    }
}

/// A call of several in flight.
enum Flight {
    /// It had its end at the first poll.
    Ended(Made),
    Goes(JoinHandle<Made>),
}

impl Flight {
    /// Polls the call once, which takes its number, and goes on with it in a task of its own.
    async fn begin(node: &Arc<Node>, mut call: InFlight) -> Flight {
        let polled = std::future::poll_fn(|task| Poll::Ready(call.as_mut().poll(task))).await;
        if let Poll::Ready(made) = polled {
            made.tell(&node.log);
            return Flight::Ended(made);
        }
        let node = Arc::clone(node);
        Flight::Goes(tokio::spawn(async move {
            let made = call.await;
            made.tell(&node.log);
            made
        }))
    }

    fn is_refused(&self) -> bool {
        matches!(self, Flight::Ended(made) if REFUSALS.contains(&made.code))
    }

    async fn end(self) -> Option<Made> {
        match self {
            Flight::Ended(made) => Some(made),
            Flight::Goes(task) => task.await.ok(),
        }
    }
}

/// Whether all members get the same result.
fn is_common(what: &What) -> bool {
    matches!(
        what.kind,
        Kind::AllReduce | Kind::Step | Kind::AllGather | Kind::Broadcast | Kind::Control
    )
}
