# Every recipe is one line over a script, so that nothing needs `just`. `just ci` is what CI runs.

_list:
    @just --list

# formats, then applies what clippy can fix
fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --fix --allow-dirty --allow-staged

fmt:
    cargo fmt --all --check

lint:
    cargo clippy --workspace --all-targets -- -D warnings

# licences, bans, sources and (with a fetched database) advisories
deny:
    scripts/setup lint
    "${XDG_CACHE_HOME:-$HOME/.cache}/fumehood/bin/cargo-deny" check bans licenses sources

# crate edges, unsafe, lengths, names
tidy:
    cargo test -p fumehood-conformance --test house

# everything that README's test command runs
test:
    scripts/test

# clause by backend; `just conform memory` for one
conform clause="":
    cargo test -p fumehood-conformance {{clause}}

# the catalogue of attacks against the default policy
attack tier="container":
    cargo build --release -p fumehood
    scripts/private-mounts target/x86_64-unknown-linux-gnu/release/fumehood attack --tier {{tier}}

# cgroup v2 under a Debian kernel in QEMU, without a service manager and with systemd
vm:
    scripts/vm

# property tests with many cases, and the fuzz targets for a minute each
fuzz cases="20000":
    PROPTEST_CASES={{cases}} cargo test -p fumehood-policy -p fumehood-guest -p fumehood-agent
    PROPTEST_CASES={{cases}} cargo test -p fumehood-live --lib frames
    PROPTEST_CASES={{cases}} cargo test -p fumehood-live --lib kernel::lines
    FUMEHOOD_FUZZ_SECONDS=60 cargo test -p fumehood-conformance --test fuzz -- --nocapture
    FUMEHOOD_FUZZ_SECONDS=60 cargo test -p fumehood-broker --lib fuzz -- --nocapture

# thousands of runs, many at once, the supervisor killed at random moments: nothing stays
leftovers *args:
    scripts/leftovers {{args}}

# speed and memory beside the peers; writes bench/RESULTS.md
bench *args:
    scripts/bench {{args}}

# what each tier costs here; writes docs/concepts/comparison.md
measure-tiers rounds="11":
    scripts/measure-tiers {{rounds}}

# the same programs inside and outside
compat *args:
    scripts/setup compat
    bench/compat/compat {{args}}

# archive, Debian package and wheel, each installed into a clean root and run
dist *args:
    scripts/setup dist
    scripts/dist --check {{args}}

demo:
    scripts/demo

ci:
    .ci/run
