//! The fold orders under which a call may have run. The node that tests control (`harness/peer`) is
//! compiled with this file, too.

use potluck::Context;
use potluck::plan::FoldOrder;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Notes the fold order of each plan under which calls of a Context may run. Plans may change more
/// than once before the result of a call is checked, and it ran under one of them.
pub struct FoldOrders {
    /// The watcher ends when this is dropped.
    watched: Arc<Mutex<Watched>>,
}

type Order = dyn Fn(&Context) -> FoldOrder + Send;

struct Watched {
    /// A lane without calls, whose plan is the View's newest one.
    newest: Context,
    order: Box<Order>,
    /// The revision of the last plan noted of it.
    revision: Option<u32>,
    orders: Vec<FoldOrder>,
}

impl FoldOrders {
    /// Begins before the next call of this Context. `order` gives the fold order of such a call.
    pub fn watch(
        context: &Context,
        order: impl Fn(&Context) -> FoldOrder + Send + 'static,
    ) -> FoldOrders {
        let (newest, order, orders) = (context.lane(u32::MAX), Box::new(order), Vec::new());
        let seen = FoldOrders {
            watched: Arc::new(Mutex::new(Watched { newest, order, revision: None, orders })),
        };
        seen.note_next(context);
        lock(&seen.watched).note_newest();
        let while_watched = Arc::downgrade(&seen.watched);
        let (begins, has_begun) = channel::<()>();
        std::thread::spawn(move || {
            drop(begins);
            while let Some(watched) = Weak::upgrade(&while_watched) {
                lock(&watched).note_newest();
                drop(watched);
                // A plan change takes messages between the members, and so longer than this pause.
                std::thread::sleep(PAUSE);
            }
        });
        // A thread that starts needs memory, of which a test may leave little to the call. From now
        // on only a new plan does.
        let _ = has_begun.recv();
        seen
    }

    /// Notes the plan of the next call of this Context. It may be an earlier one than the newest,
    /// because other members have begun this call already.
    pub fn note_next(&self, context: &Context) {
        let mut watched = lock(&self.watched);
        let order = (watched.order)(context);
        watched.note(order);
    }

    /// The orders so far.
    pub fn seen(&self) -> Vec<FoldOrder> {
        let mut watched = lock(&self.watched);
        watched.note_newest();
        watched.orders.clone()
    }
}

impl Watched {
    fn note_newest(&mut self) {
        let newest = self.newest.plan().revision();
        if self.revision != Some(newest) {
            self.revision = Some(newest);
            let order = (self.order)(&self.newest);
            self.note(order);
        }
    }

    fn note(&mut self, order: FoldOrder) {
        if !self.orders.contains(&order) {
            self.orders.push(order);
        }
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

const PAUSE: Duration = Duration::from_millis(1);
