//! The next step of a group: a pure function of the reports, so that all machines decide the same.

use super::report::{Progress, Report, Rules, Stage};

/// The next step of all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Wait,
    /// The next generation, if the offers allow it.
    Start,
    /// The programs of this generation end; the next one follows. `restarts` is the number used up
    /// by then.
    Stop { why: Reason, restarts: u32 },
    /// The run ends.
    End(Reason),
}

/// Why a generation ends. Machines are named by their rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// All programs have ended with 0.
    Finished,
    /// A program has failed.
    Failed { machine: usize, rank: u32, code: u8 },
    /// A machine was lost.
    Lost,
    /// A machine has come or returned.
    Joined,
    /// The user of a machine has interrupted the run there.
    Interrupted { machine: usize },
}

/// The verdict on the reports of all machines, in the order of the View.
pub fn verdict(reports: &[Report]) -> Verdict {
    let rules = Rules::of_all(reports);
    let used = reports.iter().map(|report| report.restarts).max().unwrap_or(0);
    let interrupted = reports.iter().position(|report| report.stage == Stage::Interrupted);
    if let (Some(machine), false) = (interrupted, rules.is_elastic) {
        return Verdict::End(Reason::Interrupted { machine });
    }
    let again = |why: Reason| match used < rules.restarts {
        true => Verdict::Stop { why, restarts: used + 1 },
        false => Verdict::End(why),
    };
    // Interrupted machines no longer count.
    let size = reports.iter().filter(|report| report.stage != Stage::Interrupted).count();
    // A change comes before a failure, which may be its consequence.
    if let Some(why) = change(reports, size) {
        let why = interrupted.map_or(why, |machine| Reason::Interrupted { machine });
        return match rules.is_elastic {
            true => Verdict::Stop { why, restarts: used },
            false => again(why),
        };
    }
    if let Some(why) = first_failure(reports) {
        return again(why);
    }
    let all = |holds: fn(&Report) -> bool| reports.iter().all(holds);
    if all(|report| matches!(report.stage, Stage::Started { progress: Progress::Done, .. })) {
        return Verdict::End(Reason::Finished);
    }
    let is_complete = size >= usize::from(rules.members);
    let suffices = size >= usize::from(rules.min) && all(|report| report.is_settled);
    if all(|report| report.stage == Stage::Ready) && (is_complete || suffices) {
        return Verdict::Start;
    }
    Verdict::Wait
}

/// The failed program with the lowest rank.
fn first_failure(reports: &[Report]) -> Option<Reason> {
    let failures = reports.iter().enumerate().filter_map(|(machine, report)| match report.stage {
        Stage::Started { progress: Progress::Failed { rank, code }, .. } => {
            Some((rank, Reason::Failed { machine, rank, code }))
        }
        _ => None,
    });
    failures.min_by_key(|(rank, _)| *rank).map(|(_, why)| why)
}

/// Why the machines whose programs run are no longer those of their generation.
fn change(reports: &[Report], size: usize) -> Option<Reason> {
    let newest = reports.iter().map(|report| report.generation).max()?;
    let started = |report: &Report| match report.stage {
        Stage::Started { machines, .. } => Some((report.generation, usize::from(machines))),
        _ => None,
    };
    let mut running = reports.iter().filter_map(started).peekable();
    running.peek()?;
    // Every member of a generation starts it in the same round: a machine that is ready is new, or
    // was away.
    let is_new = |report: &Report| report.stage == Stage::Ready;
    let is_other = |(generation, machines)| generation != newest || machines > size;
    if running.any(is_other) {
        return Some(Reason::Lost);
    }
    reports.iter().any(is_new).then_some(Reason::Joined)
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::report;
    use super::*;

    const FIXED: Rules = Rules { members: 3, min: 3, is_elastic: false, restarts: 0 };
    const ELASTIC: Rules = Rules { members: 3, min: 2, is_elastic: true, restarts: 1 };
    const RUNS: Stage = Stage::Started { machines: 3, progress: Progress::Running };
    const DONE: Stage = Stage::Started { machines: 3, progress: Progress::Done };
    const FAILED: Stage = failed(4, 3);

    const fn failed(rank: u32, code: u8) -> Stage {
        Stage::Started { machines: 3, progress: Progress::Failed { rank, code } }
    }

    fn of(rules: Rules, stages: &[Stage]) -> Verdict {
        verdict(&stages.iter().map(|stage| report(*stage, rules, stages.len())).collect::<Vec<_>>())
    }

    fn settled(rules: Rules, stages: &[Stage]) -> Verdict {
        let settled =
            |stage: &Stage| Report { is_settled: true, ..report(*stage, rules, stages.len()) };
        verdict(&stages.iter().map(settled).collect::<Vec<_>>())
    }

    #[test]
    fn a_generation_starts_when_all_are_ready_and_ends_when_all_are_done() {
        use Stage::{Ready, Stopping};
        assert_eq!(of(FIXED, &[Ready, Ready, Ready]), Verdict::Start);
        assert_eq!(of(FIXED, &[Ready, Ready]), Verdict::Wait);
        assert_eq!(settled(FIXED, &[Ready, Ready]), Verdict::Wait, "two are not three");
        assert_eq!(of(FIXED, &[Ready, Stopping, Ready]), Verdict::Wait);
        assert_eq!(of(FIXED, &[RUNS, DONE, RUNS]), Verdict::Wait);
        assert_eq!(of(FIXED, &[DONE, DONE, DONE]), Verdict::End(Reason::Finished));
    }

    #[test]
    fn fewer_start_only_when_elastic_and_nobody_comes() {
        use Stage::Ready;
        assert_eq!(of(ELASTIC, &[Ready, Ready]), Verdict::Wait);
        assert_eq!(settled(ELASTIC, &[Ready, Ready]), Verdict::Start);
        assert_eq!(settled(ELASTIC, &[Ready]), Verdict::Wait, "below the minimum");
        assert_eq!(of(ELASTIC, &[Ready, Ready, Ready]), Verdict::Start, "all are here");
    }

    #[test]
    fn a_failure_ends_all_or_uses_up_a_restart() {
        let other = failed(2, 9);
        let why = Reason::Failed { machine: 1, rank: 4, code: 3 };
        assert_eq!(of(FIXED, &[RUNS, FAILED, DONE]), Verdict::End(why));
        assert_eq!(
            of(FIXED, &[RUNS, FAILED, other]),
            Verdict::End(Reason::Failed { machine: 2, rank: 2, code: 9 }),
            "of several the lowest rank"
        );
        assert_eq!(of(ELASTIC, &[RUNS, FAILED, DONE]), Verdict::Stop { why, restarts: 1 });
        let mut reports = [RUNS, FAILED, DONE].map(|stage| report(stage, ELASTIC, 3));
        reports[2].restarts = 1;
        assert_eq!(verdict(&reports), Verdict::End(why), "they are used up");
    }

    #[test]
    fn a_lost_machine_ends_all_or_starts_the_rest_again() {
        assert_eq!(of(FIXED, &[RUNS, RUNS]), Verdict::End(Reason::Lost));
        assert_eq!(of(FIXED, &[RUNS, DONE]), Verdict::End(Reason::Lost));
        let stop = |why, restarts| Verdict::Stop { why, restarts };
        assert_eq!(of(ELASTIC, &[RUNS, RUNS]), stop(Reason::Lost, 0));
        // The programs of the others may fail because of it.
        assert_eq!(of(FIXED, &[RUNS, FAILED]), Verdict::End(Reason::Lost));
        assert_eq!(of(ELASTIC, &[RUNS, FAILED]), stop(Reason::Lost, 0));
        let patient = Rules { restarts: 2, ..FIXED };
        assert_eq!(of(patient, &[RUNS, RUNS]), stop(Reason::Lost, 1));
        // One is back before its loss was noticed.
        assert_eq!(of(ELASTIC, &[RUNS, Stage::Ready, RUNS]), stop(Reason::Joined, 0));
        assert_eq!(of(FIXED, &[RUNS, Stage::Ready, RUNS]), Verdict::End(Reason::Joined));
        // One has missed that the others went on.
        let mut reports = [RUNS, RUNS, RUNS].map(|stage| report(stage, ELASTIC, 3));
        reports[0].generation = 1;
        assert_eq!(verdict(&reports), stop(Reason::Lost, 0));
        let two = Stage::Started { machines: 2, progress: Progress::Running };
        assert_eq!(of(ELASTIC, &[two, two, Stage::Ready]), stop(Reason::Joined, 0));
        assert_eq!(of(ELASTIC, &[two, two, Stage::Stopping]), Verdict::Wait);
    }

    #[test]
    fn an_interrupt_ends_all_unless_elastic() {
        use Stage::{Interrupted, Ready};
        let why = Reason::Interrupted { machine: 1 };
        assert_eq!(of(FIXED, &[RUNS, Interrupted, RUNS]), Verdict::End(why));
        assert_eq!(of(FIXED, &[Ready, Interrupted]), Verdict::End(why));
        let stop = Verdict::Stop { why, restarts: 0 };
        assert_eq!(of(ELASTIC, &[RUNS, Interrupted, RUNS]), stop);
        assert_eq!(of(ELASTIC, &[FAILED, Interrupted, RUNS]), stop, "the failure may follow");
        assert_eq!(settled(ELASTIC, &[Ready, Interrupted, Ready]), Verdict::Wait, "until it left");
        assert_eq!(of(ELASTIC, &[Interrupted]), Verdict::Wait);
    }
}
