//! Bringing an image from a registry of this machine and unpacking it, beside skopeo and umoci; and asking for it again.
//! Needs Debian's `docker-registry`, `skopeo` and `umoci`; the order changes from round to round.
//!
//! usage: images FUMEHOOD [ROUNDS [MEBIBYTES]]
#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a program, not a room of the product")]

use std::fs;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Bytes of one file of the image.
const FILE: usize = 64 << 10;

fn main() -> ExitCode {
    match measure(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("images: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Ends with the program.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let ended = self.0.kill().and_then(|()| self.0.wait());
        drop(ended);
    }
}

fn measure(words: &[String]) -> Result<()> {
    let fumehood = words.first().ok_or("usage: images FUMEHOOD [ROUNDS [MEBIBYTES]]")?;
    let fumehood = fs::canonicalize(fumehood)?;
    let rounds: usize = words.get(1).map_or(Ok(5), |text| text.parse())?;
    let size: usize = words.get(2).map_or(Ok(300), |text| text.parse())?;
    let place = std::env::temp_dir().join(format!("fumehood-images-{}", std::process::id()));
    fs::create_dir(&place)?;
    let done = compared(&fumehood, &place, rounds, size << 20);
    fs::remove_dir_all(&place)?;
    done
}

fn compared(fumehood: &Path, place: &Path, rounds: usize, size: usize) -> Result<()> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let _served = serve(place, port)?;
    let image = format!("127.0.0.1:{port}/bench:1");
    push(place, &image, size)?;
    let (mut ours, mut theirs, mut again) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        for turn in 0..2 {
            let here = place.join(format!("round-{round}-{turn}"));
            fs::create_dir(&here)?;
            if (round + turn) % 2 == 0 {
                let pull = || {
                    let mut command = Command::new(fumehood);
                    command.args(["image", "pull", "--plain-http", &image]).env("FUMEHOOD_STATE", here.join("state"));
                    timed(&mut command)
                };
                ours.push(pull()?);
                again.push(pull()?);
            } else {
                let layout = format!("oci:{}:bench", here.join("layout").display());
                let mut copy = Command::new("skopeo");
                copy.args([
                    "--insecure-policy",
                    "copy",
                    "--src-tls-verify=false",
                    &format!("docker://{image}"),
                    &layout,
                ]);
                let mut unpack = Command::new("umoci");
                let from = format!("{}:bench", here.join("layout").display());
                unpack.args(["unpack", "--rootless", "--image", &from]).arg(here.join("bundle"));
                theirs.push(timed(&mut copy)? + timed(&mut unpack)?);
            }
            fs::remove_dir_all(&here)?;
        }
    }
    let (ours, theirs, again) = (median(ours), median(theirs), median(again));
    println!("{} MiB, {rounds} rounds, medians", size >> 20);
    println!("pull and unpack   {:>8.1} ms", millis(ours));
    println!("skopeo and umoci  {:>8.1} ms", millis(theirs));
    println!("ratio             {:>8.2}", ours.as_secs_f64() / theirs.as_secs_f64());
    println!("pull again        {:>8.1} ms", millis(again));
    Ok(())
}

fn serve(place: &Path, port: u16) -> Result<Served> {
    let config = place.join("registry.yml");
    let data = place.join("registry");
    let text = format!(
        "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n",
        data.display()
    );
    fs::write(&config, text)?;
    let mut command = Command::new("docker-registry");
    command.arg("serve").arg(&config).stdout(Stdio::null()).stderr(Stdio::null());
    let served = Served(command.spawn()?);
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err("the registry does not answer".into());
        }
    }
    Ok(served)
}

/// An image of files half of which cannot be packed, as in images of programs.
fn push(place: &Path, image: &str, size: usize) -> Result<()> {
    let (layout, tree) = (place.join("made"), place.join("tree"));
    fs::create_dir(&tree)?;
    let mut state = 1_u64;
    let mut bytes = vec![0; FILE];
    for number in 0..size / FILE {
        for (at, byte) in bytes.iter_mut().enumerate().take(FILE / 2) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = state.to_be_bytes()[at % 2];
        }
        let folder = tree.join((number / 64).to_string());
        fs::create_dir_all(&folder)?;
        fs::File::create(folder.join(number.to_string()))?.write_all(&bytes)?;
    }
    let at = layout.display().to_string();
    let tagged = format!("{at}:bench");
    let umoci = |words: &[&str]| timed(Command::new("umoci").args(words));
    umoci(&["init", "--layout", &at])?;
    umoci(&["new", "--image", &tagged])?;
    umoci(&["insert", "--rootless", "--image", &tagged, &tree.display().to_string(), "/data"])?;
    let mut copy = Command::new("skopeo");
    copy.args(["--insecure-policy", "copy", "--dest-tls-verify=false"]);
    timed(copy.arg(format!("oci:{tagged}")).arg(format!("docker://{image}")))?;
    let gone: [PathBuf; 2] = [layout, tree];
    gone.iter().try_for_each(fs::remove_dir_all)?;
    Ok(())
}

fn timed(command: &mut Command) -> Result<Duration> {
    let begun = Instant::now();
    let done = command.stdout(Stdio::null()).output()?;
    let took = begun.elapsed();
    if done.status.success() {
        return Ok(took);
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr)).into())
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
