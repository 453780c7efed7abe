//! The logs as values. An unfinished line of a killed process is left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::what::What;

/// Everything that was logged.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The processes, each one start of a node.
    pub lives: Vec<Life>,
    /// The faults, in the order of their beginnings.
    pub faults: Vec<Fault>,
    /// The processes that were killed, by node and life: when.
    pub killed: BTreeMap<(String, u64), u64>,
    /// Only a part with a majority continues after a partition, so a call has one outcome for all.
    pub has_majority: bool,
    /// A node that lies to the others. It has no log.
    pub liar: Option<String>,
    /// Calls that did not end, as the process that disturbs the nodes saw them.
    pub hangs: Vec<String>,
    /// The last moment of any event, in microseconds.
    pub end: u64,
}

/// One process.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// The node's name.
    pub node: String,
    /// Which of the node's lives, from 0 on.
    pub life: u64,
    /// When it started.
    pub from: u64,
    /// When it had left.
    pub left: Option<u64>,
    /// The Views that its node installed: when, and which.
    pub installed: Vec<(u64, String)>,
    /// The members of every View that it has seen, in rank order.
    pub members: BTreeMap<String, Vec<String>>,
    /// Its calls in their order.
    pub calls: Vec<Call>,
    /// The committed results that entered the state of one of its lanes.
    pub applied: Vec<Applied>,
    /// Members that its node knows to be kept out for withholding their vote.
    pub withheld: Vec<String>,
    /// The reports of its node that a member is kept out of new Views: time and member.
    pub kept_out: Vec<(u64, Vec<String>)>,
}

/// One call of one process.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its number in the process.
    pub id: u64,
    /// When it was made.
    pub at: u64,
    /// The lane, the View, and the number of the call among those of the program there.
    pub place: (u32, String, u64),
    /// The call and its arguments.
    pub what: What,
    /// The treatment of the future: `await`, `drop` or `forget`.
    pub way: String,
    /// Its deadline.
    pub limit_ms: Option<u64>,
    /// The hash of the buffer before.
    pub before: u64,
    /// This node's contribution to a control call.
    pub flag: u8,
    /// The version and the digest of the state before a sync.
    pub state: (u64, u64),
    /// How it ended in the program.
    pub end: Option<End>,
    /// The hash of the result that was taken after the call had been dropped.
    pub kept: Option<u64>,
}

/// The end of a call in the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct End {
    /// When.
    pub at: u64,
    /// `ok`, the code of the error, `dropped` or `forgotten`.
    pub code: String,
    /// More about the error.
    pub cause: String,
    /// The hash of the buffer after.
    pub after: u64,
    /// The hash of a result apart from the buffer.
    pub result: Option<u64>,
    /// The elements of a result that may be rounded.
    pub values: Vec<f64>,
    /// The version and the digest of the state after a sync.
    pub state: (u64, u64),
}

/// A committed result that entered the state of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// When.
    pub at: u64,
    /// As in [`Call`].
    pub place: (u32, String, u64),
    /// Results in the state, with this one.
    pub version: u64,
    /// The digest of all of them.
    pub digest: u64,
    /// The result of a dropped call, which may have been decided long before.
    pub kept: bool,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number.
    pub n: u64,
    /// Its kind.
    pub kind: String,
    /// The nodes that it is a fault of.
    pub who: Vec<String>,
    /// When it was about to begin.
    pub from: u64,
    /// When it had ended; `None` if it never did.
    pub until: Option<u64>,
}

/// Outcomes after which a call has no number, so that the program makes it again.
pub const REFUSALS: [&str; 5] =
    ["view-changed", "needs-sync", "lost-result", "too-many-in-flight", "closed"];

impl Call {
    /// Whether the call took a number: not if it was refused.
    pub fn is_numbered(&self) -> bool {
        self.end.as_ref().is_none_or(|end| !REFUSALS.contains(&end.code.as_str()))
    }

    /// Whether it has succeeded for this member: at its return, or later as the result of a dropped
    /// call.
    pub fn is_ok(&self) -> bool {
        self.kept.is_some() || self.code() == "ok"
    }

    /// The code of its end; empty while it is open.
    pub fn code(&self) -> &str {
        self.end.as_ref().map_or("", |end| &end.code)
    }
}

impl History {
    /// Reads all logs of a folder: the files whose names end in `.jsonl`.
    pub fn read(folder: &Path) -> Result<History> {
        let mut history = History::default();
        let mut paths: Vec<_> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        for path in paths {
            let text = fs::read_to_string(&path)?;
            history.add(&text).with_context(|| format!("in {}", path.display()))?;
        }
        Ok(history)
    }

    /// Adds one log. A last line without an end is left out.
    ///
    /// # Errors
    /// A line that is no event of the format.
    pub fn add(&mut self, log: &str) -> Result<()> {
        let mut reader = Reader::default();
        for line in log.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let event = serde_json::from_str(line).with_context(|| line.to_owned())?;
            reader.hear(&event, self).with_context(|| line.to_owned())?;
        }
        self.lives.extend(reader.life);
        Ok(())
    }
}

/// Reads one log.
#[derive(Debug, Default)]
struct Reader {
    life: Option<Life>,
    by_id: BTreeMap<u64, usize>,
}

impl Reader {
    fn hear(&mut self, event: &Value, all: &mut History) -> Result<()> {
        let at = event["t"].as_u64().context("no time")?;
        all.end = all.end.max(at);
        match event["e"].as_str().context("no event")? {
            "struck" => {
                let who = event["who"].as_array().into_iter().flatten().map(text).collect();
                let (n, kind) = (number(event, "n")?, text(&event["kind"]));
                all.faults.push(Fault { n, kind, who, from: at, until: None });
            }
            "healed" => {
                let n = number(event, "n")?;
                let fault = all.faults.iter_mut().find(|fault| fault.n == n);
                fault.context("no such fault")?.until = Some(at);
            }
            "killed" => {
                all.killed.insert((text(&event["node"]), number(event, "life")?), at);
            }
            "majority" => all.has_majority = true,
            "liar" => all.liar = Some(text(&event["node"])),
            "hang" => all.hangs.push(text(&event["text"])),
            "start" => {
                let (node, life) = (text(&event["node"]), number(event, "life")?);
                self.life = Some(Life { node, life, from: at, ..Life::default() });
            }
            _ => self.hear_of_life(at, event)?,
        }
        Ok(())
    }

    fn hear_of_life(&mut self, at: u64, event: &Value) -> Result<()> {
        let Some(life) = &mut self.life else { return Ok(()) };
        match event["e"].as_str().unwrap_or_default() {
            kind @ ("installed" | "took") => {
                let view = text(&event["view"]);
                let members = event["members"].as_array().context("no members")?;
                if kind == "installed" {
                    life.installed.push((at, view.clone()));
                }
                life.members.insert(view, members.iter().map(text).collect());
            }
            "call" => {
                let call = call(at, event)?;
                self.by_id.insert(call.id, life.calls.len());
                life.calls.push(call);
            }
            "return" => {
                let end = end(at, event)?;
                self.call_of(event)?.end = Some(end);
            }
            "kept" => self.call_of(event)?.kept = Some(number(event, "result")?),
            "applied" => {
                let (version, digest) = (number(event, "version")?, number(event, "digest")?);
                let kept = event["kept"] == true;
                life.applied.push(Applied { at, place: place(event)?, version, digest, kept });
            }
            "withheld" => life.withheld.push(text(&event["who"])),
            "status" => {
                let who = event["kept_out"].as_array().into_iter().flatten();
                let who: Vec<String> = who.map(text).collect();
                if !who.is_empty() {
                    life.kept_out.push((at, who));
                }
            }
            "left" => life.left = Some(at),
            // For people.
            _ => {}
        }
        Ok(())
    }

    fn call_of(&mut self, event: &Value) -> Result<&mut Call> {
        let at = self.by_id.get(&number(event, "id")?).context("no such call")?;
        self.life.as_mut().and_then(|life| life.calls.get_mut(*at)).context("no such call")
    }
}

/// Reads a call, without its end.
pub fn call(at: u64, event: &Value) -> Result<Call> {
    Ok(Call {
        id: number(event, "id")?,
        at,
        place: place(event)?,
        what: What::deserialize(&event["what"])?,
        way: text(&event["way"]),
        limit_ms: event["limit_ms"].as_u64(),
        before: number(event, "before")?,
        flag: u8::try_from(event["flag"].as_u64().unwrap_or_default())?,
        state: state(event),
        end: None,
        kept: None,
    })
}

fn end(at: u64, event: &Value) -> Result<End> {
    let values = event["values"].as_array().into_iter().flatten();
    Ok(End {
        at,
        code: text(&event["code"]),
        cause: text(&event["cause"]),
        after: number(event, "after")?,
        result: event["result"].as_u64(),
        values: values.filter_map(Value::as_f64).collect(),
        state: state(event),
    })
}

fn place(event: &Value) -> Result<(u32, String, u64)> {
    Ok((u32::try_from(number(event, "lane")?)?, text(&event["view"]), number(event, "k")?))
}

fn state(event: &Value) -> (u64, u64) {
    let of = |field: &str| event[field].as_u64().unwrap_or_default();
    (of("version"), of("digest"))
}

fn number(event: &Value, field: &str) -> Result<u64> {
    event[field].as_u64().with_context(|| format!("no {field}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
