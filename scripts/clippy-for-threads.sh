#!/bin/sh
# For RUSTC_WORKSPACE_WRAPPER, as scripts/rustc-for-threads.sh, but lints instead of building.
exec clippy-driver "$@" --cfg potluck_threads --cfg potluck_tight
