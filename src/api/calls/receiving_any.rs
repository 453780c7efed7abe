//! The future of a receive from any rank.

use super::pending_op::{PendingOp, error_of};
use crate::memory::{DType, Element, target_of};
use crate::protocol::{Call, CallKind, GroupRanks, Lane, Rank, Rejection};
use crate::report::{Cause, Error, Result};
use crate::session::{Choice, Unchosen, ViewSession};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};
use std::time::{Duration, Instant};

/// A [`recv_any`](super::super::context::Context::recv_any) in flight.
///
/// Dropped before it has chosen a message, it has no effect: the message stays for the next
/// receive. Dropped after that and before this end's vote, it is aborted at both ends. If leaked,
/// it never writes the buffer.
#[must_use = "a recv_any does nothing until it is awaited"]
pub struct ReceivingAny<'buf, T: Element> {
    pub(crate) pending: AnyOp,
    pub(crate) buffer: &'buf mut [T],
}

/// A receive, before and after its choice.
pub(crate) struct AnyOp {
    session: Arc<ViewSession>,
    lane: Lane,
    /// The ranks of its lane, by which it names its senders.
    group: GroupRanks,
    /// Its sender is open before the choice.
    pub(super) call: Call,
    from: std::result::Result<Vec<Rank>, Rejection>,
    choice: Option<Choice>,
    deadline: Option<Duration>,
    began: Option<Instant>,
    chosen: Option<PendingOp>,
}

impl<T: Element> ReceivingAny<'_, T> {
    /// Waits for these ranks only. Default: all others that have a direct link to this one.
    ///
    /// [`Error::Rejected`](crate::Error::Rejected) if there are none, or if one of them is this
    /// rank or no rank, or has no direct link to this one.
    pub fn among<R: Into<Rank>>(mut self, ranks: impl IntoIterator<Item = R>) -> Self {
        let mut ranks: Vec<Rank> = ranks.into_iter().map(Into::into).collect();
        ranks.sort_unstable();
        ranks.dedup();
        self.pending.from = senders(&self.pending.session, self.pending.group, ranks);
        self
    }
}

impl AnyOp {
    /// A receive of `count` elements with this tag, from any of the others.
    pub(crate) fn new(
        session: &Arc<ViewSession>,
        lane: Lane,
        tag: u32,
        dtype: DType,
        count: usize,
    ) -> AnyOp {
        let (view, group) = (session.view(), lane.group(session.view().size()));
        let me = rank_in(group, session);
        let is_linked =
            |from: Rank| from != session.me() && !view.lack_direct_link(from, session.me());
        let linked = group.iter().filter(|from| is_linked(*from));
        let linked = linked.filter_map(|from| group.in_group(from)).collect();
        let kind = CallKind::Message { from: me, to: me, tag };
        AnyOp {
            session: Arc::clone(session),
            lane,
            group,
            call: Call::new(kind, dtype, count as u64),
            from: senders(session, group, linked),
            choice: None,
            deadline: None,
            began: None,
            chosen: None,
        }
    }

    pub(super) fn give_up_after(&mut self, after: Duration) {
        self.deadline = Some(after);
    }

    /// The receive of the chosen message.
    fn poll_choice(&mut self, task: &mut Task<'_>) -> Poll<Result<&mut PendingOp>> {
        if self.chosen.is_none() {
            let from = self.from.clone().map_err(Error::Rejected)?;
            let from = from.into_iter().filter_map(|rank| self.group.in_view(rank)).collect();
            let began = *self.began.get_or_insert_with(Instant::now);
            let (session, lane, deadline) = (&self.session, self.lane, self.deadline);
            let choice =
                self.choice.get_or_insert_with(|| Choice::new(session, lane, from, deadline));
            let (call, op) = ready!(choice.poll(self.call, task)).map_err(error)?;
            let mut chosen = PendingOp::taken(&self.session, call, op);
            chosen.deadline = deadline.map(|after| after.saturating_sub(began.elapsed()));
            self.chosen = Some(chosen);
        }
        Poll::Ready(self.chosen.as_mut().ok_or(Error::Indeterminate))
    }
}

/// This member's rank in the group, which contains it.
fn rank_in(group: GroupRanks, session: &ViewSession) -> Rank {
    group.in_group(session.me()).unwrap_or(Rank(0))
}

/// These ranks of the group, if all of them can send messages to this one.
fn senders(
    session: &ViewSession,
    group: GroupRanks,
    ranks: Vec<Rank>,
) -> std::result::Result<Vec<Rank>, Rejection> {
    let (me, size) = (rank_in(group, session), group.len());
    if ranks.is_empty() || ranks.iter().any(|rank| *rank == me || rank.index() >= size) {
        return Err(Rejection::NoPeer { size });
    }
    let lacks_link = |from: &&Rank| {
        let from = group.in_view(**from).unwrap_or(**from);
        session.view().lack_direct_link(from, session.me())
    };
    match ranks.iter().find(lacks_link) {
        Some(from) => Err(Rejection::NoDirectLink { from: *from, to: me }),
        None => Ok(ranks),
    }
}

fn error(unchosen: Unchosen) -> Error {
    match unchosen {
        Unchosen::Refused(refused) => error_of(refused),
        Unchosen::Late => Error::Aborted { cause: Cause::Deadline { of: None } },
    }
}

impl<T: Element> Future for ReceivingAny<'_, T> {
    type Output = Result<Rank>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<Rank>> {
        let this = &mut *self;
        let chosen = ready!(this.pending.poll_choice(task))?;
        let CallKind::Message { from, .. } = chosen.call.kind else {
            return Poll::Ready(Err(Error::Indeterminate));
        };
        let message = ready!(chosen.poll(task, None))?;
        message.copy_to(target_of(this.buffer));
        Poll::Ready(Ok(from))
    }
}
