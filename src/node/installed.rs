//! The installed View on this member: its session, and the deadlines and missing votes of its
//! operations.

use super::data_link::Traffic;
use super::deadlines::Deadlines;
use super::open_session::OpenSession;
use super::unanswered::Unanswered;
use super::view_sender::{SendQueues, ViewSender};
use crate::collective::{Engine, Outgoing};
use crate::identity::MemberId;
use crate::protocol::{EngineKind, Mutation, OpId, Rank, View, ViewDigest};
use crate::session::{LostResults, Meter, ViewSession};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Failures of an engine in one View after which the next View excludes it.
const ENGINE_FAILURES_MAX: u32 = 2;

/// The session of the installed View, if there is one, and the engines that can run it.
pub(super) struct Installed {
    me: MemberId,
    engines: Vec<Arc<dyn Engine>>,
    mutation: Mutation,
    lost: LostResults,
    session: Option<Arc<ViewSession>>,
    /// The session to which the readers of the control links deliver messages themselves.
    open_session: OpenSession,
    /// `open_session` is the present session.
    is_open: bool,
    /// The installation has ended: messages may come.
    is_ready: bool,
    /// The session has not been shown to callers yet.
    is_new: bool,
    /// The requests of its operations.
    outgoing: Option<mpsc::UnboundedReceiver<Outgoing>>,
    deadlines: Deadlines,
    unanswered: Unanswered,
    /// Number of failures of the engine in this View on this node.
    engine_failures: u32,
}

impl Installed {
    /// No View yet.
    pub(super) fn new(
        me: MemberId,
        engines: Vec<Arc<dyn Engine>>,
        open_session: OpenSession,
        mutation: Mutation,
    ) -> Installed {
        Installed {
            me,
            engines,
            mutation,
            lost: LostResults::default(),
            session: None,
            open_session,
            is_open: false,
            is_ready: false,
            is_new: false,
            outgoing: None,
            deadlines: Deadlines::default(),
            unanswered: Unanswered::default(),
            engine_failures: 0,
        }
    }

    /// Ends the View, and returns its session.
    pub(super) fn take(&mut self) -> Option<Arc<ViewSession>> {
        self.open_to_readers(false);
        self.is_ready = false;
        self.deadlines.clear();
        self.unanswered.clear();
        self.session.take()
    }

    /// Opens a session of a View in which this node has the rank `me`. `None` if it lacks the
    /// engine; the election accepts no such View.
    pub(super) fn open(
        &mut self,
        view: &Arc<View>,
        me: Rank,
        send_queues: SendQueues,
        traffic: Traffic,
        meter: &Arc<Meter>,
    ) -> Option<Arc<ViewSession>> {
        let (tx, rx) = mpsc::unbounded_channel();
        // If the View runs both engines, Gloo's also opens the native one.
        let kind = if view.runs(EngineKind::Gloo) { EngineKind::Gloo } else { view.engine.kind };
        let engine = self.engines.iter().find(|engine| engine.kind() == kind)?;
        let op_sender = ViewSender::new(Arc::clone(view), self.me, send_queues, traffic);
        let op_sender = Arc::new(op_sender);
        let session = ViewSession::open(Arc::clone(view), me, engine.as_ref(), tx, op_sender)
            .measured_by(meter)
            .after(&self.lost)
            .with(self.mutation);
        let session = Arc::new(session);
        self.engine_failures = 0;
        self.outgoing = Some(rx);
        self.session = Some(Arc::clone(&session));
        Some(session)
    }

    // The session.

    pub(super) fn session(&self) -> Option<&Arc<ViewSession>> {
        self.session.as_ref()
    }

    /// The session, unless it is frozen.
    pub(super) fn running(&self) -> Option<&Arc<ViewSession>> {
        self.session().filter(|session| !session.is_frozen())
    }

    /// The session, if it is that of this View.
    pub(super) fn of(&self, view: ViewDigest) -> Option<&Arc<ViewSession>> {
        self.session().filter(|session| session.digest() == view)
    }

    pub(super) fn digest(&self) -> Option<ViewDigest> {
        self.session().map(|session| session.digest())
    }

    /// Whether the readers of the control links deliver messages to the session themselves. Else
    /// this node does, as to a frozen session.
    pub(super) fn open_to_readers(&mut self, open: bool) {
        let session = self.running().filter(|_| open && self.is_ready);
        if session.is_some() != self.is_open {
            self.open_session.set(session.cloned());
            self.is_open = !self.is_open;
        }
    }

    /// The member of this rank.
    pub(super) fn member(&self, rank: Rank) -> Option<MemberId> {
        self.session()?.view().member(rank).map(|member| member.id)
    }

    /// The rank of this member.
    pub(super) fn rank_of(&self, member: MemberId) -> Option<Rank> {
        self.session()?.view().rank_of(member)
    }

    /// The installation has ended: the session is to be shown to callers at the end of the turn.
    pub(super) fn is_to_be_shown(&mut self) {
        (self.is_ready, self.is_new) = (true, true);
    }

    /// Whether the session, or that there is none, has not been shown to callers yet.
    pub(super) fn takes_showing(&mut self) -> bool {
        std::mem::take(&mut self.is_new)
    }

    // The operations.

    /// The next request of an operation. Pending while there is no View.
    pub(super) async fn outgoing(&mut self) -> Option<Outgoing> {
        match &mut self.outgoing {
            Some(outgoing) => outgoing.recv().await,
            None => std::future::pending().await,
        }
    }

    /// As [`outgoing`](Self::outgoing), without waiting.
    pub(super) fn outgoing_now(&mut self) -> Option<Outgoing> {
        self.outgoing.as_mut()?.try_recv().ok()
    }

    /// Time until a deadline, or until a missing vote is looked for.
    pub(super) fn pause(&self, now: Instant) -> Duration {
        self.deadlines.pause(now).min(self.unanswered.pause(now))
    }

    /// Sets a deadline.
    pub(super) fn arm(&mut self, op: OpId, after: Duration) {
        let Some(session) = &self.session else { return };
        self.deadlines.arm(op, Instant::now(), after, |op| session.is_open(op));
    }

    /// Gives up the operations whose deadline has passed.
    pub(super) fn expire(&mut self, now: Instant) {
        let Some(session) = &self.session else { return };
        while let Some(op) = self.deadlines.next(now) {
            session.expire(op);
        }
    }

    /// All others have been asked for their votes on `op`.
    pub(super) fn await_votes(&mut self, op: OpId) {
        let Some(session) = &self.session else { return };
        let is_open = |op| !session.unanswered(op).is_empty();
        self.unanswered.ask(op, Instant::now(), is_open);
    }

    /// The operations whose missing votes are to be looked for now, and when they were asked for.
    pub(super) fn due_votes(&mut self, now: Instant) -> Vec<(OpId, Instant)> {
        self.unanswered.due(now)
    }

    /// The members whose votes on `op` are missing. `None` if the View has ended.
    pub(super) fn missing_votes(&mut self, op: OpId) -> Option<Vec<MemberId>> {
        let session = self.session.as_ref()?;
        let missing = session.unanswered(op);
        if missing.is_empty() {
            self.unanswered.end(op);
        }
        let members = missing.iter().filter_map(|rank| session.view().member(*rank));
        Some(members.map(|member| member.id).collect())
    }

    /// The engine has failed. A single failure may be chance. If it fails twice in one View without
    /// the loss of a member, the next View excludes it: returns the View then.
    pub(super) fn engine_failed(&mut self) -> Option<ViewDigest> {
        self.engine_failures += 1;
        self.digest().filter(|_| self.engine_failures >= ENGINE_FAILURES_MAX)
    }
}
