//! The results of the demo: a table for people, a document for programs.

use super::group::Agreed;
use super::network::Network;
use super::phases::Phase;
use crate::output::verdict;
use potluck::plan::EngineKind;
use serde::Serialize;

/// The results of the whole demo.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether every phase was verified.
    pub ok: bool,
    network: Network,
    peers: usize,
    gloo: Option<String>,
    phases: Vec<PhaseReport>,
}

/// The result of one phase.
#[derive(Debug, Serialize)]
pub struct PhaseReport {
    name: &'static str,
    #[serde(skip)]
    title: &'static str,
    /// Whether the phase was verified.
    pub ok: bool,
    ranks: Option<usize>,
    engine: Option<String>,
    seconds: Option<f64>,
    bus_gb_per_s: Option<f64>,
    note: String,
}

impl PhaseReport {
    /// A verified phase.
    pub fn done(phase: Phase, agreed: &Agreed, seconds: f64, note: String) -> PhaseReport {
        PhaseReport {
            name: phase.name(),
            title: phase.title(),
            ok: true,
            ranks: Some(agreed.size),
            engine: Some(agreed.engine.clone()),
            seconds: Some(seconds),
            bus_gb_per_s: None,
            note,
        }
    }

    /// A verified phase that transferred enough data for a bandwidth.
    pub fn moved(
        phase: Phase,
        agreed: &Agreed,
        seconds: f64,
        bus_gb_per_s: f64,
        note: String,
    ) -> PhaseReport {
        PhaseReport {
            bus_gb_per_s: Some(bus_gb_per_s),
            ..PhaseReport::done(phase, agreed, seconds, note)
        }
    }

    /// A phase that failed or was not reached.
    pub fn failed(phase: Phase, engine: EngineKind, note: String) -> PhaseReport {
        let (name, title, engine) = (phase.name(), phase.title(), Some(engine.to_string()));
        PhaseReport {
            name,
            title,
            ok: false,
            ranks: None,
            engine,
            seconds: None,
            bus_gb_per_s: None,
            note,
        }
    }
}

impl Report {
    /// Summarizes the phases.
    pub fn new(network: Network, peers: usize, phases: Vec<PhaseReport>) -> Report {
        Report {
            ok: phases.iter().all(|phase| phase.ok),
            network,
            peers,
            gloo: potluck::gloo_version(),
            phases,
        }
    }

    /// The table, followed by one line with the overall result.
    pub fn text(&self) -> String {
        let head = format!(
            "{:32} {:>5}  {:8} {:>9} {:>9}  {:7}",
            "phase", "ranks", "engine", "time", "bus GB/s", "verdict"
        );
        let mut lines = vec![head];
        for phase in &self.phases {
            lines.push(phase.row());
            lines.push(format!("    {}", phase.note));
        }
        let good = self.phases.iter().filter(|phase| phase.ok).count();
        let (verified, all) = (good, self.phases.len());
        if let Some(version) = &self.gloo {
            lines.push(format!("gloo is {version}"));
        } else {
            lines.push("This build has no Gloo: docs/gloo.md says how to add it.".to_owned());
        }
        let what = format!("demo: {verified} of {all} phases verified with {} peers", self.peers);
        lines.push(verdict(
            self.ok,
            &format!("{what}, {}", if self.ok { "everything is well" } else { "FAILED" }),
        ));
        lines.join("\n")
    }
}

impl PhaseReport {
    fn row(&self) -> String {
        let shown = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        let word = if self.ok { "ok" } else { "FAILED" };
        format!(
            "{:32} {:>5}  {:8} {:>9} {:>9}  {}",
            self.title,
            shown(self.ranks.map(|ranks| ranks.to_string())),
            shown(self.engine.clone()),
            shown(self.seconds.map(|seconds| format!("{seconds:.3} s"))),
            shown(self.bus_gb_per_s.map(|rate| format!("{rate:.2}"))),
            verdict(self.ok, word),
        )
    }
}
