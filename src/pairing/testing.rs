//! Invitations for tests.

use super::message::{KeyOutcome, Receipt, Welcome};
use super::talk::Terms;
use super::window::Window;
use crate::identity::{ClusterKey, Name, NamespaceName, PairingCode};
use std::sync::{Arc, Mutex};
use tokio::time::Instant;

pub(super) const CODE: &str = "42-1234-5678";
pub(super) const WRONG: &str = "42-1234-5679";
/// Ten minutes.
pub(super) const LASTS_MS: u64 = 600_000;

pub(super) fn code(text: &str) -> PairingCode {
    PairingCode::parse(text).expect("a code")
}

pub(super) fn welcome() -> Welcome {
    Welcome {
        key: ClusterKey::from_bytes(&[7; 32]),
        namespace: NamespaceName::parse("lab").expect("a name"),
        name: Name::from_lossy("ada"),
    }
}

pub(super) fn receipt(kept: KeyOutcome) -> Receipt {
    Receipt { kept, name: Name::from_lossy("bob") }
}

/// An invitation of [`CODE`] that begins now.
pub(super) fn terms(machines: usize) -> Arc<Terms> {
    let window = Mutex::new(Window::open(0, LASTS_MS, machines));
    let (code, welcome) = (code(CODE), Box::new(welcome));
    Arc::new(Terms { code, welcome, window, began: Instant::now() })
}
