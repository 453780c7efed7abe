//! `Cluster::events`.

use anyhow::{Context, Result, ensure};
use potluck::report::State;
use potluck::{Builder, Cluster, Config, Event, EventStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

async fn join(namespace: &str, name: &str) -> Result<Cluster> {
    Ok(Builder::new(Config::local()).open_lan(namespace).name(name).join().await?)
}

/// The next event that satisfies `likes`; earlier events are discarded.
async fn event(events: &mut EventStream, likes: impl Fn(&Event) -> bool) -> Result<Event> {
    let mut passed = Vec::new();
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            match events.next().await {
                Some(event) if likes(&event) => return Some(event),
                Some(event) => passed.push(event),
                None => return None,
            }
        }
    });
    let found = found.await.ok().flatten();
    found.with_context(|| format!("not among {passed:?}"))
}

fn named(who: &potluck::report::NodeInfo, name: &str) -> bool {
    who.name.as_ref().is_some_and(|n| n.as_str() == name)
}

#[tokio::test]
async fn who_comes_and_goes_is_told_in_order_and_the_stream_ends_with_the_node() -> Result<()> {
    let a = join("events", "a").await?;
    let mut events = a.events();
    let b = join("events", "b").await?;
    let installed = event(&mut events, |e| matches!(e, Event::Installed { .. })).await?;
    let Event::Installed { members, view, in_sync } = installed else { unreachable!() };
    ensure!(members.len() == 2 && in_sync, "{members:?}");
    ensure!(a.status().view.is_some_and(|v| v.id == view), "another View than the status shows");
    let next = events.next().await.context("an event")?;
    ensure!(matches!(&next, Event::Joined(who) if named(who, "b")), "{next:?}");

    let c = join("events", "c").await?;
    event(&mut events, |e| matches!(e, Event::Joined(who) if named(who, "c"))).await?;
    c.leave().await;
    event(&mut events, |e| matches!(e, Event::Left(who) if named(who, "c"))).await?;
    b.leave().await;
    event(&mut events, |e| matches!(e, Event::Left(who) if named(who, "b"))).await?;

    // A later listener gets only later events.
    let mut late = a.events();
    a.leave().await;
    ensure!(late.next().await.is_none(), "there was an event after the end");
    while events.next().await.is_some() {}
    Ok(())
}

#[tokio::test]
async fn whoever_does_not_listen_in_time_is_told_how_much_was_lost() -> Result<()> {
    let a = join("events-late", "a").await?;
    let (mut late, mut prompt) = (a.events(), a.events());
    let mut seen = 0;
    // Each guest causes four events: two Views, one join and one leave.
    while seen < 300 {
        let guest = join("events-late", "guest").await?;
        for of_the_guest in [true, false] {
            let mut waiting = true;
            while waiting {
                let event = tokio::time::timeout(PATIENCE, prompt.next())
                    .await?
                    .context("the node is gone")?;
                waiting = if of_the_guest {
                    !matches!(event, Event::Joined(_))
                } else {
                    !matches!(event, Event::Left(_))
                };
                seen += 1;
            }
            if of_the_guest {
                guest.clone().leave().await;
            }
        }
    }
    let first = late.next().await.context("the node is gone")?;
    ensure!(
        matches!(first, Event::Lagged(lost) if lost > 0 && lost <= seen),
        "{first:?} after {seen}"
    );
    ensure!(
        matches!(late.next().await, Some(e) if !matches!(e, Event::Lagged(_))),
        "it goes on after that"
    );
    Ok(())
}

#[test]
fn a_program_without_async_hears_the_same() -> Result<()> {
    use potluck::blocking;
    let config = |name: &str| Builder::new(Config::local()).open_lan("events-blocking").name(name);
    let a = blocking::Cluster::join_with(config("a"))?;
    ensure!(matches!(a.status().state, State::Alone { .. }), "{:?}", a.status().state);
    let mut events = a.events();
    let b = blocking::Cluster::join_with(config("b"))?;
    ensure!(
        events.any(|e| matches!(&e, Event::Joined(who) if named(who, "b"))),
        "the stream has ended"
    );
    b.leave();
    ensure!(
        events.any(|e| matches!(&e, Event::Left(who) if named(who, "b"))),
        "the stream has ended"
    );
    a.leave();
    ensure!(
        events.all(|e| matches!(e, Event::Installed { .. })),
        "something happened after the end"
    );
    Ok(())
}
