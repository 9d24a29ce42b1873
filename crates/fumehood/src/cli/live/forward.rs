//! `fumehood forward`: a port inside, on loopback here.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::ffi::OsStrExt as _;

use agent::words::Request;
use live::client::{Client, Incoming};
use live::words::{Ask, Info, NO_PORTS};
use sandbox::fault::{Fault, show_bytes, show_text};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::args::{Positionals, usage};
use super::super::spec::{Call, Spec};
use super::{connected, failed, home, missing, sandbox_argument, wait_for};
use crate::ui::Failure;

pub(crate) const SPEC: Spec = Spec {
    path: &["forward"],
    about: "Reach a port of a live sandbox on this machine's loopback",
    usage: "ID|NAME PORT[:LOCAL]",
    more: "Stays in the foreground; prints where it listens. LOCAL 0 takes a free port. Ends with Ctrl-C, and with the sandbox: \
           exit code 0.",
    tables: &[],
    words: Positionals::Mixed(2),
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (home, word) = (home(call)?, sandbox_argument(call, "forward ID PORT")?);
    let ports = call.parsed.words.get(1).ok_or_else(|| missing("a port", "forward ID PORT[:LOCAL]"))?;
    let shown = show_bytes(ports.as_bytes());
    let (inside, local) = shown.split_once(':').unwrap_or((&shown, &shown));
    let (Ok(inside), Ok(local)) = (inside.parse::<u16>(), local.parse::<u16>()) else {
        let why = "a port is a number up to 65535".to_owned();
        let fix = "`fumehood forward ID 8000`, or `8000:9000`".to_owned();
        return Err(Failure::own(usage("usage/bad-value", format!("`{shown}` is no port"), why, fix)));
    };
    wait_for(async {
        let (info, client) = connected(&home, &word).await?;
        if !info.has_ports() {
            return Err(none(&info, NO_PORTS, "another tier, e.g. `fumehood create --tier container`"));
        }
        // One that tells no rules is asked by the connection itself.
        if client.call::<Value>(&Ask::Rules {}).await.is_ok_and(|rules| rules.get("mode") == Some(&json!("none"))) {
            let why = "its policy has no network, not even within the sandbox (`net.mode = \"none\"`)";
            return Err(none(&info, why, "`fumehood create --net loopback`"));
        }
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, local));
        let listener = TcpListener::bind(at).await.map_err(|error| failed(&format!("{at}: {error}")))?;
        let at = listener.local_addr().map_err(|error| failed(&error))?;
        call.console.data(format!("{at}\n").as_bytes())?;
        let mut ended = client.open(&Ask::Wait {}).map_err(|error| failed(&error))?;
        loop {
            tokio::select! {
                arrived = listener.accept() => {
                    if let Ok((socket, _)) = arrived {
                        let (client, console) = (client.clone(), call.console);
                        tokio::spawn(async move {
                            if let Err(why) = carry(client, socket, inside).await {
                                console.eprint(&format!("fumehood: port {inside}: {}\n", show_text(&why)));
                            }
                        });
                    }
                }
                _ = ended.result::<Info>() => return Ok(0),
                _ = tokio::signal::ctrl_c() => return Ok(0),
            }
        }
    })
}

fn none(info: &Info, why: &str, fix: &str) -> Failure {
    Failure::own(Fault {
        id: "live/unsupported",
        what: "ports cannot be reached".to_owned(),
        place: format!("sandbox {}", info.id),
        why: why.to_owned(),
        fix: fix.to_owned(),
    })
}

/// One connection, in both directions.
async fn carry(client: Client, socket: TcpStream, port: u16) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let mut stream = client.open(&Request::Port { port }).map_err(|error| say(&error))?;
    stream.reply().await.map_err(|error| say(&error))?;
    let (mut from, mut to) = socket.into_split();
    let sender = stream.sender();
    let inwards = tokio::spawn(async move {
        let mut room = vec![0; 32 * 1024];
        while let Ok(count @ 1..) = from.read(&mut room).await {
            if sender.send(room.get(..count).unwrap_or_default()).await.is_err() {
                return;
            }
        }
        // A connection that is gone takes no end any more.
        if sender.eof().is_err() {}
    });
    while let Some(incoming) = stream.next_before_eof().await {
        match incoming {
            Incoming::Out(bytes) => to.write_all(&bytes).await.map_err(|error| say(&error))?,
            Incoming::Err(_) | Incoming::Event(_) => {}
            Incoming::End(_) => break,
        }
    }
    // What the program inside sends is over; what it is sent may go on. One that is gone here takes no end any more.
    if to.shutdown().await.is_ok() {
        while stream.next().await.is_some() {}
    }
    inwards.abort();
    Ok(())
}
