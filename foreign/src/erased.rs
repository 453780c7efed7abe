//! Elements of a result, without their type.

use super::memory::bytes_of;
use potluck::Element;
use potluck::calls::RankParts;
use std::fmt;
use std::sync::Arc;

/// The elements of a result, without their type. They are not copied: there may be no memory for
/// that when the others have their results.
#[derive(Clone)]
pub struct Erased(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl Erased {
    pub(crate) fn of<T: Element>(parts: RankParts<T>) -> Erased {
        Erased(Arc::new(Bytes(parts)))
    }

    /// Their bytes.
    pub fn bytes(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

struct Bytes<T>(RankParts<T>);

impl<T: Element> AsRef<[u8]> for Bytes<T> {
    fn as_ref(&self) -> &[u8] {
        bytes_of(self.0.elements())
    }
}

impl fmt::Debug for Erased {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Erased").field(&self.bytes()).finish()
    }
}

impl PartialEq for Erased {
    fn eq(&self, other: &Erased) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for Erased {}
