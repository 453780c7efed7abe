//! The reports that the supervisors send each other, several times a second. They come from other
//! machines: numbers and addresses only, and checked before use.

use super::offer::{Offer, PROCESSES_MAX};
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// The state of one machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// The stage of its programs.
    pub stage: Stage,
    /// The last generation that it has started; 0 before the first.
    pub generation: u32,
    /// How many restarts have been used up.
    pub restarts: u32,
    /// For a while the same machines have been there.
    pub is_settled: bool,
    /// The rules of its user.
    pub rules: Rules,
    /// Its offer to the next generation, while it is ready for it.
    pub offer: Option<Offer>,
}

/// The stage of the programs of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Stage {
    /// None runs; the next generation may start.
    Ready,
    /// They have been started.
    Started {
        /// How many machines the generation has.
        machines: u8,
        /// How far they are.
        progress: Progress,
    },
    /// They have been told to end.
    Stopping,
    /// The user of this machine has interrupted the run.
    Interrupted,
}

/// How far the programs of a machine are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Progress {
    /// None has failed, and some run.
    Running,
    /// All have ended with 0.
    Done,
    /// One of them has ended with another code, this one first.
    Failed {
        /// Its rank.
        rank: u32,
        /// Its exit code, not 0.
        code: u8,
    },
}

/// The rules of a machine's user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The run begins with this many machines.
    pub members: u8,
    /// It goes on with at least this many.
    pub min: u8,
    /// Whether it goes on without machines that are lost.
    pub is_elastic: bool,
    /// How often it may start again.
    pub restarts: u32,
}

impl Rules {
    /// The rules of a group: each is that of its most cautious user.
    pub fn of_all(reports: &[Report]) -> Rules {
        let all = || reports.iter().map(|report| report.rules);
        let members = all().map(|rules| rules.members).max().unwrap_or(1);
        Rules {
            members,
            min: all().map(|rules| rules.min).max().unwrap_or(1).min(members),
            is_elastic: all().all(|rules| rules.is_elastic),
            restarts: all().map(|rules| rules.restarts).min().unwrap_or(0),
        }
    }
}

impl Report {
    /// The bytes that travel.
    pub fn encoded(&self) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// The report in the bytes that a machine of a group of `size` has sent.
    pub fn decoded(bytes: &[u8], size: usize) -> Result<Report> {
        ensure!(bytes.len() <= BYTES_MAX, "a report of {} bytes", bytes.len());
        let report: Report = serde_json::from_slice(bytes).context("not a report")?;
        report.offer.iter().try_for_each(|offer| offer.check(size))?;
        ensure!(report.offer.is_some() == (report.stage == Stage::Ready), "an offer out of place");
        let members = 1..=MACHINES_MAX;
        let Rules { members: wanted, min, .. } = report.rules;
        ensure!(members.contains(&wanted) && members.contains(&min), "a group of {wanted}, {min}");
        if let Stage::Started { machines, progress } = report.stage {
            ensure!(members.contains(&machines), "a generation of {machines} machines");
            if let Progress::Failed { rank, code } = progress {
                let ranks = u32::from(machines) * u32::from(PROCESSES_MAX);
                ensure!(rank < ranks && code != 0, "rank {rank} that failed with {code}");
            }
        }
        Ok(report)
    }
}

/// As many members as a group has.
const MACHINES_MAX: u8 = 32;

/// The ports of 64 processes and 32 + 64 addresses take less than half.
const BYTES_MAX: usize = 8192;

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A machine of a group of this many, which all reach each other.
    pub fn report(stage: Stage, rules: Rules, machines: usize) -> Report {
        let paths = (0..machines).map(|_| Some([10, 0, 0, 1].into())).collect();
        let offer = Offer {
            processes: 1,
            ports: vec![5000, 5001, 5002],
            paths,
            networks: Vec::new(),
            command: 7,
        };
        let offer = (stage == Stage::Ready).then_some(offer);
        Report { stage, generation: 0, restarts: 0, is_settled: false, rules, offer }
    }

    const RULES: Rules = Rules { members: 3, min: 2, is_elastic: true, restarts: 1 };

    #[test]
    fn a_report_comes_back_and_no_part_of_it_passes_for_one() -> Result<()> {
        for stage in [
            Stage::Ready,
            Stage::Started { machines: 3, progress: Progress::Running },
            Stage::Started { machines: 3, progress: Progress::Failed { rank: 2, code: 9 } },
            Stage::Stopping,
            Stage::Interrupted,
        ] {
            let report = report(stage, RULES, 3);
            let bytes = report.encoded()?;
            assert_eq!(Report::decoded(&bytes, 3)?, report);
            for end in 0..bytes.len() {
                assert!(Report::decoded(&bytes[..end], 3).is_err());
            }
        }
        Ok(())
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let refused = |change: fn(&mut Report, &mut Offer)| {
            let mut report = report(Stage::Ready, RULES, 3);
            let mut offer = report.offer.take().expect("it is ready");
            change(&mut report, &mut offer);
            report.offer = Some(offer);
            let bytes = report.encoded().expect("it can be written");
            assert!(Report::decoded(&bytes, 3).is_err(), "{report:?}");
        };
        for (machines, progress) in [
            (33, Progress::Done),
            (3, Progress::Failed { rank: 0, code: 0 }),
            (3, Progress::Failed { rank: 192, code: 1 }),
        ] {
            let mut report = report(Stage::Ready, RULES, 3);
            report.stage = Stage::Started { machines, progress };
            report.offer = None;
            let bytes = report.encoded().expect("it can be written");
            assert!(Report::decoded(&bytes, 3).is_err(), "{report:?}");
        }
        refused(|report, _| report.rules.members = 0);
        refused(|report, _| report.rules.min = 33);
        refused(|_, offer| offer.processes = 0);
        refused(|_, offer| offer.processes = 65);
        refused(|_, offer| offer.ports = vec![5000, 5001]);
        refused(|_, offer| offer.ports[1] = 0);
        refused(|_, offer| offer.paths.push(None));
        refused(|report, _| report.stage = Stage::Stopping);
        refused(|_, offer| offer.paths.truncate(2));
        refused(|_, offer| offer.networks = vec![Vec::new(); 9]);
        refused(|_, offer| offer.networks = vec![vec![[10, 0, 0, 1].into(); 9]]);
        let long = [b" ".repeat(BYTES_MAX), b"{}".to_vec()].concat();
        assert!(Report::decoded(&long, 3).is_err());
        let named = br#"{"stage":"ready","command":"rm"}"#;
        assert!(Report::decoded(named, 3).is_err());
    }

    #[test]
    fn the_rules_of_a_group_are_those_of_its_most_cautious_user() {
        let other = Rules { members: 4, min: 3, is_elastic: false, restarts: 5 };
        let reports = [report(Stage::Ready, RULES, 2), report(Stage::Ready, other, 2)];
        let both = Rules { members: 4, min: 3, is_elastic: false, restarts: 1 };
        assert_eq!(Rules::of_all(&reports), both);
    }
}
