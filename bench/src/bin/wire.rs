//! Both ends of the benchmark of the network: a server on the host, and the program that is run inside each contestant. Times by its
//! own clock; the start of the sandbox is not in it.
//!
//! usage: wire serve | connect ADDRESS | fetch ADDRESS MIB | many ADDRESS CONNECTIONS | hold ADDRESS CONNECTIONS
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a program, not a room of the product")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

/// Connections that are timed.
const CONNECTS: usize = 400;
/// How long many connections ask at once.
const ASKING: Duration = Duration::from_secs(2);
/// The most connections of one call.
const MAX_CONNECTIONS: usize = 1200;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let said = match words.as_slice() {
        ["serve"] => serve(),
        ["connect", to] => address(to).and_then(connect),
        ["fetch", to, mib] => address(to).and_then(|to| fetch(to, number(mib))),
        ["many", to, count] => address(to).and_then(|to| many(to, number(count))),
        ["hold", to, count] => address(to).and_then(|to| hold(to, number(count))),
        _ => Err(io::Error::other("usage: wire serve|connect|fetch|many|hold ADDRESS NUMBER")),
    };
    match said {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("wire: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or(1).clamp(1, 1 << 20)
}

fn address(text: &str) -> io::Result<SocketAddr> {
    text.to_socket_addrs()?.next().ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Says its port, and serves until nobody reads its standard input any more: `p` is answered with a byte, `d` and eight bytes with so
/// many.
fn serve() -> io::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    io::stdout().flush()?;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::Builder::new().stack_size(128 << 10).spawn(move || answered(stream)).ok();
        }
    });
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(String::new())
}

fn answered(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut word = [0];
    while stream.read(&mut word)? == 1 {
        if word == *b"p" {
            stream.write_all(&word)?;
            continue;
        }
        let mut length = [0; 8];
        stream.read_exact(&mut length)?;
        let (mut left, zeros) = (u64::from_le_bytes(length), vec![0; 1 << 18]);
        while left > 0 {
            let now = zeros.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            stream.write_all(zeros.get(..now).unwrap_or_default())?;
            left -= now as u64;
        }
    }
    Ok(())
}

fn ask(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"p")?;
    stream.read_exact(&mut [0])
}

/// Microseconds of one connection with one byte there and back: median and tenth percentile.
fn connect(to: SocketAddr) -> io::Result<String> {
    let mut took = Vec::with_capacity(CONNECTS);
    for round in 0..CONNECTS + 20 {
        let begin = Instant::now();
        let mut stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        ask(&mut stream)?;
        if round >= 20 {
            took.push(begin.elapsed().as_secs_f64() * 1e6);
        }
    }
    Ok(format!("{:.2} {:.2}", at(&mut took, 0.5), at(&mut took, 0.1)))
}

/// MiB a second.
fn fetch(to: SocketAddr, mib: usize) -> io::Result<String> {
    let mut stream = TcpStream::connect(to)?;
    let length = (mib as u64) << 20;
    let begin = Instant::now();
    stream.write_all(&[b"d".as_slice(), &length.to_le_bytes()].concat())?;
    let (mut left, mut buffer) = (length, vec![0; 1 << 18]);
    while left > 0 {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left = left.saturating_sub(read as u64);
    }
    Ok(format!("{:.1}", mib as f64 / begin.elapsed().as_secs_f64()))
}

/// Microseconds of one byte there and back while so many connections ask at once: median and 99th percentile.
fn many(to: SocketAddr, count: usize) -> io::Result<String> {
    let begin = Instant::now() + Duration::from_millis(300);
    let one = move || -> io::Result<Vec<f64>> {
        let mut stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        let mut took = Vec::new();
        thread::sleep(begin.saturating_duration_since(Instant::now()));
        while begin.elapsed() < ASKING {
            let asked = Instant::now();
            ask(&mut stream)?;
            took.push(asked.elapsed().as_secs_f64() * 1e6);
            // So that the connections, and not one processor, are what is measured.
            thread::sleep(Duration::from_millis(5));
        }
        Ok(took)
    };
    let tasks: Vec<_> = (0..count.min(MAX_CONNECTIONS)).map(|_| thread::spawn(one)).collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.join().map_err(|_lost| io::Error::other("a task was lost"))??);
    }
    Ok(format!("{:.2} {:.2}", at(&mut all, 0.5), at(&mut all, 0.99)))
}

/// Holds so many connections, says so, and ends when its standard input does.
fn hold(to: SocketAddr, count: usize) -> io::Result<String> {
    let mut held = Vec::with_capacity(count);
    for _ in 0..count.min(MAX_CONNECTIONS) {
        let mut stream = TcpStream::connect(to)?;
        ask(&mut stream)?;
        held.push(stream);
    }
    println!("held");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(format!("{}", held.len()))
}

fn at(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = values.len().saturating_sub(1);
    values.get((share * last as f64).round() as usize).copied().unwrap_or(f64::NAN)
}
