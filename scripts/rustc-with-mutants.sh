#!/usr/bin/env bash
# For RUSTC_WORKSPACE_WRAPPER: builds our own packages with the mutants of src/protocol/mutant.rs,
# of which POTLUCK_MUTANT names the one that a node has.
exec "$@" --cfg potluck_mutants -Copt-level=0 -Cdebuginfo=0
