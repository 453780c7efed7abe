//! `potluck invite`: lets another machine in by a short code.

use crate::args::{Where, Which};
use crate::exit::Exit;
use crate::first_key::{self, Beside};
use crate::output::Output;
use anyhow::Result;
use clap::Args;
use potluck::keys::{Invitation, InvitationEnd, InvitationEvent, Keys};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// Show a short code with which another machine gets the cluster key, by `potluck join CODE`
///
/// Runs in the foreground, beside a running node or without one, until one machine has the key, for
/// ten minutes at most. Three wrong codes end it. Without a cluster key it makes one as `potluck
/// up` does, unless a cluster is on the network already. JSON, one document per line: {event:
/// "key-made", file}, {event: "invited", code, namespace, addresses, machines, seconds}, {event:
/// "joined", name, address, left} where name is null if the machine has not confirmed it, {event:
/// "declined", name, address}, {event: "wrong-code", address, left}, {event: "ended", reason:
/// "used" | "expired" | "wrong-codes" | "interrupted"}.
#[derive(Args, Debug)]
pub struct Invite {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    place: Where,
    /// Machines that may use the code, 1 to 31
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=Invitation::MACHINES_MAX as i64)
    )]
    machines: u8,
    /// How long the code is good, in minutes, at most 60
    #[arg(long, value_name = "N", default_value_t = 10.0, value_parser = minutes)]
    minutes: f64,
    /// The name of this machine [default: the host name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl Invite {
    /// Runs the command.
    pub async fn run(self, output: &Output) -> Result<Exit> {
        // Installed first, so that an early Ctrl-C is handled like a late one.
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut config = self.place.config(&self.which);
        config.name.clone_from(&self.name);
        tokio::select! {
            made = first_key::make_if_missing(
                config.clone(),
                &self.which,
                Beside::Refuse,
                output,
            ) => {
                made?;
            }
            _ = interrupt.recv() => return Ok(Exit::Interrupted),
            _ = terminate.recv() => return Ok(Exit::Done),
        }
        let keys = Keys::of(&config)?;
        let lasts = Duration::from_secs_f64(60.0 * self.minutes);
        let mut invitation = Invitation::open(config, usize::from(self.machines), lasts).await?;
        self.show(&invitation, &keys, output)?;
        let exit = tokio::select! {
            exit = watch(&mut invitation, output) => return exit,
            _ = interrupt.recv() => Exit::Interrupted,
            _ = terminate.recv() => Exit::Done,
        };
        invitation.close().await;
        output.result(&ended("interrupted"), || "The invitation has ended.".to_owned())?;
        Ok(exit)
    }

    fn show(&self, invitation: &Invitation, keys: &Keys, output: &Output) -> Result<()> {
        let code = invitation.code().to_text();
        let addresses: Vec<String> =
            invitation.addresses().iter().map(ToString::to_string).collect();
        let document = json!({
            "event": "invited",
            "code": *code,
            "namespace": keys.namespace(),
            "addresses": addresses,
            "machines": self.machines,
            "seconds": 60.0 * self.minutes,
        });
        output
            .result(&document, || format!("On the other machine type: potluck join {}", *code))?;
        let machines = match self.machines {
            1 => "one machine".to_owned(),
            many => format!("{many} machines"),
        };
        output.say(&format!(
            "The code is good for {} minutes and {machines}. Ctrl-C ends it.",
            self.minutes
        ));
        if let Some(address) = addresses.first() {
            output.say(&format!(
                "If this machine is not found there: potluck join {} --peer {address}",
                *code
            ));
        }
        Ok(())
    }
}

async fn watch(invitation: &mut Invitation, output: &Output) -> Result<Exit> {
    while let Some(event) = invitation.next().await {
        output.result(&document(&event), || sentence(&event))?;
        if let InvitationEvent::Ended(end) = event {
            return Ok(match end {
                InvitationEnd::Used => Exit::Done,
                InvitationEnd::Expired => Exit::NoPeers,
                InvitationEnd::WrongCodes => Exit::Key,
                _ => Exit::Failed,
            });
        }
    }
    Ok(Exit::Failed)
}

/// The event with a capital letter and a full stop.
fn sentence(event: &InvitationEvent) -> String {
    let text = event.to_string();
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).chain(['.']).collect()
}

fn document(event: &InvitationEvent) -> Value {
    match event {
        InvitationEvent::Joined { name, address, left } => json!({
            "event": "joined",
            "name": name.as_ref().map(potluck::report::Name::as_str),
            "address": address,
            "left": left,
        }),
        InvitationEvent::Declined { name, address } => {
            json!({ "event": "declined", "name": name.as_str(), "address": address })
        }
        InvitationEvent::WrongCode { address, left } => {
            json!({ "event": "wrong-code", "address": address, "left": left })
        }
        InvitationEvent::Ended(InvitationEnd::Used) => ended("used"),
        InvitationEvent::Ended(InvitationEnd::Expired) => ended("expired"),
        InvitationEvent::Ended(InvitationEnd::WrongCodes) => ended("wrong-codes"),
        other => json!({ "event": "other", "text": other.to_string() }),
    }
}

fn ended(reason: &str) -> Value {
    json!({ "event": "ended", "reason": reason })
}

fn minutes(text: &str) -> std::result::Result<f64, String> {
    let minutes = text.parse::<f64>().ok().filter(|n| *n > 0.0 && *n <= 60.0);
    minutes.ok_or_else(|| "it must be a number above 0 and at most 60".to_owned())
}
