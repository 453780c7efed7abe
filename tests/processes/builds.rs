//! Nodes of different builds in one group: unoptimized, optimized for a newer processor, and in a
//! program that flushes subnormals to zero.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use potluck_harness::peer::Start;
use potluck_harness::{Group, Need, Scratch, Suite};
use serde_json::{Value, json};

use crate::LO;

pub fn add(suite: &mut Suite) {
    let newer = std::env::var_os("POTLUCK_BIN_X86_64_V3").map(PathBuf::from);
    let needs: Vec<Need> = match (&newer, lacks()) {
        (_, Some(reason)) => vec![Need::Missing(reason)],
        (None, None) => vec![Need::Missing("POTLUCK_BIN_X86_64_V3 names no build for x86-64-v3")],
        (Some(_), None) => LO.to_vec(),
    };
    let newer = newer.unwrap_or_default();
    let with_libraries = [&LO[..], &[Need::Command("cc")]].concat();
    suite.test_needing(
        "a program that flushes subnormals to zero gets and gives the same bits",
        &with_libraries,
        flushing,
    );
    suite.test_needing("builds for different processors give the same bits", &needs, move || {
        same_bits(&newer)
    });
}

/// The reason why this processor cannot run x86-64-v3.
fn lacks() -> Option<&'static str> {
    #[cfg(target_arch = "x86_64")]
    {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi2");
        (!has).then_some("this processor has no AVX2, FMA and BMI2")
    }
    #[cfg(not(target_arch = "x86_64"))]
    Some("this processor is no x86-64")
}

/// Three nodes, of which the second is started differently, as this field of its event must show.
fn one_is_odd(field: &str, odd: impl Fn(Start) -> Start) -> Result<Group> {
    let mut group = Group::empty("lo", 3)?;
    let join = json!({"do": "join", "min": 3});
    let joined = group.found(3, &join, |at, usual| if at == 1 { odd(usual) } else { usual })?;
    let shown: Vec<&Value> = joined.iter().map(|event| &event[field]).collect();
    ensure!(shown == [false, true, false], "not the programs that are wanted: {joined:?}");
    Ok(group)
}

/// The result is bit-identical to the reference on every build. Every node computes the reference
/// without optimization.
fn same_bits(newer: &Path) -> Result<()> {
    let mut group = one_is_odd("avx2", |usual| Start { program: Some(newer.to_owned()), ..usual })?;
    for dtype in ["f32", "f64", "f16", "bf16"] {
        for op in ["sum", "mean", "prod", "min", "max"] {
            for call in ["all_reduce", "reduce", "reduce_scatter"] {
                // Minimum and maximum do not round, so one call suffices.
                if matches!(op, "min" | "max") && call != "all_reduce" {
                    continue;
                }
                let order = json!({
                    "do": call, "root": 1, "dtype": dtype, "op": op, "len": 65_537, "seed": 1,
                    "awkward": true,
                });
                group.exact(&order).with_context(|| order.to_string())?;
            }
            let order =
                json!({"do": "all_reduce", "dtype": dtype, "op": op, "len": 300_007, "seed": 2});
            group.exact(&order).with_context(|| order.to_string())?;
        }
    }
    Ok(())
}

/// A program that loads a library linked with `-ffast-math`: its threads then flush subnormals to
/// zero.
fn flushing() -> Result<()> {
    let scratch = Scratch::new()?;
    let (source, library) = (scratch.path().join("fast.c"), scratch.path().join("libfast.so"));
    std::fs::write(&source, "int fast;\n")?;
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-ffast-math", "-o"])
        .arg(&library)
        .arg(&source)
        .status()?;
    ensure!(built.success(), "the library is not built");
    let preloaded = |usual| Start { variables: vec![("LD_PRELOAD", library.clone())], ..usual };
    let mut group = one_is_odd("flushes", preloaded)?;
    // A pairwise exchange, a hub, a ring: in each, other members add.
    for len in [1000, 4096, 20_000, 300_007] {
        for dtype in ["f32", "f64", "f16", "bf16"] {
            for op in ["sum", "mean", "prod", "min", "max"] {
                let order = json!({
                    "do": "all_reduce", "dtype": dtype, "op": op, "len": len, "seed": len,
                    "awkward": true,
                });
                group.exact(&order).with_context(|| order.to_string())?;
            }
        }
        for codec in ["bf16", "int8"] {
            let order = json!({"do": "all_reduce", "len": len, "codec": codec, "seed": len});
            let done = group.all(&order, "done")?;
            let is_alike =
                |event: &Value| event["verdict"] == "close" && event["hash"] == done[0]["hash"];
            ensure!(done.iter().all(is_alike), "{order}: {done:?}");
        }
    }
    Ok(())
}
