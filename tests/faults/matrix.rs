//! Runs all or selected cells and prints a table of their results.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use potluck_harness::{chance, engine, need};

use crate::cells::{self, Cell};
use crate::course::{self, Answer};
use crate::{NEEDS, fault, phase, without};

const USAGE: &str = "faults matrix [--fault F,..] [--phase P,..] [--n N,..] [--engine E,..] \
                     [--seed S] [--at-once N] [--out FILE]";

/// The explanation below the table.
const LEGEND: &str = "\
Each cell shows the time until the last surviving member had its answer, and that answer. For `loss`
the time runs from the call, which has a deadline of 10 s; for `stop-1` it includes the pause.
`reduce-scatter`, `all-gather`: the fault strikes at a random share of the victim's bytes in that
half of a call of about a second; a change of the network takes effect some ten milliseconds later.
`before-done` and `view-change` depend on chance: the first strikes with the last bytes, when the
vote may be over or may not have begun; the second strikes within 30 ms of the kill of another
member, during a call. In `sub-group` one more member is in the View, and takes no part in the call.
Of two members, the survivor is alone after a loss and says so; the next operation is then the first
one after both are back. `left out`: so many calls ended with `Indeterminate`, because the next View
was made without their members; `unknown`: the calls of all survivors did. `mtu`: packets above a
size are dropped at the victim. `flow`, `flow-one-way`: one of its data links carries nothing, in
both directions or in one; a data link on which nothing is acknowledged ends after 10 s. `reset`,
`redial`: one data link or one control link is reset. `disk-full`, `disk-error`: the victim's disk
fails in that way when a reset data link makes the View change; the others go on without it after 5
s. `thread`: one thread that sends, receives or controls is stopped; the call has a deadline of 10
s.";

/// Runs the cells selected by `words`; succeeds if all pass.
pub fn run(words: &[String]) -> ExitCode {
    let green = Choice::read(words).and_then(|choice| choice.run());
    match green {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// The selection.
struct Choice {
    cells: Vec<Cell>,
    seed: u64,
    at_once: usize,
    out: Option<String>,
}

/// The result of a cell.
enum End {
    Green(Answer),
    Red,
    Skipped(String),
}

impl Choice {
    fn read(words: &[String]) -> Result<Choice> {
        let mut cells = cells::all();
        let (mut seed, mut at_once, mut out) = (None, 5, None);
        for pair in words.chunks(2) {
            let [option, value] = pair else { bail!("{USAGE}") };
            match option.as_str() {
                "--fault" => keep(&mut cells, value, |cell| cell.fault.name().to_owned())?,
                "--phase" => keep(&mut cells, value, |cell| cell.phase.name().to_owned())?,
                "--n" => keep(&mut cells, value, |cell| cell.members.to_string())?,
                "--engine" => keep(&mut cells, value, |cell| cell.engine.to_owned())?,
                "--seed" => seed = Some(value.parse().context("--seed takes a number")?),
                "--at-once" => at_once = value.parse().context("--at-once takes a number")?,
                "--out" => out = Some(value.clone()),
                _ => bail!("{USAGE}"),
            }
        }
        let seed = seed.map_or_else(|| chance::seed("faults"), Ok)?;
        Ok(Choice { cells, seed, at_once, out })
    }

    fn run(&self) -> Result<bool> {
        if let Some(reason) = need::first_unmet(&NEEDS) {
            bail!("the fault matrix cannot run here: {reason}");
        }
        let started = Instant::now();
        let (waiting, serial): (Vec<Cell>, Vec<Cell>) =
            self.cells.iter().partition(|cell| cell.waits());
        // First the cells that wait, several at a time; then those that measure times, one by one.
        let mut ends = self.run_all(waiting, self.at_once);
        ends.extend(self.run_all(serial, 1));
        let (table, green) = report(&ends, self.seed, started.elapsed().as_secs());
        println!("\n{table}");
        if let Some(path) = &self.out {
            std::fs::write(path, &table).with_context(|| format!("writing {path}"))?;
        }
        Ok(green)
    }

    fn run_all(&self, cells: Vec<Cell>, at_once: usize) -> Vec<(Cell, End)> {
        let (todo, ends) = (Mutex::new(VecDeque::from(cells)), Mutex::new(Vec::new()));
        let next = || todo.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        thread::scope(|scope| {
            for _ in 0..at_once.max(1) {
                scope.spawn(|| {
                    while let Some(cell) = next() {
                        let end = self.try_cell(&cell);
                        ends.lock().unwrap_or_else(PoisonError::into_inner).push((cell, end));
                    }
                });
            }
        });
        ends.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_cell(&self, cell: &Cell) -> End {
        let without = without(cell.engine).map(str::to_owned);
        if let Some(reason) = without.or_else(|| need::first_unmet(&cell.fault.needs())) {
            return End::Skipped(reason);
        }
        let started = Instant::now();
        let name = format!("{}, {}", cell.engine, cell.name());
        match engine::with(Some(cell.engine), || course::run(cell, self.seed)) {
            Ok(answer) => {
                println!("green  {name}: {answer} ({:.1} s)", started.elapsed().as_secs_f64());
                End::Green(answer)
            }
            Err(error) => {
                println!("RED    {name}: {error:#}");
                End::Red
            }
        }
    }
}

/// Keeps the cells whose name is in this list. Each word of the list must be a valid name.
fn keep(cells: &mut Vec<Cell>, words: &str, name: impl Fn(&Cell) -> String) -> Result<()> {
    for word in words.split(',') {
        let known: BTreeSet<String> = cells::all().iter().map(&name).collect();
        ensure!(
            known.contains(word),
            "there is no {word:?}, but: {}",
            known.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    cells.retain(|cell| words.split(',').any(|word| word == name(cell)));
    Ok(())
}

/// The table with its legend and its summary line, and whether all cells passed.
fn report(ends: &[(Cell, End)], seed: u64, took_s: u64) -> (String, bool) {
    let mut text = format!("{LEGEND}\n\n| fault | phase |");
    // Writing to a String cannot fail.
    let columns: Vec<(&str, usize)> =
        cells::ENGINES.iter().flat_map(|e| cells::SIZES.map(|n| (*e, n))).collect();
    for (engine, size) in &columns {
        let _ = write!(text, " {engine} {size} |");
    }
    let _ = writeln!(text, "\n| --- | --- |{}", " --- |".repeat(columns.len()));
    for fault in fault::all() {
        for phase in phase::ALL {
            let row: Vec<Option<&End>> = columns
                .iter()
                .map(|(engine, members)| {
                    let wanted = Cell { fault, phase, members: *members, engine };
                    ends.iter().find(|(cell, _)| *cell == wanted).map(|(_, end)| end)
                })
                .collect();
            if row.iter().any(Option::is_some) {
                let _ = write!(text, "| {} | {} |", fault.name(), phase.name());
                for end in row {
                    let _ = write!(text, " {} |", shown(end));
                }
                text.push('\n');
            }
        }
    }
    let count = |is: fn(&End) -> bool| ends.iter().filter(|(_, end)| is(end)).count();
    let (green, red, skipped) = (
        count(|e| matches!(e, End::Green(_))),
        count(|e| matches!(e, End::Red)),
        count(|e| matches!(e, End::Skipped(_))),
    );
    for (cell, end) in ends {
        match end {
            End::Red => text.push_str(&format!("\nRed: {}\n", cell.replay(seed))),
            End::Skipped(reason) => {
                text.push_str(&format!("\nSkipped: {}, {}: {reason}\n", cell.engine, cell.name()));
            }
            End::Green(_) => {}
        }
    }
    let (deaths, is_typical) = typical_death(ends);
    let _ = write!(
        text,
        "\nfaults: {green} cells green, {red} red, {skipped} skipped; {deaths}seed {seed}, \
         {took_s} s"
    );
    (text, red == 0 && is_typical)
}

fn shown(end: Option<&End>) -> String {
    match end {
        None => String::new(),
        Some(End::Green(answer)) => answer.to_string(),
        Some(End::Red) => "**RED**".to_owned(),
        Some(End::Skipped(_)) => "skipped".to_owned(),
    }
}

/// After the death of a process half a second is typical, so that bound applies to the median.
fn typical_death(ends: &[(Cell, End)]) -> (String, bool) {
    let of_deaths = |(cell, end): &(Cell, End)| match end {
        End::Green(answer) if cell.fault.is_death() => Some(answer.after_ms),
        _ => None,
    };
    let mut times: Vec<f64> = ends.iter().filter_map(of_deaths).collect();
    times.sort_by(f64::total_cmp);
    let Some(median) = times.get(times.len() / 2) else { return (String::new(), true) };
    let is_typical = *median <= DEATH_MS;
    let missed = if is_typical { "" } else { " (RED: at most 500)" };
    (format!("a death is answered after {median:.0} ms in the median{missed}; "), is_typical)
}

const DEATH_MS: f64 = 500.0;
