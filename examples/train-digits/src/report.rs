//! The report of a run, and its requirements.

use std::process::ExitCode;

/// The report of a run, printed while it grows.
pub struct Report {
    text: String,
    musts: Vec<(String, bool)>,
    /// Whether accuracies are judged: only with the real digits.
    judges: bool,
}

impl Report {
    pub fn new(judges: bool) -> Report {
        let report = Report { text: String::new(), musts: Vec::new(), judges };
        if !judges {
            println!("without the digits: made-up pictures, whose accuracies are not judged\n");
        }
        report
    }

    /// Appends to the document and prints the text.
    pub fn say(&mut self, what: &str) {
        println!("{what}");
        self.text.push_str(what);
        self.text.push('\n');
    }

    /// A requirement on a training result; ignored without the real digits.
    pub fn must(&mut self, what: &str, holds: bool) {
        if self.judges {
            self.must_measured(what, holds);
        }
    }

    /// A requirement that holds for any data.
    pub fn must_measured(&mut self, what: &str, holds: bool) {
        self.musts.push((what.to_owned(), holds));
    }

    /// The document that is stored.
    pub fn document(&self) -> String {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let mut out = format!(
            "# Training with codecs\n\nWritten by `make train`. The data are the handwritten \
             digits of scikit-learn (1797 pictures;\n70 % of each class are for training). The \
             optimiser is SGD with learning rate 0.1, momentum 0.9\nand 32 samples per member \
             and step, in candle with one thread per member. The members are processes\non one \
             machine with {cores} cores. After every step their parameters are equal bit for \
             bit. The plan may\nadd in another order in another run, so accuracies and times \
             differ a little from run to run.\n\n"
        );
        out.push_str(&self.text);
        out.push_str("\n## Requirements\n\n");
        for (what, holds) in &self.musts {
            out.push_str(&format!("- {}: {what}\n", if *holds { "yes" } else { "**NO**" }));
        }
        out
    }

    /// Prints the requirements and the overall result as the last line.
    pub fn finish(&self) -> ExitCode {
        let missed: Vec<&str> =
            self.musts.iter().filter(|(_, holds)| !holds).map(|(what, _)| what.as_str()).collect();
        missed.iter().for_each(|what| println!("missed: {what}"));
        println!("train: {} of {} held", self.musts.len() - missed.len(), self.musts.len());
        if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// The sample's standard deviation.
pub fn spread(values: &[f64]) -> f64 {
    let middle = mean(values);
    (values.iter().map(|x| (x - middle).powi(2)).sum::<f64>()
        / values.len().saturating_sub(1).max(1) as f64)
        .sqrt()
}

pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
