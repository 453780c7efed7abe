//! The whole run: every codec with every seed, a killed member, times on slow cables. Writes
//! `docs/training.md`.

use crate::group::{Group, MEMBERS};
use crate::net::Kind;
use crate::plot::{Line, svg};
use crate::report::{Report, mean, median, spread};
use crate::train::{Order, Trained};
use anyhow::{Context as _, Result};
use std::path::Path;
use std::process::ExitCode;

/// The extent of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// A quick look of about a minute.
    Quick,
    /// The run that the documentation shows.
    Full,
}

const EPOCHS: u64 = 30;

/// The codecs, and the points of accuracy that each may cost on average.
const CODECS: [(&str, f64); 8] = [
    ("bf16", 0.15),
    ("int8", 0.25),
    ("int4+ef", 0.30),
    ("int4", f64::INFINITY),
    ("onebit+ef", f64::INFINITY),
    ("onebit", f64::INFINITY),
    ("top10+ef", f64::INFINITY),
    ("top1+ef", f64::INFINITY),
];

/// The codecs in the plot, with their colours.
const DRAWN: [(&str, &str); 4] =
    [("f32", "#333"), ("bf16", "#1f77b4"), ("int8", "#2ca02c"), ("int4+ef", "#d62728")];

/// The points of accuracy that any single seed may lose at most.
const WORST: f64 = 1.0;

/// Trains and measures. `digits` is the file of the digits; without it accuracies are not judged. A
/// full run with digits is written to `docs`.
pub fn run(extent: Extent, digits: Option<&Path>, docs: &Path) -> Result<ExitCode> {
    let mut report = Report::new(digits.is_some());
    let seeds = if extent == Extent::Full { 10 } else { 2 };
    accuracies(seeds, digits, &mut report)?;
    convolutions(seeds.min(3), digits, &mut report)?;
    killed(seeds.min(5), digits, &mut report)?;
    let plot = over_time(digits, &mut report)?;
    sums(if extent == Extent::Full { 5 } else { 2 }, &mut report)?;
    if extent == Extent::Full && digits.is_some() {
        std::fs::write(docs.join("training.svg"), plot).context("writing the plot")?;
        std::fs::write(docs.join("training.md"), report.document())
            .context("writing the report")?;
    }
    Ok(report.finish())
}

fn order(kind: Kind, seed: u64, codec: &str) -> Order {
    Order {
        kind,
        seed,
        codec: codec.to_owned(),
        epochs: EPOCHS,
        workers: MEMBERS,
        curve_every: 0,
        beside: false,
        tell_every: 0,
        hold_at: None,
    }
}

fn of(trained: &[Trained]) -> f64 {
    trained.first().map_or(0.0, |first| first.accuracy)
}

/// Every codec with every seed, each compared with f32 and the same seed.
fn accuracies(seeds: u64, digits: Option<&Path>, report: &mut Report) -> Result<()> {
    let mut group = Group::on_one_machine(MEMBERS, digits)?;
    report.say(&format!(
        "## Accuracy\n\nAn MLP 64-128-64-10 on {MEMBERS} members, {EPOCHS} epochs, {seeds} seeds, \
         engine {}.\n",
        group.engine()
    ));
    let (mut exact, mut alike) = (Vec::new(), 0);
    for seed in 1..=seeds {
        let beside = Order { beside: true, ..order(Kind::Mlp, seed, "f32") };
        let trained = group.train(&beside)?;
        alike += u64::from(trained.iter().any(|one| one.beside == one.steps));
        exact.push(of(&trained));
    }
    report.must(
        &format!(
            "f32: one process alone has the same bits after each step, with {alike} of \
            {seeds} seeds"
        ),
        alike == seeds,
    );
    report.say(
        "| on the wire | test accuracy % | paired difference to f32 | worst seed |\n\
        | --- | --- | --- | --- |",
    );
    report.say(&format!("| f32 | {:.2} ± {:.2} | | |", mean(&exact), spread(&exact)));
    report.must(
        &format!("f32: mean accuracy {:.2} %, at least 97.0", mean(&exact)),
        mean(&exact) >= 97.0,
    );
    for (codec, most) in CODECS {
        let mut lost = Vec::new();
        for (seed, exact) in (1..=seeds).zip(&exact) {
            lost.push(exact - of(&group.train(&order(Kind::Mlp, seed, codec))?));
        }
        let (in_mean, worst) = (mean(&lost), lost.iter().copied().fold(f64::MIN, f64::max));
        let accuracy = mean(&exact) - in_mean;
        let error = spread(&lost) / (lost.len() as f64).sqrt();
        report.say(&format!(
            "| {codec} | {accuracy:.2} | {:+.2} (se {error:.2}) | {:+.2} |",
            0.0 - in_mean,
            0.0 - worst
        ));
        if most.is_finite() {
            report.must(
                &format!("{codec}: loses {in_mean:.2} points in the mean, at most {most:.2}"),
                in_mean <= most,
            );
            report.must(
                &format!(
                    "{codec}: loses {worst:.2} points with the worst seed, at most {WORST:.1}"
                ),
                worst <= WORST,
            );
        }
    }
    Ok(())
}

/// A CNN; reported, but not judged.
fn convolutions(seeds: u64, digits: Option<&Path>, report: &mut Report) -> Result<()> {
    let mut group = Group::on_one_machine(MEMBERS, digits)?;
    report.say(&format!(
        "\nA CNN with two convolutions (1898 parameters), {seeds} seeds:\n\n| on the wire | test \
         accuracy % |\n| --- | --- |"
    ));
    for codec in ["f32", "int8", "int4+ef"] {
        let accuracies =
            (1..=seeds).map(|seed| Ok(of(&group.train(&order(Kind::Cnn, seed, codec))?)));
        let accuracies: Vec<f64> = accuracies.collect::<Result<_>>()?;
        report.say(&format!("| {codec} | {:.2} |", mean(&accuracies)));
    }
    Ok(())
}

/// One member is killed after a third of the run, and another process takes its place before the
/// last third.
fn killed(seeds: u64, digits: Option<&Path>, report: &mut Report) -> Result<()> {
    report.say(
        "\n## A member that is killed\n\nOf four one is killed (`kill -9`) after step 90; \
        three go on, and a new process gets their state by `sync` before step 180.\n",
    );
    report.say(
        "| on the wire | seed | undisturbed %, loss | with one killed %, loss | steps \
        begun again | steps done by three |\n| --- | --- | --- | --- | --- | --- |",
    );
    for codec in ["f32", "int4+ef"] {
        let (mut lost, mut fewest) = (Vec::new(), u64::MAX);
        for seed in 1..=seeds {
            let mut group = Group::on_one_machine(MEMBERS - 1, digits)?;
            let calm = group.train(&order(Kind::Mlp, seed, codec))?;
            let disturbed =
                Order { tell_every: 10, hold_at: Some(180), ..order(Kind::Mlp, seed, codec) };
            group.begin(&disturbed)?;
            group.at_step(MEMBERS - 1, 90)?;
            group.kill(MEMBERS - 1)?;
            group.start_again(MEMBERS - 1, &disturbed)?;
            let trained = group.end()?;
            let most = |of: fn(&Trained) -> u64| trained.iter().map(of).max().unwrap_or(0);
            let (retries, by_three) = (most(|one| one.retries), most(|one| one.short_handed));
            let told = |all: &[Trained]| {
                all.first()
                    .map_or(String::new(), |one| format!("{:.2}, {:.5}", one.accuracy, one.loss))
            };
            report.say(&format!(
                "| {codec} | {seed} | {} | {} | {retries} | {by_three} |",
                told(&calm),
                told(&trained)
            ));
            fewest = fewest.min(by_three);
            lost.push(of(&calm) - of(&trained));
        }
        report.must(
            &format!("{codec}, one killed: {fewest} steps or more done by three, at least 20"),
            fewest >= 20,
        );
        let worst = lost.iter().copied().fold(f64::MIN, f64::max);
        report.must(
            &format!(
                "{codec}, one killed: loses {worst:.2} points with the worst seed, at most \
                {WORST:.1}"
            ),
            worst <= WORST,
        );
        report.must(
            &format!(
                "{codec}, one killed: loses {:.2} points in the mean, at most 0.5",
                mean(&lost)
            ),
            mean(&lost) <= 0.5,
        );
    }
    Ok(())
}

/// The loss over time with slow cables; returns the plot.
fn over_time(digits: Option<&Path>, report: &mut Report) -> Result<String> {
    let mut group = Group::on_four_machines(100, digits)?;
    report.say(
        "\n## Time\n\nThe same on four machines with 100 Mbit/s each (the lab's network \
        namespaces), seed 1:\n\n![loss over time](training.svg)\n",
    );
    report.say("| on the wire | seconds | loss at the end |\n| --- | --- | --- |");
    let mut lines = Vec::new();
    for (codec, colour) in DRAWN {
        let trained = group.train(&Order { curve_every: 9, ..order(Kind::Mlp, 1, codec) })?;
        let first = trained.first().context("four members")?;
        report.say(&format!("| {codec} | {:.2} | {:.4} |", first.seconds, first.loss));
        lines.push(Line {
            name: format!("{codec}, {:.1} s", first.seconds),
            colour,
            points: first.curve.clone(),
        });
    }
    Ok(svg(
        "MLP on digits, four machines at 100 Mbit/s, 30 epochs",
        "seconds",
        "training loss",
        &lines,
    ))
}

/// One large sum with slow cables.
fn sums(rounds: usize, report: &mut Report) -> Result<()> {
    let mut group = Group::on_four_machines(100, None)?;
    report.say(&format!(
        "\nAn `all_reduce` of 16 MiB there, median of {rounds}:\n\n| on the wire | seconds | \
         times faster |\n| --- | --- | --- |"
    ));
    let plain = median(&group.sum(4 << 20, "f32", rounds)?);
    report.say(&format!("| f32 | {plain:.3} | |"));
    let codecs = [("bf16", 1.9), ("f16", 0.0), ("int8", 3.5)];
    let coarse = ["int4", "onebit", "top1"].map(|name| (name, 0.0));
    for (codec, least) in codecs.into_iter().chain(coarse) {
        let seconds = median(&group.sum(4 << 20, codec, rounds)?);
        let faster = plain / seconds;
        report.say(&format!("| {codec} | {seconds:.3} | {faster:.2} |"));
        if least > 0.0 {
            report.must_measured(
                &format!(
                    "{codec}: 16 MiB at 100 Mbit/s {faster:.2} times faster than f32, at \
                    least {least}"
                ),
                faster >= least,
            );
        }
    }
    Ok(())
}
