//! Tables that compare potluck's engines with bare Gloo, and their requirements.

use crate::report::{Report, bytes, time};

/// The contenders, measured in turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// Gloo over its own TCP transport, with its default algorithm.
    BareRing,
    BareBcube,
    /// potluck's Gloo engine over a trusted (unencrypted) link.
    Plain,
    /// potluck's Gloo engine with its default, encrypted links.
    Encrypted,
    /// The native engine over a trusted (unencrypted) link.
    Native,
}

impl Series {
    pub const ALL: [Series; 5] =
        [Series::BareRing, Series::BareBcube, Series::Plain, Series::Encrypted, Series::Native];
}

/// The median over calls of the slowest member's time.
#[derive(Clone, Copy)]
pub struct Taken {
    pub seconds: f64,
    /// Processor seconds of all members per GiB of buffer.
    pub cpu: f64,
}

/// One row of a table.
pub struct Beside {
    pub profile: &'static str,
    pub size: usize,
    pub bytes: usize,
    pub taken: Vec<(Series, Taken)>,
}

impl Beside {
    fn taken(&self, series: Series) -> Option<Taken> {
        self.taken.iter().find(|(which, _)| *which == series).map(|(_, taken)| *taken)
    }

    fn cpu_over_bare(&self, series: Series) -> Option<f64> {
        Some(self.taken(series)?.cpu / self.taken(Series::BareRing)?.cpu)
    }

    fn over_bare(&self, series: Series) -> Option<f64> {
        Some(self.taken(series)?.seconds / self.taken(Series::BareRing)?.seconds)
    }
}

/// Starts a table with its heading.
pub fn begin(report: &mut Report, profile: &str) {
    let place = if profile == "lo" { "loopback" } else { "gbe4 (a gigabit for each machine)" };
    report.line(&format!("\n### Gloo beside Gloo, {place}\n"));
    report.line(
        "| machines | buffer | bare ring | bare bcube | engine | / bare ring | encrypted | / bare \
         ring | native | CPU s/GiB: bare ring | engine | encrypted | native |",
    );
    report.line(&format!("|{}", " --- |".repeat(13)));
}

pub fn row(report: &mut Report, row: &Beside) {
    let seconds = |series| row.taken(series).map_or("".to_owned(), |taken| time(taken.seconds));
    let cpu = |series| row.taken(series).map_or("".to_owned(), |taken| format!("{:.1}", taken.cpu));
    let times = |series| row.over_bare(series).map_or("".to_owned(), |times| format!("{times:.2}"));
    let cells = [
        row.size.to_string(),
        bytes(row.bytes),
        seconds(Series::BareRing),
        seconds(Series::BareBcube),
        seconds(Series::Plain),
        times(Series::Plain),
        seconds(Series::Encrypted),
        times(Series::Encrypted),
        seconds(Series::Native),
        cpu(Series::BareRing),
        cpu(Series::Plain),
        cpu(Series::Encrypted),
        cpu(Series::Native),
    ];
    report.line(&format!("| {} |", cells.join(" | ")));
    judge(report, row);
    judge_native(report, row);
}

/// Requirements on the unencrypted native engine over loopback: not slower than bare Gloo, much
/// faster for small sums, and for large ones only little more processor time.
fn judge_native(report: &mut Report, row: &Beside) {
    let (Some(times), Some(cpu)) =
        (row.over_bare(Series::Native), row.cpu_over_bare(Series::Native))
    else {
        return;
    };
    let what = format!("{}, {} x {}, native to bare Gloo", row.profile, row.size, bytes(row.bytes));
    match (row.profile, row.size, row.bytes >> 10) {
        ("lo", 2 | 4, 65536) => report.must(&what, times, 1.0),
        ("gbe4", 4, 4) => report.must(&what, times, 0.2),
        ("gbe4", _, 65536) => report.must(&format!("{what}, processor time"), cpu, 1.3),
        _ => {}
    }
}

/// Requirements on the Gloo engine: at most 30 % slower than bare Gloo for large sums, and faster
/// for all small ones.
fn judge(report: &mut Report, row: &Beside) {
    let at_most = match row.bytes >> 10 {
        65536 => 1.3,
        0..64 => 1.0,
        _ => return,
    };
    let what =
        format!("{}, {} x {}, Gloo engine to bare Gloo", row.profile, row.size, bytes(row.bytes));
    // A missing group has been reported already.
    if let Some(times) = row.over_bare(Series::Plain) {
        report.must(&what, times, at_most);
    }
}
