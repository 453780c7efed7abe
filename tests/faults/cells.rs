//! The cells: every fault in every phase, for every group size and both engines; and a selection of
//! forty-four.

use crate::fault::{self, Fault};
use crate::phase::{self, Phase};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    pub fault: Fault,
    pub phase: Phase,
    /// The number of members that call, including the victim.
    pub members: usize,
    pub engine: &'static str,
}

pub const ENGINES: [&str; 2] = ["native", "gloo"];
pub const SIZES: [usize; 3] = [2, 3, 5];

impl Cell {
    pub fn name(&self) -> String {
        format!("{}, {}, {} members", self.fault.name(), self.phase.name(), self.members)
    }

    /// The command that runs this cell alone with the same random choices.
    pub fn replay(&self, seed: u64) -> String {
        let Cell { fault, phase, members, engine } = self;
        let (fault, phase) = (fault.name(), phase.name());
        format!(
            "make faults ARGS=\"--fault {fault} --phase {phase} --n {members} --engine {engine} \
             --seed {seed}\""
        )
    }

    /// Whether the cell mostly waits, so that several may run at the same time.
    pub fn waits(&self) -> bool {
        let Cell { fault, .. } = self;
        let lasts = matches!(fault, Fault::Stop(5 | 30) | Fault::Loss | Fault::Thread);
        lasts || fault.swallows() || fault.is_of_the_disk()
    }
}

/// All cells.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for fault in fault::all() {
        for phase in phase::ALL {
            for engine in ENGINES {
                cells.extend(SIZES.map(|members| Cell { fault, phase, members, engine }));
            }
        }
    }
    cells
}

/// Forty-four cells. Each fault of a host occurs in three phases of a call of all members, in all
/// sizes and on both engines; each phase occurs in all sizes and on both engines. Each fault of a
/// part occurs once.
pub fn few() -> Vec<Cell> {
    let rounds = (0..3).flat_map(|round| (0..fault::HOSTS.len()).map(move |at| (round, at)));
    let of_a_host = |(round, at): (usize, usize)| Cell {
        fault: fault::HOSTS[at],
        phase: phase::OF_ALL[(at + 2 * round) % phase::OF_ALL.len()],
        members: SIZES[(at + round) % SIZES.len()],
        engine: ENGINES[(at / 5 + at + round) % ENGINES.len()],
    };
    let of_a_part = |at: usize| Cell {
        fault: fault::PARTS[at],
        phase: phase::OF_ALL[(at + 1) % phase::OF_ALL.len()],
        members: SIZES[at % SIZES.len()],
        engine: ENGINES[at % ENGINES.len()],
    };
    let parts = (0..fault::PARTS.len()).map(of_a_part);
    let of_a_group = |(at, fault): (usize, Fault)| Cell {
        fault,
        phase: Phase::SubGroup,
        members: SIZES[at % SIZES.len()],
        engine: ENGINES[at % ENGINES.len()],
    };
    let faults =
        [Fault::Kill, Fault::Stop(5), Fault::Cut, Fault::Leave, Fault::Restart, Fault::Reset];
    let groups = faults.into_iter().enumerate().map(of_a_group);
    rounds.map(of_a_host).chain(parts).chain(groups).collect()
}
