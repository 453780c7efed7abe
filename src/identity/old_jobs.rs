//! Forgets the files of jobs that no program has run for long.

use super::home::{Home, Slot};
use super::job_name::JobName;
use super::namespace::NamespaceName;
use crate::trace;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Age at which the files of a job are removed.
const KEPT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Removes the state of this slot, and the peers, of jobs other than `job` whose files were written
/// last more than 30 days before `now`. The caller holds the slot, so no process uses them. Errors
/// are ignored: the next start tries again.
pub(super) fn forget(
    home: &Home,
    slot: Slot,
    (name, job): (&NamespaceName, &JobName),
    now: SystemTime,
) {
    let Ok(entries) = fs::read_dir(home.state_dir()) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Some(of) = job_of(&path, name) else { continue };
        let is_of_slot =
            path == home.state_path(name, &of, slot) || path == home.peers_path(name, &of);
        if of != *job && is_of_slot && is_old(&path, now) && fs::remove_file(&path).is_ok() {
            trace::info!(file = %path.display(), "forgot a job that was not run for 30 days");
        }
    }
}

/// The job in the name of a state or peers file: what stands between its first two dots.
fn job_of(path: &Path, name: &NamespaceName) -> Option<JobName> {
    let file = path.file_name()?.to_str()?;
    let rest = file.strip_prefix("state-").or_else(|| file.strip_prefix("peers-"))?;
    let rest = rest.strip_prefix(name.as_str())?.strip_prefix('.')?;
    JobName::parse(rest.split_once('.')?.0).ok()
}

/// Whether it was written last so long ago. A time in the future is not.
fn is_old(path: &Path, now: SystemTime) -> bool {
    let written = fs::symlink_metadata(path).and_then(|it| it.modified());
    written.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age > KEPT))
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn old_files_of_other_jobs_go_and_all_others_stay() {
        let scratch = Scratch::new();
        let now = SystemTime::now();
        let old = now - KEPT - Duration::from_secs(60);
        let gone = ["state-a.train.bin", "peers-a.train.toml", "state-a.1.bin"];
        let kept = [
            "state-a.own.bin",     // the job that starts
            "state-a.train.2.bin", // another slot, which a process may hold
            "state-ab.train.bin",  // another namespace
            "state-a.bin",         // no job
            "state-a.Train.bin",   // no name of a job
            "identity.key",
            "known-a.toml",
        ];
        let make = |file: &str, at| {
            let made = fs::File::create(scratch.path().join(file)).expect("a file");
            made.set_modified(at).expect("its time");
        };
        gone.iter().chain(&kept).for_each(|file| make(file, old));
        make("state-a.fresh.bin", now - KEPT + Duration::from_secs(60));
        make("peers-a.later.toml", now + KEPT);
        let [name, own] = ["a", "own"];
        let name = NamespaceName::parse(name).expect("a name");
        let own = JobName::parse(own).expect("a name");
        forget(&Home::at(scratch.path()), Slot::FIRST, (&name, &own), now);
        let left: BTreeSet<String> = fs::read_dir(scratch.path())
            .expect("a directory")
            .map(|it| it.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        let expected = kept.into_iter().chain(["state-a.fresh.bin", "peers-a.later.toml"]);
        assert_eq!(left, expected.map(str::to_owned).collect());
    }
}
