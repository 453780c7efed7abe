//! The installed View: its session and its operations.

use super::super::peers::Link;
use super::super::planner::Planner;
use super::super::rates::Rates;
use super::super::unanswered::NO_PONG;
use super::ControlPlane;
use crate::election::{Decides, Input};
use crate::identity::MemberId;
use crate::protocol::{Failure, Message, OpMessage, Post, Rank, View, ViewDigest};
use crate::session::ViewSession;
use crate::trace;
use std::sync::Arc;
use tokio::time::Instant;

/// Logs which member of `before` holds a result that no other one has.
fn tell_disputed(before: &View, next: &View) {
    for failed in &next.failed {
        let Failure::Disputed(odd) = failed.failure else { continue };
        let odd = odd.and_then(|rank| before.member(rank)).map(|member| member.name.as_str());
        trace::error!(
            op = %failed.op,
            odd,
            "an operation has failed: its members hold different results"
        );
    }
}

impl ControlPlane {
    pub(super) fn install(&mut self, view: &Arc<View>, decides: Decides) {
        self.dial_unanswered_again();
        self.data.clear();
        if let Some(before) = self.installed.take() {
            match decides {
                Decides::Parent => {
                    tell_disputed(before.view(), view);
                    before.decide(view);
                }
                Decides::Nothing => before.cut_off(),
            }
            before.close();
            self.reporter.leave(&before);
        }
        let Some(me) = view.rank_of(self.me) else { return };
        self.rates = Rates::default();
        let (send_queues, meter) = (self.peers.send_queues().clone(), self.reporter.meter());
        let traffic = self.rates.traffic();
        let Some(session) = self.installed.open(view, me, send_queues, traffic, meter) else {
            return;
        };
        let why = view.engine.why.sentence(|rank| format!("rank {rank}"));
        trace::info!(
            view = %view.id(),
            rank = %me,
            size = view.size(),
            engine = %view.engine.kind,
            why,
            in_sync = view.in_sync(),
            "installed a view"
        );
        self.reporter.count_view();
        for member in &view.members {
            self.reporter.learn_name(member.id.node, member.name.clone());
        }
        self.planner = Planner::of(Some(view), self.clock.now());
        self.paths.view_changed(view);
        self.look_at_paths();
        self.redials.view_changed();
        if self.election.is_frozen() {
            // Installed late, only to decide its operations: the next View is already being agreed.
            session.freeze();
            self.reporter.tell_installed(view);
            return;
        }
        self.dial_data_links(view, me);
        self.renew_forecasts();
        // Published before the event and the Context: their receivers may ask for the status at
        // once.
        self.publish();
        self.reporter.tell_installed(view);
        // Members that were not in the earlier View miss the rates that were measured in it.
        view.ranks().filter(|rank| *rank != me).for_each(|rank| self.replay_rates(rank));
        self.installed.is_to_be_shown();
    }

    /// Shows the installed View to callers, at the end of a turn. By then the messages that tell
    /// the other members of the View are queued. Calls use the same queues without the control
    /// loop, and a member that has not heard of the View would ignore their messages.
    pub(super) fn show_session(&mut self) {
        if self.installed.takes_showing() {
            self.reporter.show(self.installed.session());
        }
    }

    /// The session of this View, if it is installed. A peer that sends for a View has installed it.
    /// So if this node has accepted that View it installs it now, and loses no message that arrives
    /// before the notice.
    pub(super) fn session_of(&mut self, view: ViewDigest) -> Option<Arc<ViewSession>> {
        if self.installed.of(view).is_none() {
            self.step(Input::DataLink(view));
        }
        self.installed.of(view).cloned()
    }

    /// A message of an operation whose reader has found no session of that View that is open to
    /// readers.
    pub(super) fn on_op(&mut self, from: MemberId, message: &OpMessage) {
        let Some(session) = self.session_of(message.view) else { return };
        let Some(rank) = session.view().rank_of(from) else { return };
        if session.on_message(rank, message).is_err() {
            self.expel(rank);
        }
    }

    /// Sends an entry of this node on the View's board to all other members.
    pub(super) fn post(&mut self, key: &str, value: &[u8]) {
        let Some(session) = self.installed.session() else { return };
        for member in session.view().members.iter().filter(|m| m.id != self.me) {
            let post = Post { view: session.digest(), key: key.to_owned(), value: value.to_vec() };
            self.peers.send(member.id, Message::Post(Box::new(post)));
        }
    }

    pub(super) fn on_post(&mut self, from: MemberId, post: &Post) {
        self.step(Input::Heard(from));
        let Some(session) = self.session_of(post.view) else { return };
        let Some(rank) = session.view().rank_of(from) else { return };
        if session.board().hear(rank, &post.key, &post.value).is_err() {
            self.expel(rank);
        }
    }

    pub(super) fn on_engine_failed(&mut self) {
        if let Some(view) = self.installed.engine_failed() {
            self.step(Input::EngineUnfit(view));
        }
    }

    /// The View cannot go on, although all its members and links do.
    pub(super) fn on_must_end(&mut self) {
        if let Some(view) = self.installed.digest() {
            trace::warn!(
                ?view,
                "an operation of this View is disputed, or it has used too many lanes, or too many \
                 operations were given up: it is replaced"
            );
            self.step(Input::MustEnd(view));
        }
    }

    /// Closes the link of the member of this rank, because it broke the protocol.
    pub(super) fn expel(&mut self, rank: Rank) {
        if let Some(member) = self.installed.member(rank) {
            self.close_link_of(member);
        }
    }

    /// Excludes members that are asked for their votes and withhold them: with them in the View, no
    /// call could end.
    pub(super) fn expel_members_that_withhold_votes(&mut self, now: Instant) {
        for (op, asked) in self.installed.due_votes(now) {
            let Some(missing) = self.installed.missing_votes(op) else { return };
            let withheld: Vec<MemberId> =
                missing.into_iter().filter(|id| self.withholds_vote(*id, asked, now)).collect();
            for member in withheld {
                let had_place = !self.is_excluded(member);
                self.step(Input::Withheld(member));
                if had_place && self.is_excluded(member) {
                    trace::warn!(peer = %member, %op, "a member answers and withholds its vote; it \
                        loses its place");
                }
            }
        }
    }

    fn is_excluded(&self, id: MemberId) -> bool {
        self.election.quarantined(self.now()).any(|(node, ..)| node == id.node)
    }

    /// Whether this member would have voted by `now`, if it followed the protocol. See
    /// [`unanswered`](crate::node::unanswered).
    fn withholds_vote(&self, id: MemberId, asked: Instant, now: Instant) -> bool {
        if self.election.has_left_behind_this_node(id) {
            return false;
        }
        let answered = self.peers.get(id).and_then(Link::answered);
        answered.is_some_and(|ping| ping > asked)
            || now >= asked + NO_PONG && self.election.hears_this_node(self.now(), id)
    }
}
