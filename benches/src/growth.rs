//! The growth of times with the number of members: processes of one machine, over loopback.

use crate::Extent;
use crate::group::{Forming, Group, Who};
use crate::machine::{Engine, Machines, median};
use crate::plot::{Line, svg};
use crate::report::{Report, bytes, time};
use crate::turns::Turns;
use anyhow::{Context, Result};
use std::fs;

/// Up to as many as a View may have.
const SIZES: [usize; 5] = [2, 4, 8, 16, 32];
/// The buffers, and the calls of a turn.
const WORKS: [(usize, usize); 2] = [(4 << 10, 100), (1 << 20, 10)];
/// The plot of a full run.
const PLOT: &str = "docs/growth.svg";
/// The goal for the common View of sixteen, in seconds.
const FORMED_S: (usize, f64) = (16, 1.0);

pub fn measure(extent: Extent, report: &mut Report) -> Result<()> {
    let rounds = if extent == Extent::Quick { 2 } else { 7 };
    report.line("\n### Growth with the number of members, on one machine, encrypted\n");
    report.line(
        "| members | common View | CPU a member | 4 KiB | CPU a member and call | 1 MiB | CPU a \
         member and call |",
    );
    report.line("| --- | --- | --- | --- | --- | --- | --- |");
    let mut rows = Vec::new();
    for size in SIZES {
        match row(size, rounds) {
            Ok(row) => {
                report.line(&row.line(size));
                rows.push((size, row));
            }
            Err(error) => report.failure(format!("{size} members: {error:#}")),
        }
    }
    if extent == Extent::Full {
        fs::write(PLOT, plot(&rows)).with_context(|| format!("{PLOT} cannot be written"))?;
    }
    if let Some((size, row)) = rows.iter().find(|(size, _)| *size == FORMED_S.0) {
        report.must(
            &format!("{size} that start together, s to the View"),
            row.forming.took_s,
            FORMED_S.1,
        );
    }
    let (Some((few, first)), Some((many, last))) = (rows.first(), rows.last()) else {
        return Ok(());
    };
    report.must(
        &format!("{} among {many}, times that among {few}", bytes(WORKS[0].0)),
        last.sums[0].0 / first.sums[0].0,
        (many / few) as f64,
    );
    Ok(())
}

/// Milliseconds over the number of members.
fn plot(rows: &[(usize, Row)]) -> String {
    type Of = fn(&Row) -> f64;
    let lines: [(&str, &str, Of); 4] = [
        ("common View", "#333", |row| row.forming.took_s),
        ("processor time of all until then", "#1f77b4", |row| row.forming.cpu_s),
        ("4 KiB", "#2ca02c", |row| row.sums[0].0),
        ("1 MiB", "#d62728", |row| row.sums[1].0),
    ];
    let lines = lines.map(|(name, colour, of)| Line {
        name: name.to_owned(),
        colour,
        points: rows.iter().map(|(size, row)| (*size as f64, of(row) * 1e3)).collect(),
    });
    svg("Processes of one machine", "members", "milliseconds", &lines)
}

/// Medians.
struct Row {
    forming: Forming,
    /// For each of [`WORKS`]: the seconds of a call, and the processor seconds of all members.
    sums: [(f64, f64); 2],
}

fn row(size: usize, rounds: usize) -> Result<Row> {
    let (mut took, mut cpu) = (Vec::new(), Vec::new());
    let mut sums = WORKS.map(|_| Turns::wanted(rounds));
    while sums.iter().any(Turns::go_on) {
        let mut group = Group::up(Machines::up("lo", size)?, size, Who::Ours(Engine::Native, "-"))?;
        let forming = group.forming().context("a group of potluck")?;
        took.push(forming.took_s);
        cpu.push(forming.cpu_s);
        for ((of_bytes, calls), turns) in WORKS.iter().zip(&mut sums) {
            group.check(*of_bytes, "")?;
            turns.add(group.calls(*of_bytes, *calls, "")?);
        }
        group.end()?;
    }
    Ok(Row {
        forming: Forming { took_s: median(&took), cpu_s: median(&cpu) },
        sums: sums.map(|turns| (turns.median_s(), turns.cpu_s())),
    })
}

impl Row {
    fn line(&self, size: usize) -> String {
        let of_a_member = |cpu_s: f64| time(cpu_s / size as f64);
        let sums: Vec<String> = self
            .sums
            .iter()
            .map(|(seconds, cpu_s)| format!("{} | {}", time(*seconds), of_a_member(*cpu_s)))
            .collect();
        format!(
            "| {size} | {} | {} | {} |",
            time(self.forming.took_s),
            of_a_member(self.forming.cpu_s),
            sums.join(" | ")
        )
    }
}
