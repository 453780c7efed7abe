#!/usr/bin/env bash
# For RUSTC_WORKSPACE_WRAPPER: builds our own packages with the defects of src/protocol/defect.rs,
# of which POTLUCK_DEFECT names the one that a node has.
exec "$@" --cfg potluck_defects -Copt-level=0 -Cdebuginfo=0
