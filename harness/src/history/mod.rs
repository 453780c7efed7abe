//! Logs of real nodes, and the checks on them. This module does not use the library that it checks.
//!
//! Every node writes each of its calls to a log of its own, one JSON object per line: the call with
//! its arguments, and its return with the outcome and a hash of the buffer. A process that disturbs
//! the nodes logs its actions. Times `t` are microseconds of the monotonic clock of one machine.
//! [`record`] reads the logs, [`mod@reference`] computes the correct results, and [`claims`] is the
//! list of claims.
//!
//! Contributions are not logged: [`inputs`] derives them from the seed, the call and the node.
//!
//! | event | of | fields |
//! | --- | --- | --- |
//! | `start` | a node | `node`, `life` |
//! | `installed` | a View | `view`, `members` in rank order |
//! | `took` | a Context | `lane`, `view`, `members` |
//! | `call` | a call before it is made | `id`, `lane`, `view`, `k`, `what`, `way`, `before` |
//! | `return` | its end in the program | `id`, `code`, `cause`, `after`, `result` |
//! | `kept` | the result of a dropped call | `id`, `result` |
//! | `applied` | a result that entered the state | `lane`, `view`, `k`, `version`, `digest` |
//! | `status` | the state of the node, once a second | `kept_out` |
//! | `withheld` | a member that is kept out for withholding its vote | `who` |
//! | `left` | the node has left | |
//! | `struck`, `healed` | the beginning and the end of a fault | `n`, `kind`, `who` |
//! | `majority` | only a majority continues after a partition | |
//! | `liar` | a node that lies to the others | `node` |
//! | `killed` | the end of a process | `node`, `life` |
//! | `hang` | a call that does not end although nothing is wrong | `text` |

pub mod claims;
pub mod inputs;
pub mod record;
pub mod reference;
pub mod what;

pub use claims::{Report, Violation};
pub use record::History;
pub use what::{Coded, DType, Kind, Op, What};
