//! Checks on the combined answers of several nodes to one call.

use anyhow::{Result, ensure};
use serde_json::Value;

/// All calls succeeded, with correct and bit-identical results.
pub fn all_exact(events: &[Value]) -> Result<()> {
    for event in events {
        ensure!(event["ok"] == true && event["verdict"] == "exact", "{events:?}");
        ensure!(event["hash"] == events[0]["hash"], "different results: {events:?}");
    }
    Ok(())
}

/// All calls failed with this code, and no buffer was changed.
pub fn all_failed(events: &[Value], code: &str) -> Result<()> {
    all_failed_as(events, &[code])
}

/// All calls failed, each with one of these codes, and no buffer was changed.
pub fn all_failed_as(events: &[Value], codes: &[&str]) -> Result<()> {
    for event in events {
        let is_known = codes.iter().any(|code| event["code"] == *code);
        ensure!(event["ok"] == false && is_known, "not {}: {events:?}", codes.join(" or "));
        ensure!(event["verdict"] == "untouched", "{event}");
    }
    Ok(())
}

/// All calls had the same outcome: the correct result, or an abort with unchanged buffers.
pub fn one_outcome(events: &[Value]) -> Result<()> {
    if events[0]["ok"] == true { all_exact(events) } else { all_failed(events, "aborted") }
}

/// All nodes that stayed had the same outcome. The node that was away (`own`) had no contradicting
/// one; it may not know the outcome.
pub fn one_story(events: &[Value], own: &Value) -> Result<()> {
    one_outcome(events)?;
    let fits = if events[0]["ok"] == true { own["code"] != "aborted" } else { own["ok"] == false };
    ensure!(fits, "{events:?} but {own}");
    Ok(())
}

/// Milliseconds from `since_ms` to the last of these answers.
pub fn answered_after(events: &[Value], since_ms: f64) -> f64 {
    events.iter().filter_map(|event| event["at_ms"].as_f64()).fold(since_ms, f64::max) - since_ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good(hash: &str) -> Value {
        json!({"ok": true, "verdict": "exact", "hash": hash})
    }

    fn bad(code: &str) -> Value {
        json!({"ok": false, "code": code, "verdict": "untouched"})
    }

    #[test]
    fn one_outcome_is_one_result_or_none() {
        assert!(one_outcome(&[good("a"), good("a")]).is_ok());
        assert!(one_outcome(&[bad("aborted"), bad("aborted")]).is_ok());
        let damaged = json!({"ok": false, "code": "aborted", "verdict": "damaged"});
        let wrong = json!({"ok": true, "verdict": "wrong", "hash": "a"});
        for events in [
            [good("a"), good("b")],
            [good("a"), bad("aborted")],
            [bad("aborted"), good("a")],
            [bad("aborted"), bad("indeterminate")],
            [bad("aborted"), damaged],
            [good("a"), wrong],
        ] {
            assert!(one_outcome(&events).is_err(), "{events:?}");
        }
    }

    #[test]
    fn who_was_away_may_not_know_but_has_no_other_outcome() {
        for (others, own, fits) in [
            (good("a"), good("a"), true),
            (good("a"), bad("indeterminate"), true),
            (good("a"), bad("aborted"), false),
            (bad("aborted"), bad("aborted"), true),
            (bad("aborted"), bad("indeterminate"), true),
            (bad("aborted"), good("a"), false),
        ] {
            assert_eq!(
                one_story(std::slice::from_ref(&others), &own).is_ok(),
                fits,
                "{others} and {own}"
            );
        }
    }

    #[test]
    fn the_last_answer_counts() {
        let at = |ms: f64| json!({"at_ms": ms});
        assert_eq!(answered_after(&[at(1010.0), at(1030.0), at(990.0)], 1000.0), 30.0);
    }
}
