# Parses the output of `cargo test`; prints lines with a kind, a tab, and a number or a text. Both
# libtest and libtest-mimic end with `test result: ok. N passed; M failed; K ignored; ...`.

function out(kind, text) { printf "%s\t%s\n", kind, text }

# How much of the output of a failed test is repeated at the end, in lines and in characters of a
# line.
BEGIN { most_lines = 30; most_characters = 500 }

# A binary without a result was killed or aborted.
function close_binary() {
    if (binary != "" && results == 0) {
        out("failed", 1)
        out("failure", binary ": ended without a result")
    }
    results = 0
}

/^ +Running (unittests |tests\/|benches\/|examples\/)/ || /^ +Doc-tests / {
    close_binary()
    # The suite of `Running tests/lab.rs (target/debug/deps/lab-0123456789abcdef)` is lab; for unit
    # tests the crate's name precedes it.
    binary = $0
    if (sub(/^.*\(.*\//, "", binary)) sub(/-[0-9a-f]*\)$/, "", binary)
    sub(/^ +/, "", binary)
    next
}

# The output of a failed test: `---- name ----`, and lines up to the next such line or the list of
# names.
/^---- .* ----$/ || /^failures:$/ {
    saying = /^----/ ? most_lines : 0
    if (saying) out("said", $0)
    next
}

saying && !/^test result: / {
    if (NF) { out("said", substr($0, 1, most_characters)); saying-- }
    next
}

# A line of the harness: `SKIPPED name: reason`.
/^SKIPPED / {
    text = substr($0, 9)
    # Names and reasons may contain colons: remember every possible split.
    n = split(text, part, ": ")
    prefix = part[1]
    for (i = 2; i <= n; i++) { told[binary, prefix] = 1; prefix = prefix ": " part[i] }
    out("skip", binary ": " text)
    next
}

# A line of the harness: `AGAIN name: the machine stood still for 2.0 s: the failure`.
/^AGAIN / {
    out("again", binary ": " substr($0, 7, most_characters))
    next
}

# A line of libtest: `test name ... ignored` or `test name ... ignored, reason`.
/^test .* \.\.\. ignored/ {
    name = $0
    sub(/^test /, "", name)
    reason = name
    sub(/ +\.\.\. ignored.*$/, "", name)
    if (!((binary, name) in told)) {
        sub(/^.* \.\.\. ignored,? ?/, "", reason)
        out("skip", binary ": " name ": " (reason == "" ? "no reason given" : reason))
    }
    next
}

/^test .* \.\.\. FAILED/ {
    name = $0
    sub(/^test /, "", name)
    sub(/ +\.\.\. FAILED.*$/, "", name)
    out("failure", binary ": " name)
    next
}

/^test result: / {
    saying = 0
    results++
    for (i = 2; i <= NF; i++) {
        word = $i
        sub(/;$/, "", word)
        if (word == "passed" || word == "failed") out(word, $(i - 1))
        if (word == "ignored") out("skipped", $(i - 1))
    }
}

END { close_binary() }
