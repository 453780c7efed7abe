//! The results as text, and their requirements.

use crate::turns::Watch;
use anyhow::Result;
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// The line rate of a machine of `gbe4`, in bytes per second.
const GBE: f64 = 125e6;

/// One row: the median over batches of the slowest rank's time.
pub struct Sum {
    pub profile: &'static str,
    pub encrypted: bool,
    pub size: usize,
    pub bytes: usize,
    pub borrowed_s: f64,
    pub owned_s: f64,
    /// Processor seconds of all members per GiB of buffer.
    pub borrowed_cpu: f64,
    pub owned_cpu: f64,
}

impl Sum {
    /// The bytes that pass every member's cable in each direction: twice the buffer without the own
    /// part.
    fn on_the_wire(&self) -> f64 {
        2.0 * (self.size - 1) as f64 / self.size as f64 * self.bytes as f64
    }

    /// The time relative to the minimum that the cables allow; `None` without cables.
    fn over_bound(&self, seconds: f64) -> Option<f64> {
        (self.profile == "gbe4").then(|| seconds / (self.on_the_wire() / GBE))
    }
}

/// A page of the documentation: the text above the mark is written by hand, the text below it by a
/// run.
#[derive(Clone, Copy)]
pub struct Document {
    /// The file's name in `docs`.
    file: &'static str,
    title: &'static str,
    mark: &'static str,
}

pub const BENCHMARKS: Document = Document {
    file: "benchmarks.md",
    title: "Benchmarks",
    mark: "<!-- Below this line everything is written by `make bench`. -->",
};

pub const RELIABILITY: Document = Document {
    file: "reliability.md",
    title: "Reliability",
    mark: "<!-- Below this line everything is written by `make reliability`. -->",
};

/// Collects rows, prints each one at once, and ends with a summary line.
pub struct Report {
    /// The document to write at the end, besides standard output.
    document: Option<Document>,
    text: String,
    profile: String,
    kept: usize,
    missed: Vec<String>,
    failures: Vec<String>,
    watch: Watch,
}

impl Report {
    /// A report that is only printed.
    pub fn printed() -> Report {
        Report::new(None)
    }

    /// A report that is also written to the documentation.
    pub fn documented(document: Document) -> Report {
        Report::new(Some(document))
    }

    fn new(document: Option<Document>) -> Report {
        let mut report = Report {
            document,
            text: String::new(),
            profile: String::new(),
            kept: 0,
            missed: Vec::new(),
            failures: Vec::new(),
            watch: Watch::begin(),
        };
        report.line(&format!("Last run on {}.", machine()));
        report
    }

    pub fn sum(&mut self, sum: &Sum) {
        self.section(sum);
        let cell = |seconds: f64| {
            let bound =
                sum.over_bound(seconds).map_or(String::new(), |times| format!("{times:.2} | "));
            format!("{} | {:.2} | {bound}", time(seconds), sum.on_the_wire() / seconds / 1e9)
        };
        self.line(&format!(
            "| {} | {} | {}{}{:.1} | {:.1} |",
            sum.size,
            bytes(sum.bytes),
            cell(sum.owned_s),
            cell(sum.borrowed_s),
            sum.owned_cpu,
            sum.borrowed_cpu
        ));
        self.judge(sum);
    }

    fn section(&mut self, sum: &Sum) {
        let profile = match (sum.profile, sum.encrypted) {
            ("lo", false) => "Loopback, with trusted_link(\"lo\")",
            ("lo", true) => "Loopback, encrypted",
            _ => "gbe4 (a gigabit for each machine), encrypted",
        };
        if self.profile == profile {
            return;
        }
        profile.clone_into(&mut self.profile);
        let bound = if sum.profile == "gbe4" { "x bound | " } else { "" };
        self.line(&format!("\n### {profile}\n"));
        self.line(&format!(
            "| machines | buffer | owned | GB/s | {bound}borrowed | GB/s | {bound}owned CPU s/GiB \
             | borrowed CPU s/GiB |"
        ));
        self.line(&format!(
            "| --- | --- | --- | --- | {0}--- | --- | {0}--- | --- |",
            if bound.is_empty() { "" } else { "--- | " }
        ));
    }

    fn judge(&mut self, sum: &Sum) {
        let (owned, borrowed) = (sum.over_bound(sum.owned_s), sum.over_bound(sum.borrowed_s));
        match (sum.profile, sum.size, sum.bytes >> 10) {
            ("gbe4", 4, 65536) => {
                self.must("gbe4, 4 x 64 MiB owned, x bound", owned.unwrap_or(0.0), 1.08);
                self.must("gbe4, 4 x 64 MiB borrowed, x bound", borrowed.unwrap_or(0.0), 1.13);
            }
            ("gbe4", 4, 1024) => {
                self.must("gbe4, 4 x 1 MiB owned, x bound", owned.unwrap_or(0.0), 1.15);
            }
            ("gbe4", 4, 4) => self.must("gbe4, 4 x 4 KiB owned, ms", 1e3 * sum.owned_s, 0.6),
            ("lo", _, 65536) if !sum.encrypted => {
                self.must(
                    &format!("lo, {} x 64 MiB, borrowed to owned", sum.size),
                    sum.borrowed_s / sum.owned_s,
                    1.2,
                );
            }
            _ => {}
        }
    }

    pub fn must(&mut self, what: &str, measured: f64, at_most: f64) {
        if measured <= at_most {
            self.kept += 1;
        } else {
            self.missed.push(format!("{what}: {measured:.2}, at most {at_most}"));
        }
    }

    pub fn forming(&mut self, median_s: f64, worst_s: f64, rounds: usize) {
        self.line("\n### Groups on gbe4\n");
        self.line(&format!(
            "Four starts in any order within two seconds, from the last start to the common View: \
             {} in the median of {rounds}, {} at worst.",
            time(median_s),
            time(worst_s)
        ));
        self.must("four starts, median s", median_s, 0.5);
    }

    pub fn dying(&mut self, median_s: f64, worst_s: f64, rounds: usize) {
        self.line(&format!(
            "\n`kill -9` of one of four that sum 1 MiB without a pause, to the next completed \
             call on all survivors: {} in the median of {rounds}, {} at worst.",
            time(median_s),
            time(worst_s)
        ));
        self.must("kill -9 to the next call, worst s", worst_s, 1.0);
    }

    pub fn failure(&mut self, what: String) {
        self.line(&format!("\nFailed: {}", what.lines().next().unwrap_or_default()));
        eprintln!("{what}");
        self.failures.push(what);
    }

    pub fn line(&mut self, line: &str) {
        println!("{line}");
        // Writing to a String cannot fail.
        let _ = writeln!(self.text, "{line}");
    }

    /// Writes the document, if there is one. Returns a failure if something failed or a requirement
    /// was missed.
    pub fn finish(mut self) -> Result<ExitCode> {
        if !self.missed.is_empty() {
            self.line("\n### Goals missed\n");
            for missed in std::mem::take(&mut self.missed) {
                self.line(&format!("- {missed}"));
                self.failures.push(missed);
            }
        }
        let stolen = 100.0 * self.watch.stolen();
        self.line(&format!(
            "\nOf the processors' time during the run other machines had {stolen:.0} %."
        ));
        if let Some(document) = self.document {
            document.write(&self.text)?;
        }
        println!("\n{} goals reached, {} missed or failed", self.kept, self.failures.len());
        Ok(if self.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl Document {
    fn write(self, text: &str) -> Result<()> {
        let Document { file, title, mark } = self;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(file);
        let old = std::fs::read_to_string(&path).unwrap_or_default();
        let usual = format!("# {title}\n\n");
        let story = old.split(mark).next().filter(|s| !s.is_empty()).unwrap_or(&usual);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        Ok(std::fs::write(&path, format!("{story}{mark}\n\n{text}"))?)
    }
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| {
        line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned())
    });
    let model = model.unwrap_or_else(|| "unknown".to_owned());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    // The load average, because a measurement on a busy machine means little.
    let load = load.split(' ').next().unwrap_or("?");
    format!(
        "{cores} cores ({model}), which all machines of the lab share; load average before the \
         run: {load}"
    )
}

pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-2 => format!("{:.2} ms", s * 1e3),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

pub fn bytes(bytes: usize) -> String {
    if bytes >> 20 > 0 { format!("{} MiB", bytes >> 20) } else { format!("{} KiB", bytes >> 10) }
}
