//! The program that is run inside each contestant: does work of one kind, times it by its own clock, and prints
//! nanoseconds for one operation. The start of the sandbox is not in it.
//!
//! usage: probe cpu|getpid|stat|read|write|create   or   probe see FILE
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a program, not a room of the product")]

use std::fs;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

/// Samples of one measurement; the tenth percentile of them is printed, since other work only ever adds.
const SAMPLES: usize = 40;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match measure(&words) {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("probe: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn measure(words: &[&str]) -> std::io::Result<String> {
    match words {
        ["cpu"] => sampled(200, |n| {
            (0..n).for_each(|_| spin());
            Ok(())
        }),
        ["getpid"] => sampled(5_000, |n| {
            (0..n).for_each(|_| {
                black_box(std::process::id());
            });
            Ok(())
        }),
        ["stat"] => {
            let file = deep_file()?;
            let said = sampled(1_000, |n| {
                (0..n).try_for_each(|_| {
                    fs::metadata(&file).map(|found| {
                        black_box(found);
                    })
                })
            });
            cleared(&file, said)
        }
        ["read"] => {
            let mut zero = File::open("/dev/zero")?;
            let mut byte = [0];
            sampled(3_000, |n| (0..n).try_for_each(|_| zero.read_exact(&mut byte)))
        }
        ["write"] => {
            let mut null = File::options().write(true).open("/dev/null")?;
            sampled(3_000, |n| (0..n).try_for_each(|_| null.write_all(b"x")))
        }
        ["create"] => {
            let folder = folder()?;
            let said = sampled(150, |n| (0..n).try_for_each(|i| create(&folder, i)));
            cleared(&folder, said)
        }
        ["see", file] => Ok(see(Path::new(file))),
        _ => Err(std::io::Error::other("usage: probe cpu|getpid|stat|read|write|create|see FILE")),
    }
}

/// Runs `work` once to warm up and then `SAMPLES` times; the tenth percentile in nanoseconds for one operation.
fn sampled(operations: u32, mut work: impl FnMut(u32) -> std::io::Result<()>) -> std::io::Result<String> {
    work(operations)?;
    let mut took = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let begin = Instant::now();
        work(operations)?;
        took.push(begin.elapsed().as_secs_f64() * 1e9 / f64::from(operations));
    }
    took.sort_by(f64::total_cmp);
    Ok(format!("{:.3}", took.get(SAMPLES / 10).copied().unwrap_or(f64::NAN)))
}

/// Some microseconds of arithmetic that cannot be optimised away.
fn spin() {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..2_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

fn folder() -> std::io::Result<PathBuf> {
    let base = std::env::var_os("PROBE_TMP").map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = base.join(format!("probe-{}", std::process::id()));
    fs::create_dir(&folder)?;
    Ok(folder)
}

/// A file five folders below the temporary folder.
fn deep_file() -> std::io::Result<PathBuf> {
    let folder = folder()?;
    let deep = folder.join("a/b/c/d");
    fs::create_dir_all(&deep)?;
    fs::write(deep.join("file"), b"x")?;
    Ok(deep.join("file"))
}

fn create(folder: &Path, number: u32) -> std::io::Result<()> {
    let file = folder.join(format!("{number}"));
    fs::write(&file, b"some bytes")?;
    fs::remove_file(file)
}

fn cleared(path: &Path, said: std::io::Result<String>) -> std::io::Result<String> {
    let ours =
        path.ancestors().find(|p| p.file_name().is_some_and(|name| name.to_string_lossy().starts_with("probe-")));
    if let Some(ours) = ours {
        fs::remove_dir_all(ours)?;
    }
    said
}

/// What is within reach: a file that was not granted, an IP socket, and the kernel's word about seccomp.
fn see(file: &Path) -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("?".to_owned(), |value| value.trim().to_owned())
    };
    let file = if fs::read(file).is_ok() { "readable" } else { "hidden" };
    let socket = if UdpSocket::bind("0.0.0.0:0").is_ok() { "made" } else { "refused" };
    format!("file={file} socket={socket} seccomp={} nnp={}", field("Seccomp:"), field("NoNewPrivs:"))
}
