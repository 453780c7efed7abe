//! The processor cores of this machine.

use std::num::NonZero;
use std::sync::LazyLock;

/// Whether this process may use at least [`SPARE`] cores. Fewer are fully used by a link's own
/// threads, one per direction at each end.
pub fn has_spare_cores() -> bool {
    static CORES: LazyLock<usize> =
        LazyLock::new(|| std::thread::available_parallelism().map_or(1, NonZero::get));
    *CORES >= SPARE
}

const SPARE: usize = 4;
