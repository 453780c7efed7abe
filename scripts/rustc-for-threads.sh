#!/usr/bin/env bash
# For RUSTC_WORKSPACE_WRAPPER: builds our own packages with the locks and threads of a schedule
# checker (src/os/locks.rs), and small bounds. All other crates are shared with the usual build,
# because only this wrapper, which cargo also asks for the target's cfg, knows of it.
exec "$@" --cfg potluck_threads --cfg potluck_tight -Copt-level=0 -Cdebuginfo=0
