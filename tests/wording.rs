//! The texts of errors: each error that three ranks get, as text, kept in
//! `tests/golden/misuse.txt`. `POTLUCK_WRITE=1 make test ARGS=wording` writes the file again.

use anyhow::{Context as _, Result, ensure};
use potluck::{Builder, Cluster, Config, Context, EngineOffer};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

const FILE: &str = "tests/golden/misuse.txt";

const PATIENCE: Duration = Duration::from_secs(30);

/// Longer than any member is late here.
const LONG: Duration = Duration::from_secs(20);

type Outcome = potluck::Result<()>;

/// A group of three, by rank, and what its members were told.
struct Trials {
    clusters: Vec<Cluster>,
    ranks: Vec<Context>,
    text: String,
}

impl Trials {
    async fn begin() -> Result<Trials> {
        let mut clusters = Vec::new();
        for _ in 0..3 {
            // One name for all, because ranks follow from keys that are made anew in each run.
            let builder = Builder::new(Config::local()).open_lan("wording").name("node").members(3);
            let builder = builder.engine(EngineOffer::Native);
            clusters.push(builder.join().await?);
        }
        let mut members = Vec::new();
        for cluster in clusters {
            members.push((cluster.context_within(PATIENCE).await?, cluster));
        }
        members.sort_by_key(|(context, _)| context.rank());
        let (ranks, clusters): (Vec<Context>, Vec<Cluster>) = members.into_iter().unzip();
        ensure!(ranks.iter().all(|context| context.view() == ranks[0].view()), "several Views");
        Ok(Trials { clusters, ranks, text: String::new() })
    }

    /// Lets all ranks call at once, and keeps what each of them was told.
    async fn all(&mut self, title: &str, call: impl AsyncFn(usize, &mut Context) -> Outcome) {
        let [a, b, c] = &mut self.ranks[..] else { unreachable!("three ranks") };
        let (a, b, c) = tokio::join!(call(0, a), call(1, b), call(2, c));
        self.keep(title, &[a, b, c]);
    }

    fn keep(&mut self, title: &str, told: &[Outcome]) {
        let told: Vec<String> = told.iter().map(sentence).collect();
        let _ = writeln!(self.text, "{title}");
        if told.iter().all(|one| *one == told[0]) {
            let _ = writeln!(self.text, "  all: {}", told[0]);
        } else {
            for (rank, one) in told.iter().enumerate() {
                let _ = writeln!(self.text, "  rank {rank}: {one}");
            }
        }
        self.text.push('\n');
    }
}

fn sentence(told: &Outcome) -> String {
    match told {
        Ok(()) => "ok".to_owned(),
        Err(error) => {
            let renew = if error.can_renew() { ", renew" } else { "" };
            format!("{} [{}{renew}]", without_ids(&error.to_string()), error.code())
        }
    }
}

/// Without the short ids, which differ from run to run: eight hexadecimal digits.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| word.len() == 8 && word.chars().all(|c| c.is_ascii_hexdigit());
    text.split_inclusive(|c: char| !c.is_ascii_alphanumeric())
        .map(|piece| {
            let word = piece.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
            if is_id(word) { piece.replace(word, "ID") } else { piece.to_owned() }
        })
        .collect()
}

#[tokio::test]
async fn what_a_wrong_or_unlucky_program_is_told_is_that_of_the_file() -> Result<()> {
    let mut trials = Trials::begin().await?;
    wrong_alike(&mut trials).await;
    wrong_on_one_rank(&mut trials).await;
    numbers(&mut trials).await;
    deadlines(&mut trials).await;
    losses(&mut trials).await?;
    compare(&trials.text)
}

fn compare(text: &str) -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("POTLUCK_WRITE").is_some() {
        fs::write(&path, text)?;
    }
    let kept = fs::read_to_string(&path).with_context(|| format!("{FILE} cannot be read"))?;
    ensure!(kept == text, "{FILE} differs; POTLUCK_WRITE=1 writes it again. Told now:\n{text}");
    Ok(())
}

/// The same mistake on every rank.
async fn wrong_alike(trials: &mut Trials) {
    trials
        .all("broadcast from rank 7 of 3", async |_, ctx| ctx.broadcast(7, &mut [0.0f32; 4]).await)
        .await;
    trials.all("reduce to rank 3 of 3", async |_, ctx| ctx.reduce(3, &mut [0.0f32; 4]).await).await;
    trials.all("send to oneself", async |rank, ctx| ctx.send(rank, 0, &[1.0f32]).await).await;
    trials.all("send to rank 9 of 3", async |_, ctx| ctx.send(9, 0, &[1.0f32]).await).await;
    trials
        .all("mean of integers", async |_, ctx| ctx.all_reduce(&mut [1i32, 2]).mean().await)
        .await;
    trials
        .all("all_to_all of 4 elements among 3", async |_, ctx| {
            ctx.all_to_all(&[0.0f32; 4]).await.map(drop)
        })
        .await;
    trials
        .all("bit_and of floats", async |_, ctx| ctx.all_reduce(&mut [1.0f32]).bit_and().await)
        .await;
}

/// Rank 2 calls something else than the others. Either of these may be named, so the file has rank
/// 0.
async fn wrong_on_one_rank(trials: &mut Trials) {
    let before = trials.text.len();
    trials
        .all("other lengths", async |rank, ctx| {
            let len = if rank == 2 { 5 } else { 4 };
            ctx.all_reduce(&mut vec![1.0f32; len]).await
        })
        .await;
    trials
        .all("another operator", async |rank, ctx| {
            let mut numbers = [1.0f32; 4];
            let call = ctx.all_reduce(&mut numbers);
            if rank == 2 { call.max().await } else { call.await }
        })
        .await;
    trials
        .all("another type", async |rank, ctx| match rank {
            2 => ctx.all_reduce(&mut [1.0f64; 4]).await,
            _ => ctx.all_reduce(&mut [1.0f32; 4]).await,
        })
        .await;
    trials
        .all("another collective", async |rank, ctx| match rank {
            2 => ctx.barrier().await,
            _ => ctx.all_reduce(&mut [1.0f32; 4]).await,
        })
        .await;
    trials
        .all("another root", async |rank, ctx| {
            ctx.broadcast(usize::from(rank == 2), &mut [1.0f32; 4]).await
        })
        .await;
    let told = trials.text.split_off(before).replace(": rank 1 (", ": rank 0 (");
    trials.text.push_str(&told);
}

async fn numbers(trials: &mut Trials) {
    trials.all("nothing to sum", async |_, ctx| ctx.all_reduce::<f32>(&mut []).await).await;
    trials
        .all("a NaN on rank 2, rejected", async |rank, ctx| {
            let mut numbers = [if rank == 2 { f32::NAN } else { 1.0 }];
            ctx.all_reduce(&mut numbers).reject_non_finite().await
        })
        .await;
}

async fn deadlines(trials: &mut Trials) {
    // Rank 2 calls when the others have their answers: it must learn whose deadline it was.
    let passed = tokio::sync::Barrier::new(3);
    trials
        .all("a deadline on rank 0 passes before rank 2 calls", async |rank, ctx| {
            let mut numbers = [1.0f32; 4];
            match rank {
                0 => {
                    let told =
                        ctx.all_reduce(&mut numbers).deadline(Duration::from_millis(50)).await;
                    passed.wait().await;
                    told
                }
                1 => {
                    let told = ctx.all_reduce(&mut numbers).await;
                    passed.wait().await;
                    told
                }
                _ => {
                    passed.wait().await;
                    ctx.all_reduce(&mut numbers).await
                }
            }
        })
        .await;
    trials
        .all("a dropped call on rank 0", async |rank, ctx| {
            let mut numbers = [1.0f32; 4];
            if rank == 0 {
                // Dropped before the others have called: it cannot have been decided.
                let _ = tokio::time::timeout(Duration::ZERO, ctx.all_reduce(&mut numbers)).await;
                passed.wait().await;
                return Ok(());
            }
            passed.wait().await;
            ctx.all_reduce(&mut numbers).await
        })
        .await;
}

async fn losses(trials: &mut Trials) -> Result<()> {
    let mut last = trials.ranks.pop().context("three ranks")?;
    let leaver = trials.clusters.pop().context("three nodes")?;
    let [a, b] = &mut trials.ranks[..] else { unreachable!("two ranks") };
    let (mut one, mut other) = ([1.0f32; 4], [1.0f32; 4]);
    // Both have called before it leaves.
    let (mut first, mut second) = (a.all_reduce(&mut one), b.all_reduce(&mut other));
    let begun =
        tokio::time::timeout(Duration::ZERO, async { tokio::join!(&mut first, &mut second) });
    ensure!(begun.await.is_err(), "decided without rank 2");
    let (first, second, ()) = tokio::join!(first, second, leaver.leave());
    trials.keep("rank 2 leaves while the others wait for it", &[first, second]);
    let closed = tokio::time::timeout(LONG, last.all_reduce(&mut [1.0f32])).await?;
    trials.keep("a call after leave()", &[closed]);
    let old = tokio::time::timeout(LONG, trials.ranks[0].all_reduce(&mut [1.0f32])).await?;
    trials.keep("a call on the Context of an old View", &[old]);
    Ok(())
}
