//! A test binary whose tests say what they need.
//!
//! For targets with `harness = false`:
//!
//! ```no_run
//! use potluck_harness::{Need, Suite};
//!
//! let mut suite = Suite::new();
//! suite.test("adds up", || {
//!     anyhow::ensure!(2 + 2 == 4);
//!     Ok(())
//! });
//! suite.test_needing("has two machines", &[Need::Lab], || Ok(()));
//! suite.run();
//! ```

use std::sync::{Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};

use crate::need::{Need, first_unmet};

/// The tests of one binary, with the options of `cargo test` (filters, `--list`, `--skip`, `--test-threads`).
pub struct Suite {
    arguments: Arguments,
    trials: Vec<Trial>,
    engine: Option<Engine>,
}

/// What nodes of the tests that are added now are told to offer.
#[derive(Clone, Copy)]
struct Engine {
    name: &'static str,
    missing: Option<&'static str>,
}

/// Held by one serial test at a time.
static ALONE: Mutex<()> = Mutex::new(());

impl Suite {
    /// Reads the options from the command line; ends the process on an option it does not know.
    #[allow(clippy::new_without_default)] // a default that reads the command line would surprise
    pub fn new() -> Suite {
        Suite { arguments: Arguments::from_args(), trials: Vec::new(), engine: None }
    }

    /// The tests that are added from now on have the engine in front of their name, and nodes that they start on their
    /// own thread are told to offer it. They are skipped if it is missing, for the reason given.
    pub fn on(&mut self, engine: &'static str, missing: Option<&'static str>) {
        self.engine = Some(Engine { name: engine, missing });
    }

    /// So many tests run at the same time unless the command line says otherwise: for tests that mostly wait.
    pub fn at_once(&mut self, tests: usize) {
        self.arguments.test_threads.get_or_insert(tests);
    }

    /// A test that runs anywhere. Tests of a suite run in parallel; a panic or an error is a failure.
    pub fn test<F>(&mut self, name: &str, body: F)
    where
        F: FnOnce() -> anyhow::Result<()> + Send + 'static,
    {
        self.test_needing(name, &[], body);
    }

    /// A test that is skipped, with the reason printed as `SKIPPED name: reason`, when a need is not met here.
    ///
    /// Asked for by `--ignored` or `--include-ignored` all the same, it fails with that reason.
    pub fn test_needing<F>(&mut self, name: &str, needs: &[Need], body: F)
    where
        F: FnOnce() -> anyhow::Result<()> + Send + 'static,
    {
        let engine = self.engine;
        let name = &engine.map_or_else(|| name.to_owned(), |engine| format!("{}/{name}", engine.name));
        let missing = engine.and_then(|engine| engine.missing).map(str::to_owned);
        let unmet = if self.would_run(name) { missing.or_else(|| first_unmet(needs)) } else { None };
        if let Some(reason) = &unmet {
            println!("SKIPPED {name}: {reason}");
        }
        let skipped = unmet.is_some();
        let trial = Trial::test(name, move || match unmet {
            Some(reason) => Err(Failed::from(format!("cannot run here: {reason}"))),
            None => {
                crate::engine::with(engine.map(|engine| engine.name), body).map_err(|error| Failed::from(format!("{error:#}")))
            }
        });
        self.trials.push(trial.with_ignored_flag(skipped));
    }

    /// Like [`test_needing`](Suite::test_needing), but never at the same time as another serial test of this binary:
    /// for tests that measure time, or that would starve others.
    pub fn serial<F>(&mut self, name: &str, needs: &[Need], body: F)
    where
        F: FnOnce() -> anyhow::Result<()> + Send + 'static,
    {
        self.test_needing(name, needs, || {
            // A failed test says nothing about the next one.
            let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
            body()
        });
    }

    /// Runs the tests and ends the process with the exit code `cargo test` expects.
    pub fn run(self) -> ! {
        libtest_mimic::run(&self.arguments, self.trials).exit()
    }

    /// Whether the filters let `name` through. Needs of other tests are not probed, and not complained about.
    fn would_run(&self, name: &str) -> bool {
        let matches = |filter: &String| {
            if self.arguments.exact { name == filter } else { name.contains(filter.as_str()) }
        };
        !self.arguments.list
            && !self.arguments.bench
            && self.arguments.filter.as_ref().is_none_or(matches)
            && !self.arguments.skip.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(arguments: &[&str]) -> Suite {
        // What the suites under test print must not be taken for results of this one.
        let quiet = ["suite", "--logfile", "/dev/null"];
        Suite { arguments: Arguments::from_iter(quiet.iter().chain(arguments)), trials: Vec::new(), engine: None }
    }

    const NOWHERE: Need = Need::Command("a-program-nobody-has");

    #[test]
    fn an_unmet_need_is_ignored_and_neither_passed_nor_failed() {
        let mut suite = suite(&[]);
        suite.test("runs", || Ok(()));
        suite.test_needing("cannot run", &[NOWHERE], || Ok(()));
        let end = libtest_mimic::run(&suite.arguments, suite.trials);
        assert_eq!((end.num_passed, end.num_ignored, end.num_failed), (1, 1, 0));
    }

    #[test]
    fn asked_for_by_name_of_the_ignored_it_fails() {
        let mut suite = suite(&["--include-ignored"]);
        suite.test_needing("cannot run", &[NOWHERE], || Ok(()));
        let end = libtest_mimic::run(&suite.arguments, suite.trials);
        assert_eq!((end.num_passed, end.num_failed), (0, 1));
    }

    #[test]
    fn errors_and_panics_are_failures_also_of_serial_tests() {
        let mut suite = suite(&[]);
        suite.test("error", || anyhow::bail!("expected by this test"));
        suite.serial("panic", &[], || panic!("expected by this test"));
        suite.serial("after the panic", &[], || Ok(()));
        let end = libtest_mimic::run(&suite.arguments, suite.trials);
        assert_eq!((end.num_passed, end.num_failed), (1, 2));
    }

    #[test]
    fn filters_decide_what_is_probed() {
        assert!(suite(&["lab"]).would_run("lab_comes_up"));
        assert!(!suite(&["lab", "--exact"]).would_run("lab_comes_up"));
        assert!(!suite(&["--skip", "lab"]).would_run("lab_comes_up"));
        assert!(!suite(&["--list"]).would_run("lab_comes_up"));
    }
}
