//! One machine of a benchmark: joins, executes commands, and prints the results as lines of words.

use crate::machine::{median, p99, worst};
use crate::turns::Watch;
use anyhow::{Context as _, Result, bail, ensure};
use potluck::{Builder, Cluster, Codec, Config, Context};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::time::{Duration, Instant};

/// The arguments: `peer lan|loopback SIZE TRUSTED sum BYTES:OPS:BATCHES...`, `... form`, `... loop
/// BYTES`, `... crowd SECONDS BYTES`, `... serve` or `... ring PLACE`. TRUSTED may be `-`.
pub fn run(order: &[&str]) -> Result<()> {
    let born = now_s();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("POTLUCK_LOG"))
        .with_writer(std::io::stderr)
        .try_init();
    let [network, size, trusted, task, rest @ ..] = order else { bail!("peer: too few words") };
    let size: usize = size.parse()?;
    let config = if *network == "loopback" { Config::loopback() } else { Config::home() };
    let mut builder = Builder::new(config).open_lan("bench").stateless();
    builder = builder.min_members(match *task {
        "loop" => size - 1,
        "ring" => place(rest)?,
        _ => size,
    });
    if *trusted != "-" {
        builder = builder.trusted_link(*trusted);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let cluster = builder.join().await?;
        match *task {
            "sum" => sum(cluster, size, rest).await,
            "serve" => {
                let ctx = cluster.context().await?;
                ensure!(ctx.size() == size, "{} members in place of {size}", ctx.size());
                serve(cluster, ctx, born).await
            }
            "ring" => ring(cluster, size, place(rest)?, born).await,
            "form" => form(cluster, born).await,
            "crowd" => crowd(cluster, size, born, rest).await,
            "loop" => go_on(cluster, rest.first().context("loop takes bytes")?.parse()?).await,
            _ => bail!("peer: no task {task}"),
        }
    })
}

/// A process at rest uses less than this share of a processor.
const AT_REST: f64 = 0.02;

/// Waits until this process has been at rest for a second. A new View measures its links between
/// the calls, which would disturb other groups on this machine.
async fn until_at_rest() {
    loop {
        let spent = processor_s();
        tokio::time::sleep(Duration::from_secs(1)).await;
        if processor_s() - spent < AT_REST {
            return;
        }
    }
}

/// Seconds of the machine's monotonic clock, which all peers share because they share a kernel.
pub fn now_s() -> f64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

async fn sum(cluster: Cluster, size: usize, works: &[&str]) -> Result<()> {
    let mut ctx = cluster.context().await?;
    ensure!(ctx.size() == size, "{} members in place of {size}", ctx.size());
    until_at_rest().await;
    say(&format!("plan {}", ctx.plan()))?;
    for work in works {
        let numbers: Vec<usize> = work.split(':').map(str::parse).collect::<Result<_, _>>()?;
        let [bytes, ops, batches] = numbers[..] else {
            bail!("peer: not BYTES:OPS:BATCHES: {work}")
        };
        check(&mut ctx, bytes).await?;
        // Zeros stay zeros in repeated sums.
        let mut buffer = vec![0f32; bytes / 4];
        for batch in 0..=batches {
            let watch = Watch::begin();
            let (borrowed, spent_borrowed) = borrowed(&mut ctx, &mut buffer, ops).await?;
            let (stolen_borrowed, watch) = (watch.stolen(), Watch::begin());
            let (owned, spent_owned) = owned(&mut ctx, &mut buffer, ops, None).await?;
            let stolen_owned = watch.stolen();
            // The first batch is a warm-up.
            if batch > 0 {
                say(&format!(
                    "batch {borrowed} {owned} {spent_borrowed} {spent_owned} {stolen_borrowed} \
                     {stolen_owned}"
                ))?;
            }
        }
    }
    ctx.barrier().await?;
    say("end")?;
    // A peer that leaves at once would end the View during the others' last call.
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.leave().await;
    Ok(())
}

/// Checks a sum: the time of a wrong sum is meaningless.
async fn check(ctx: &mut Context, bytes: usize) -> Result<()> {
    let mut buffer = vec![(ctx.rank().index() + 1) as f32; bytes / 4];
    ctx.all_reduce(&mut buffer).await?;
    ensure_sum(ctx, &buffer, 0.0)
}

/// Checks a sum of an owned buffer, as the timed calls make it. Afterwards the library's pool has
/// memory for the next call.
async fn check_owned(ctx: &mut Context, bytes: usize, codec: Option<&mut Codec>) -> Result<()> {
    let buffer = vec![(ctx.rank().index() + 1) as f32; bytes / 4];
    // The tolerance for eight bits, rounded twice. For coarser codecs no bound can be given.
    let near = if codec.is_some() { 0.01 } else { 0.0 };
    let sum = reduced(ctx, buffer, codec).await?;
    ensure_sum(ctx, &sum, near)
}

async fn reduced(
    ctx: &mut Context,
    buffer: Vec<f32>,
    codec: Option<&mut Codec>,
) -> Result<Vec<f32>> {
    let call = ctx.all_reduce_owned(buffer);
    let call = match codec {
        Some(codec) => call.compress(codec),
        None => call,
    };
    Ok(call.await.map_err(|failed| failed.error)?)
}

/// Checks that each element differs from the sum by at most this fraction.
fn ensure_sum(ctx: &Context, buffer: &[f32], near: f32) -> Result<()> {
    let expected = (ctx.size() * (ctx.size() + 1) / 2) as f32;
    ensure!(
        buffer.iter().all(|x| (x / expected - 1.0).abs() <= near),
        "a wrong sum of {} elements",
        buffer.len()
    );
    Ok(())
}

/// Seconds of each call, and processor seconds of all calls.
async fn borrowed(ctx: &mut Context, buffer: &mut [f32], ops: usize) -> Result<(f64, f64)> {
    ctx.barrier().await?;
    let (start, spent) = (Instant::now(), processor_s());
    for _ in 0..ops {
        ctx.all_reduce(buffer).await?;
    }
    Ok((start.elapsed().as_secs_f64() / ops as f64, processor_s() - spent))
}

async fn owned(
    ctx: &mut Context,
    buffer: &mut Vec<f32>,
    ops: usize,
    mut codec: Option<&mut Codec>,
) -> Result<(f64, f64)> {
    ctx.barrier().await?;
    let (start, spent) = (Instant::now(), processor_s());
    for _ in 0..ops {
        *buffer = reduced(ctx, std::mem::take(buffer), codec.as_deref_mut()).await?;
    }
    Ok((start.elapsed().as_secs_f64() / ops as f64, processor_s() - spent))
}

/// The measured links and the plan, as JSON. Members are identified by their machine's number, the
/// last part of the address.
fn known(cluster: &Cluster, ctx: &Context) -> String {
    let status = cluster.status();
    let view = status.view.as_ref();
    let place = |rank: usize| {
        ctx.members()[rank]
            .name
            .as_str()
            .trim_start_matches('n')
            .parse::<usize>()
            .unwrap_or(rank + 1)
            - 1
    };
    let paths = view.iter().flat_map(|view| &view.paths);
    let paths: Vec<String> = paths
        .filter_map(|path| {
            Some(format!(
                "[{},{},{}]",
                place(path.from.index()),
                place(path.to.index()),
                path.rate_kbps?
            ))
        })
        .collect();
    let shared =
        view.iter().flat_map(|view| &view.paths).filter(|path| path.medium.is_some()).count();
    let forecasts = view.iter().flat_map(|view| &view.forecasts);
    let forecasts: Vec<String> =
        forecasts.map(|f| format!("[{},{}]", f.bytes, f.takes.as_secs_f64())).collect();
    let (revision, why) = view.map_or((0, ""), |view| (view.plan_revision, view.plan.as_str()));
    format!(
        "{{\"plan\":{why:?},\"revision\":{revision},\"shared\":{shared},\"paths\":[{}],\
         \"forecasts\":[{}]}}",
        paths.join(","),
        forecasts.join(",")
    )
}

/// The line of a peer that is in the group: when it started and had its View, in seconds of the
/// common clock, and the processor seconds until then.
fn ready(ctx: &Context, born: f64) -> String {
    format!(
        "{{\"ready\":true,\"engine\":\"{}\",\"born_s\":{born},\"formed_s\":{},\"cpu_s\":{:.6}}}",
        ctx.engine(),
        now_s(),
        processor_s()
    )
}

/// Executes commands from standard input until its end: `BYTES CALLS`, `BYTES CALLS CODEC`, `plan`
/// or `rest`. The answers have the format of bare Gloo's, see `benches/gloo/bare.cc`.
async fn serve(cluster: Cluster, mut ctx: Context, born: f64) -> Result<()> {
    say(&ready(&ctx, born))?;
    let mut buffer = Vec::new();
    // Blocking here is harmless: potluck works on its own threads.
    for order in std::io::stdin().lines() {
        let order = order?;
        if order == "plan" {
            say(&known(&cluster, &ctx))?;
            continue;
        }
        if order == "rest" {
            until_at_rest().await;
            say("{}")?;
            continue;
        }
        let words: Vec<&str> = order.split(' ').collect();
        let mut codec = match words[..] {
            [_, _] => None,
            [_, _, codec] => crate::codecs::by_name(codec)?,
            _ => bail!("peer: not BYTES CALLS: {order}"),
        };
        let (bytes, calls): (usize, usize) = (words[0].parse()?, words[1].parse()?);
        // Reused and touched before: new memory would cause page faults in the first call.
        if buffer.len() != bytes / 4 {
            buffer = vec![1f32; bytes / 4];
            buffer.fill(0.0);
        }
        let mut right = "null";
        if calls == 0 {
            check_owned(&mut ctx, bytes, codec.as_mut()).await?;
            right = "true";
        }
        let (mut us, mut cpu_s) = (Vec::new(), 0.0);
        for _ in 0..calls {
            let (took, spent) = owned(&mut ctx, &mut buffer, 1, codec.as_mut()).await?;
            us.push(took * 1e6);
            cpu_s += spent;
        }
        say(&format!(
            "{{\"bytes\":{bytes},\"right\":{right},\"cpu_s\":{cpu_s:.6},\"us\":{us:?}}}"
        ))?;
    }
    ctx.barrier().await?;
    cluster.leave().await;
    Ok(())
}

/// The place of a peer in a ring, from 1 on.
fn place(words: &[&str]) -> Result<usize> {
    Ok(words.first().context("ring takes a place")?.parse()?)
}

/// Makes calls round a ring, whatever is known of the links. No option forces a plan, but a View
/// that requires Gloo has the same plan for good, and a group of some of its members runs on the
/// native engine, round a ring in the order of their ranks. Ranks are given in the order of
/// joining. So the peers join one after the other, and the last one, which only makes the others a
/// part of the View, makes no calls.
async fn ring(cluster: Cluster, size: usize, place: usize, born: f64) -> Result<()> {
    let ctx = view_of(&cluster, place).await?;
    ensure!(ctx.rank().index() + 1 == place, "rank {} at place {place}", ctx.rank());
    say(&format!("{{\"joined\":{}}}", ctx.size()))?;
    let ctx = view_of(&cluster, size).await?;
    ensure!(ctx.rank().index() + 1 == place, "rank {} at place {place}", ctx.rank());
    if place < size {
        let group = ctx.group(&(0..size - 1).collect::<Vec<_>>(), 0)?;
        let plan = group.plan().to_string();
        ensure!(plan.contains("over a ring in rank order"), "not a ring: {plan}");
        return serve(cluster, group, born).await;
    }
    say(&ready(&ctx, born))?;
    std::io::stdin().lines().try_for_each(|line| line.map(drop))?;
    cluster.leave().await;
    Ok(())
}

/// The Context of the first View with so many members.
async fn view_of(cluster: &Cluster, members: usize) -> Result<Context> {
    loop {
        let ctx = cluster.context().await?;
        if ctx.size() >= members {
            return Ok(ctx);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// User and system time of all threads of this process.
fn processor_s() -> f64 {
    let spent = clock_gettime(ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

async fn form(cluster: Cluster, born: f64) -> Result<()> {
    let ctx = cluster.context().await?;
    formed(&ctx, born)?;
    forever().await
}

fn formed(ctx: &Context, born: f64) -> Result<()> {
    say(&format!("view {born} {} {} {}", now_s(), ctx.view(), ctx.size()))
}

/// Sums without a pause in one View, and checks every sum. The first call that fails ends the
/// process.
async fn crowd(cluster: Cluster, size: usize, born: f64, words: &[&str]) -> Result<()> {
    let [seconds, bytes] = words else { bail!("peer: crowd takes seconds and bytes") };
    let (seconds, bytes): (f64, usize) = (seconds.parse()?, bytes.parse()?);
    let mut ctx = cluster.context().await?;
    ensure!(ctx.size() == size, "{} members in place of {size}", ctx.size());
    formed(&ctx, born)?;
    let (until, mut times) = (now_s() + seconds, Vec::new());
    let mut buffer = vec![0f32; bytes / 4];
    let mut is_over = false;
    while !is_over {
        buffer.fill((ctx.rank().index() + 1) as f32);
        // Rank 0 states in the first element, for all, whether another call follows.
        buffer[0] = if ctx.rank() == 0 && now_s() < until { 1.0 } else { 0.0 };
        let begin = Instant::now();
        ctx.all_reduce(&mut buffer).await?;
        times.push(begin.elapsed().as_secs_f64());
        ensure_sum(&ctx, &buffer[1..], 0.0)?;
        is_over = buffer[0] == 0.0;
    }
    let view = cluster.status().view.map(|view| view.id.to_string());
    ensure!(view.as_deref() == Some(&*ctx.view()), "the View was replaced: {view:?}");
    ctx.barrier().await?;
    say(&format!("crowd {} {} {} {}", times.len(), median(&times), p99(&times), worst(&times)))?;
    // A peer that leaves at once would end the View during the others' last call.
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.leave().await;
    Ok(())
}

/// Calls forever; reports each aborted call, and the first successful call of each View.
async fn go_on(cluster: Cluster, bytes: usize) -> Result<()> {
    let mut buffer = vec![0f32; bytes / 4];
    let mut ctx = cluster.context().await?;
    let mut told = String::new();
    loop {
        match ctx.all_reduce(&mut buffer).await {
            Ok(()) if told == ctx.view() => {}
            Ok(()) => {
                told = ctx.view();
                say(&format!("done {} {}", now_s(), ctx.size()))?;
            }
            Err(error) if error.can_renew() => {
                say(&format!("answer {} {}", now_s(), error.code()))?;
                ctx = ctx.renewed().await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn forever() -> Result<()> {
    std::future::pending().await
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
