//! The events that the node prints: one JSON object per line, flushed at once.

use potluck::report::document::StatusDocument;
use potluck::report::{Name, NodeInfo};
use potluck::{Context, Error, Event, NodeId, Peer, Status};
use serde_json::{Value, json};
use std::io::Write;
use std::time::Duration;

/// Prints one event. A closed stdout is not an error.
pub fn emit(event: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{event}").and_then(|()| out.flush());
}

/// Reports that the share of a call has arrived.
pub fn progress() {
    emit(&json!({"event": "progress"}));
}

/// Reports a command that cannot be executed.
pub fn refuse(code: &str, message: &str) {
    emit(&json!({"event": "error", "code": code, "message": message}));
}

/// Milliseconds, rounded to microseconds.
pub fn ms(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// A node's full key.
pub fn hex(node: &NodeId) -> String {
    node.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn peer(peer: &Peer) -> Value {
    json!({"rank": peer.rank.index(), "name": peer.name.as_str(), "node": hex(&peer.node)})
}

/// A failure outside of a call.
pub fn error(error: &Error) -> Value {
    json!({
        "event": "error",
        "code": error.code(),
        "message": error.to_string(),
        "retryable": error.is_retryable(),
    })
}

/// The nodes that are observed.
pub fn observed(nodes: &[StatusDocument]) -> Value {
    let nodes = nodes.iter().map(|node| {
        json!({
            "job": node.job,
            "name": node.name,
            "node": node.node,
            "state": node.state,
            "observer": node.observer,
            "view": node.view.as_ref().map(|view| &view.id),
        })
    });
    json!({"event": "observed", "nodes": nodes.collect::<Vec<_>>()})
}

/// A Context that was handed out.
pub fn context(context: &Context, took: Duration) -> Value {
    json!({
        "event": "context",
        "rank": context.rank().index(),
        "size": context.size(),
        "view": context.view(),
        "members": context.members().iter().map(peer).collect::<Vec<_>>(),
        "engine": context.engine().to_string(),
        "engine_reason": context.engine_reason(),
        "plan": context.plan().explain(),
        "in_sync": context.is_in_sync(),
        "security": context.security(),
        "ms": ms(took),
    })
}

/// An event of the group.
pub fn happened(event: &Event) -> Value {
    let whose = |info: &NodeInfo| {
        let name = info.name.as_ref().map(Name::as_str);
        json!({"node": hex(&info.node), "name": name})
    };
    let (what, who, why) = match event {
        Event::Installed { .. } => ("installed", None, None),
        Event::Joined(who) => ("joined", Some(who), None),
        Event::Merged(_) => ("merged", None, None),
        Event::Left(who) => ("left", Some(who), None),
        Event::Lost { peer, why } => ("lost", Some(peer), Some(why.to_string())),
        Event::Quarantined { peer, .. } => ("quarantined", Some(peer), None),
        Event::Woke => ("woke", None, None),
        Event::FirstMet { peer, .. } => ("first-met", Some(peer), None),
        Event::Duplicate(who) => ("duplicate", Some(who), None),
        Event::OneWay(who) => ("one-way", Some(who), None),
        Event::PathChanged { peer, interface } => {
            ("path-changed", Some(peer), Some(interface.clone()))
        }
        Event::Lagged(_) => ("lagged", None, None),
        _ => ("other", None, None),
    };
    json!({
        "event": "happened",
        "what": what,
        "who": who.map(whose),
        "why": why,
        "text": event.to_string(),
    })
}

/// The full status of a node.
pub fn status(status: &Status) -> Value {
    json!({
        "event": "status",
        "node": hex(&status.node),
        "name": status.name.as_str(),
        "namespace": status.namespace,
        "open": status.open,
        "port": status.port,
        "state": status.state.to_string(),
        "view": status.view.as_ref().map(|view| json!({
            "id": view.id.to_string(),
            "members": view.members.iter().map(peer).collect::<Vec<_>>(),
            "engine": view.engine.to_string(),
            "engine_reason": view.engine_reason,
            "plan": view.plan,
            "plan_revision": view.plan_revision,
            "paths": view.paths.iter().map(|path| json!({
                "from": path.from.index(),
                "to": path.to.index(),
                "rtt_us": path.rtt_us,
                "rate_kbps": path.rate_kbps,
                "medium": path.medium,
            })).collect::<Vec<_>>(),
            "in_sync": view.in_sync,
            "committed": view.committed,
        })),
        "peers": status.peers.iter().map(|peer| json!({
            "node": hex(&peer.node),
            "name": peer.name.as_str(),
            "address": peer.address.to_string(),
            "through": peer.through.iter().map(|who| who.node.to_string()).collect::<Vec<_>>(),
            "forwarded": peer.forwarded,
            "rtt_us": peer.rtt_us,
        })).collect::<Vec<_>>(),
        "interfaces": status.interfaces.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "job": status.job,
        "others": status.others.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "duplicates": status.duplicates.iter().map(hex).collect::<Vec<_>>(),
        "waiting": status.waiting.as_ref().map(|waiting| json!({
            "op": waiting.op.to_string(),
            "ranks": waiting.ranks.iter().map(peer).collect::<Vec<_>>(),
            "since_ms": ms(waiting.since),
        })),
        "reasons": status.reasons(),
        "counters": {
            "views": status.counters.views,
            "links": status.counters.links,
            "strangers": status.counters.strangers,
            "other_versions": status.counters.other_versions,
            "overloads": status.counters.overloads,
            "misbehaviours": status.counters.misbehaviours,
            "committed": status.counters.committed,
        },
    })
}
