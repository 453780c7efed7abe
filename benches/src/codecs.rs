//! The speed and the errors of codecs, their gain on slow links, and their cost on fast ones.

use crate::Extent;
use crate::group::{Group, Who};
use crate::machine::{Engine, Machines, PATIENCE, median};
use crate::report::{Report, time};
use crate::turns::Turns;
use anyhow::{Context, Result, bail, ensure};
use potluck::Codec;
use std::time::{Duration, Instant};

/// The elements of a chunk, and of a buffer larger than every cache.
const SIZES: [(&str, usize); 2] = [("256 KiB", 64 << 10), ("64 MiB", 16 << 20)];
/// The names in commands and tables; "auto" allows codecs up to int8.
const CODECS: [&str; 6] = ["bf16", "f16", "int8", "int4", "one-bit", "top-k 1 %"];
const SLOW_MBIT: u32 = 100;
const BYTES: usize = 16 << 20;
/// Degrees of freedom of the heavy tails.
const TAILS: usize = 3;
/// The maximum slowdown by "auto" on one machine, where nothing is encoded.
const ASKING: f64 = 1.05;

/// The codec of this name; `None` for "f32".
pub fn by_name(name: &str) -> Result<Option<Codec>> {
    Ok(Some(match name {
        "f32" => return Ok(None),
        "bf16" => Codec::bf16(),
        "f16" => Codec::f16(),
        "int8" => Codec::int8(),
        "int4" => Codec::int4(),
        "one-bit" => Codec::one_bit().without_feedback(),
        "auto" => Codec::auto(),
        "top-k 1 %" | "top-k" => Codec::top_k(0.01).without_feedback(),
        _ => bail!("no codec {name}"),
    }))
}

pub fn measure(extent: Extent, report: &mut Report) -> Result<()> {
    alone(extent, report)?;
    on_slow_links(extent, report)?;
    on_one_machine(extent, report)
}

/// One thread alone.
fn alone(extent: Extent, report: &mut Report) -> Result<()> {
    report.line("\n### Codecs, one thread, GB of f32 a second\n");
    let heads = SIZES.map(|(size, _)| format!("encode {size} | decode {size}"));
    report.line(&format!(
        "| codec | {} | of the bytes | error, normal | error, Student's t |",
        heads.join(" | ")
    ));
    report.line("| --- | --- | --- | --- | --- | --- | --- | --- |");
    let within = Duration::from_millis(if extent == Extent::Quick { 50 } else { 400 });
    for name in CODECS {
        let codec = by_name(name)?.context("a codec")?;
        let mut cells = Vec::new();
        let mut ratio = 0.0;
        for (_, count) in SIZES {
            // Elements of many magnitudes and of both signs.
            let mut elements: Vec<f32> =
                (0..count).map(|i| ((i * 7919 % 10_007) as f32 - 5003.5) * 1e-3).collect();
            let mut bytes = Vec::new();
            codec.encode(&elements, &mut bytes);
            ratio = bytes.len() as f64 / (4 * count) as f64;
            let encode = seconds(within, || codec.encode(&elements, &mut bytes));
            let mut read = Ok(());
            let decode = seconds(within, || read = codec.decode(&bytes, &mut elements));
            read?;
            cells.extend([encode, decode].map(|s| format!("{:.1}", (4 * count) as f64 / s / 1e9)));
        }
        let errors = [0, TAILS].map(|degrees| relative_error(&codec, &drawn(degrees)));
        let [normal, student] = errors;
        report.line(&format!(
            "| {name} | {} | {ratio:.3} | {:.1e} | {:.1e} |",
            cells.join(" | "),
            normal?,
            student?
        ));
    }
    report.line(&format!(
        "\nThe errors are mean squares, relative to that of the elements, of one contribution: \
         standard normal, and Student's t with {TAILS} degrees of freedom, whose tails are as \
         heavy as those of gradients."
    ));
    Ok(())
}

/// A million numbers of Student's t with this many degrees of freedom; standard normal ones for 0.
fn drawn(degrees: usize) -> Vec<f32> {
    let mut state = 7u64;
    // SplitMix64.
    let mut unit = move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((mixed ^ (mixed >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    // Box and Muller.
    let mut normal = move || (-2.0 * unit().ln()).sqrt() * (std::f64::consts::TAU * unit()).cos();
    let one = |_| {
        let above = normal();
        let squares: f64 = (0..degrees).map(|_| normal().powi(2)).sum();
        (if degrees == 0 { above } else { above / (squares / degrees as f64).sqrt() }) as f32
    };
    (0..1 << 20).map(one).collect()
}

/// The mean square error of a codec, relative to the mean square of the elements.
fn relative_error(codec: &Codec, elements: &[f32]) -> Result<f64> {
    let (mut bytes, mut back) = (Vec::new(), vec![0.0; elements.len()]);
    codec.encode(elements, &mut bytes);
    codec.decode(&bytes, &mut back)?;
    let squares: f64 = elements.iter().map(|x| f64::from(*x).powi(2)).sum();
    let pairs = elements.iter().zip(&back);
    Ok(pairs.map(|(x, y)| (f64::from(*x) - f64::from(*y)).powi(2)).sum::<f64>() / squares)
}

/// The median time of a call, repeated for `within`.
fn seconds(within: Duration, mut call: impl FnMut()) -> f64 {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < within || times.len() < 5 {
        let one = Instant::now();
        call();
        times.push(one.elapsed().as_secs_f64());
    }
    median(&times)
}

fn on_slow_links(extent: Extent, report: &mut Report) -> Result<()> {
    report
        .line(&format!("\n### Codecs, 16 MiB among four machines with {SLOW_MBIT} Mbit/s each\n"));
    report.line("| engine | on the wire | median | times faster |");
    report.line("| --- | --- | --- | --- |");
    let rounds = if extent == Extent::Quick { 3 } else { 7 };
    let gloo = potluck::gloo_version().is_some().then_some(Engine::Gloo);
    for engine in [Some(Engine::Native), gloo].into_iter().flatten() {
        let mut group =
            Group::up(Machines::up_at("gbe4", 4, SLOW_MBIT)?, 4, Who::Ours(engine, "-"))?;
        until_chosen(&mut group, "int8")?;
        let mut plain = f64::NAN;
        for name in ["f32"].into_iter().chain(CODECS).chain(["auto"]) {
            // The first call is a warm-up.
            group.calls(BYTES, 1, word(name))?;
            let mut turns = Turns::wanted(rounds);
            while turns.go_on() {
                turns.add(group.calls(BYTES, 1, word(name))?);
            }
            let took = turns.median_s();
            plain = if name == "f32" { took } else { plain };
            report.line(&format!(
                "| {} | {name} | {} | {:.2} |",
                engine.word(),
                time(took),
                plain / took
            ));
            let least = match name {
                "bf16" => 1.9,
                "int8" | "auto" => 3.5,
                _ => continue,
            };
            report.must(
                &format!("{}, {name} to f32 at {SLOW_MBIT} Mbit/s", engine.word()),
                took / plain,
                1.0 / least,
            );
        }
    }
    Ok(())
}

/// In turns, because the difference is small.
fn on_one_machine(extent: Extent, report: &mut Report) -> Result<()> {
    let rounds = if extent == Extent::Quick { 20 } else { 100 };
    let mut group = Group::up(Machines::up("lo", 2)?, 2, Who::Ours(Engine::Native, "lo"))?;
    let [mut plain, mut auto] = [(); 2].map(|()| Turns::wanted(rounds));
    while plain.go_on() || auto.go_on() {
        plain.add(group.calls(BYTES, 1, "f32")?);
        auto.add(group.calls(BYTES, 1, "auto")?);
    }
    let (plain, auto) = (plain.median_s(), auto.median_s());
    report.line(&format!(
        "\n16 MiB between two on one machine, in the clear: {}, and {} where the codec is left to \
         the plan, which takes none.",
        time(plain),
        time(auto)
    ));
    report.must("lo, auto to none", auto / plain, ASKING);
    Ok(())
}

/// The name of a codec in a command.
fn word(name: &str) -> &str {
    name.split(' ').next().unwrap_or(name)
}

/// Waits until the links are measured and the plan uses this codec.
fn until_chosen(group: &mut Group, codec: &str) -> Result<()> {
    let (began, said) = (Instant::now(), format!("Codec::auto takes {codec}"));
    // The links are measured when idle, after a call has requested a codec.
    group.calls(1 << 20, 1, "auto")?;
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let told = group.ask("plan")?;
        if told.iter().all(|t| t["plan"].as_str().is_some_and(|plan| plan.contains(&said))) {
            return Ok(());
        }
        ensure!(began.elapsed() < PATIENCE, "{codec} is not chosen: {}", told[0]["plan"]);
    }
}
