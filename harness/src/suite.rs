//! A test binary whose tests declare their requirements.
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

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Conclusion, Failed, Trial};

use crate::lag::Lag;
use crate::need::{Need, first_unmet};
use crate::turns::Turns;

/// The tests of one binary, with the options of `cargo test` (filters, `--list`, `--skip`,
/// `--test-threads`).
pub struct Suite {
    arguments: Arguments,
    tests: Vec<Test>,
    engine: Option<Engine>,
    at_once: usize,
}

/// A test that has not run yet.
struct Test {
    name: String,
    company: Company,
    engine: Option<&'static str>,
    /// Why it cannot run on this machine.
    unmet: Option<String>,
    body: Body,
}

type Body = Box<dyn Fn() -> anyhow::Result<()> + Send>;

/// Which tests may run at the same time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Company {
    /// Any others, up to the suite's limit.
    Any,
    /// Any others, but not another serial test.
    Serial,
}

/// The engine of the tests that are added next.
#[derive(Clone, Copy)]
struct Engine {
    name: &'static str,
    missing: Option<&'static str>,
}

/// If the machine stood still for this long, members may have counted each other as lost, and a
/// test in real time proves nothing. The library misses a member after 1.5 s of silence at the
/// earliest.
const STALL: Duration = Duration::from_secs(1);

/// A test that fails while the machine stands still is run again, so often.
const AGAIN: usize = 2;

/// Tests that take longer are listed at the end of the suite.
const LONG: Duration = Duration::from_secs(5);

impl Suite {
    /// Reads the options from the command line; exits the process on an unknown option.
    #[allow(clippy::new_without_default)] // a default that reads the command line would surprise
    pub fn new() -> Suite {
        Suite::of(Arguments::from_args())
    }

    fn of(arguments: Arguments) -> Suite {
        let at_once = std::thread::available_parallelism().map_or(1, usize::from);
        Suite { arguments, tests: Vec::new(), engine: None, at_once }
    }

    /// Tests added from now on get the engine as a prefix of their name, and nodes that they start
    /// on their own thread offer it. If `missing` is set, they are skipped with that reason.
    pub fn on(&mut self, engine: &'static str, missing: Option<&'static str>) {
        self.engine = Some(Engine { name: engine, missing });
    }

    /// Sets how many tests run at the same time, plus one serial test; for tests that mostly wait.
    /// Default: the number of processors. `--test-threads` overrides it.
    pub fn at_once(&mut self, tests: usize) {
        self.at_once = tests;
    }

    /// Adds a test without requirements. The tests of a suite run in parallel; a panic or an error
    /// is a failure.
    pub fn test<F>(&mut self, name: &str, body: F)
    where
        F: Fn() -> anyhow::Result<()> + Send + 'static,
    {
        self.test_needing(name, &[], body);
    }

    /// Adds a test that is skipped if a need is not met on this machine. The reason is printed as
    /// `SKIPPED name: reason`.
    ///
    /// If requested by `--ignored` or `--include-ignored`, it fails with that reason instead.
    pub fn test_needing<F>(&mut self, name: &str, needs: &[Need], body: F)
    where
        F: Fn() -> anyhow::Result<()> + Send + 'static,
    {
        self.add(name, needs, Company::Any, Box::new(body));
    }

    /// Like [`test_needing`](Suite::test_needing), but never at the same time as another serial
    /// test of this binary: for tests that measure time or use all processors.
    pub fn serial<F>(&mut self, name: &str, needs: &[Need], body: F)
    where
        F: Fn() -> anyhow::Result<()> + Send + 'static,
    {
        self.add(name, needs, Company::Serial, Box::new(body));
    }

    fn add(&mut self, name: &str, needs: &[Need], company: Company, body: Body) {
        let name =
            self.engine.map_or_else(|| name.to_owned(), |engine| format!("{}/{name}", engine.name));
        let missing = self.engine.and_then(|engine| engine.missing).map(str::to_owned);
        let unmet =
            if self.would_run(&name) { missing.or_else(|| first_unmet(needs)) } else { None };
        if let Some(reason) = &unmet {
            println!("SKIPPED {name}: {reason}");
        }
        self.tests.push(Test {
            name,
            company,
            engine: self.engine.map(|engine| engine.name),
            unmet,
            body,
        });
    }

    /// Runs the tests and exits the process with the exit code that `cargo test` expects.
    pub fn run(self) -> ! {
        self.concluded().exit()
    }

    /// Every test has its own thread, and `Turns` limit how many run. With a fixed number of
    /// threads, serial tests that wait for each other could occupy all of them.
    fn concluded(mut self) -> Conclusion {
        let (any, serial) = match self.arguments.test_threads {
            Some(1) => (1, None),
            threads => (threads.unwrap_or(self.at_once), Some(Arc::new(Turns::of(1)))),
        };
        if serial.is_some() {
            self.arguments.test_threads = Some(self.tests.len().max(2));
        }
        let any = Arc::new(Turns::of(any));
        let serial = serial.unwrap_or_else(|| Arc::clone(&any));
        let long = Arc::new(Mutex::new(Vec::new()));
        let trials = self.tests.into_iter().map(|test| {
            let turns = if test.company == Company::Serial { &serial } else { &any };
            test.trial(Arc::clone(turns), Arc::clone(&long))
        });
        let end = libtest_mimic::run(&self.arguments, trials.collect());
        let mut long = std::mem::take(&mut *long.lock().unwrap_or_else(PoisonError::into_inner));
        long.sort_unstable();
        for (took, name) in long.into_iter().rev() {
            println!("took {:.1} s: {name}", took.as_secs_f64());
        }
        end
    }

    /// Whether the filters select `name`. The needs of other tests are neither probed nor reported.
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

impl Test {
    fn trial(self, turns: Arc<Turns>, long: Arc<Mutex<Vec<(Duration, String)>>>) -> Trial {
        let Test { name, engine, unmet, body, .. } = self;
        let (own, skipped) = (name.clone(), unmet.is_some());
        let run = move || match unmet {
            Some(reason) => Err(Failed::from(format!("cannot run here: {reason}"))),
            None => turns.take(|| {
                let began = Instant::now();
                let end = crate::engine::with(engine, || despite_stalls(&own, STALL, &body))
                    .map_err(|error| Failed::from(format!("{error:#}")));
                if began.elapsed() > LONG {
                    long.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push((began.elapsed(), own));
                }
                end
            }),
        };
        Trial::test(name, run).with_ignored_flag(skipped)
    }
}

/// Runs a test. If it fails, and this machine has stood still for at least `stall` meanwhile, runs
/// it again. Each failure is printed: `AGAIN name: reason`.
fn despite_stalls(
    name: &str,
    stall: Duration,
    body: &(dyn Fn() -> anyhow::Result<()> + Send),
) -> anyhow::Result<()> {
    for _ in 0..AGAIN {
        let lag = Lag::begin();
        // A panic is an error too: it may be the test's own assertion.
        let end = catch_unwind(AssertUnwindSafe(body));
        let stood = lag.longest();
        let why = match end {
            Ok(Ok(())) => return Ok(()),
            end if stood < stall => return end.unwrap_or_else(|panic| resume_unwind(panic)),
            Ok(Err(error)) => format!("{error:#}"),
            Err(panic) => panic_message(&*panic),
        };
        let why = why.replace('\n', " ");
        println!("AGAIN {name}: the machine stood still for {:.1} s: {why}", stood.as_secs_f64());
    }
    body()
}

/// The text of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn suite(arguments: &[&str]) -> Suite {
        // The output of the suites under test must not appear among the results of this suite.
        let quiet = ["suite", "--logfile", "/dev/null"];
        Suite::of(Arguments::from_iter(quiet.iter().chain(arguments)))
    }

    const NOWHERE: Need = Need::Command("a-program-nobody-has");

    #[test]
    fn an_unmet_need_is_ignored_and_neither_passed_nor_failed() {
        let mut suite = suite(&[]);
        suite.test("runs", || Ok(()));
        suite.test_needing("cannot run", &[NOWHERE], || Ok(()));
        let end = suite.concluded();
        assert_eq!((end.num_passed, end.num_ignored, end.num_failed), (1, 1, 0));
    }

    #[test]
    fn asked_for_by_name_of_the_ignored_it_fails() {
        let mut suite = suite(&["--include-ignored"]);
        suite.test_needing("cannot run", &[NOWHERE], || Ok(()));
        let end = suite.concluded();
        assert_eq!((end.num_passed, end.num_failed), (0, 1));
    }

    #[test]
    fn errors_and_panics_are_failures_also_of_serial_tests() {
        let mut suite = suite(&[]);
        suite.test("error", || anyhow::bail!("expected by this test"));
        suite.serial("panic", &[], || panic!("expected by this test"));
        suite.serial("after the panic", &[], || Ok(()));
        let end = suite.concluded();
        assert_eq!((end.num_passed, end.num_failed), (1, 2));
    }

    #[test]
    fn serial_tests_run_one_at_a_time_and_beside_others() {
        let mut suite = suite(&[]);
        let (serial, met) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(2)));
        suite.at_once(1);
        for name in ["first", "second", "third"] {
            let (serial, met) = (Arc::clone(&serial), Arc::clone(&met));
            suite.serial(name, &[], move || {
                anyhow::ensure!(serial.fetch_add(1, Ordering::SeqCst) == 0, "not alone");
                // Meets a test that is not serial.
                met.wait();
                serial.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            });
        }
        for name in ["one", "two", "three"] {
            let met = Arc::clone(&met);
            suite.test(name, move || {
                met.wait();
                Ok(())
            });
        }
        assert_eq!(suite.concluded().num_passed, 6);
    }

    #[test]
    fn with_one_thread_nothing_runs_beside_anything() {
        let mut suite = suite(&["--test-threads", "1"]);
        let now = Arc::new(AtomicUsize::new(0));
        let alone = |now: Arc<AtomicUsize>| {
            move || {
                anyhow::ensure!(now.fetch_add(1, Ordering::SeqCst) == 0, "not alone");
                std::thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }
        };
        suite.test("one", alone(Arc::clone(&now)));
        suite.serial("two", &[], alone(Arc::clone(&now)));
        suite.test("three", alone(now));
        assert_eq!(suite.concluded().num_passed, 3);
    }

    #[test]
    fn a_failure_counts_unless_the_machine_stood_still() {
        let runs = AtomicUsize::new(0);
        let fails_once = || {
            anyhow::ensure!(runs.fetch_add(1, Ordering::SeqCst) > 0, "expected by this test");
            Ok(())
        };
        assert!(despite_stalls("counts", Duration::MAX, &fails_once).is_err());
        assert_eq!(runs.swap(0, Ordering::SeqCst), 1);
        // Every machine stands still for at least no time.
        assert!(despite_stalls("is run again", Duration::ZERO, &fails_once).is_ok());
        assert_eq!(runs.swap(0, Ordering::SeqCst), 2);
        let fails = || -> anyhow::Result<()> {
            runs.fetch_add(1, Ordering::SeqCst);
            panic!("expected by this test")
        };
        let end = catch_unwind(AssertUnwindSafe(|| {
            despite_stalls("fails each time", Duration::ZERO, &fails)
        }));
        assert!(end.is_err());
        assert_eq!(runs.load(Ordering::SeqCst), AGAIN + 1);
    }

    #[test]
    fn filters_decide_what_is_probed() {
        assert!(suite(&["lab"]).would_run("lab_comes_up"));
        assert!(!suite(&["lab", "--exact"]).would_run("lab_comes_up"));
        assert!(!suite(&["--skip", "lab"]).would_run("lab_comes_up"));
        assert!(!suite(&["--list"]).would_run("lab_comes_up"));
    }
}
