//! The broker: a process of its own for each run, which holds the sandbox's only sockets and does outside, after it judged
//! it, what the sandbox may not do itself.
//!
//! # Promises
//! It reads hostile bytes, so it is started inside a sandbox of its own (the process tier) and believed in nothing but
//! records. Its end closes its sockets: the network inside is gone at once, and nothing is open that was not judged.
//! # Does not promise
//! That what an allowed server says is harmless.
#![forbid(unsafe_code)]

mod accept;
mod bucket;
mod control;
mod copy;
mod error;
mod flows;
mod listeners;
mod meter;
mod names;
mod observed;
mod outside;
mod proxy;
mod reach;
mod records;
mod resolver;
mod run;
mod second;
mod secrets;
mod sockets;
mod stop;
mod tls;
mod web;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use egress::judge::{NAMES_PORT, Rules};
use egress::wire::{FromBroker, ToBroker};
use policy::value::NetMode;
use tokio::task::LocalSet;

use crate::control::Line;
use crate::listeners::Listeners;
use crate::observed::Observed;
use crate::run::Run;
use crate::secrets::Secrets;
use crate::sockets::Sockets;

pub use error::BrokerError;

/// The user as whom root starts the broker.
const NOBODY: u32 = 65534;
/// Where the machine's resolvers are named.
const RESOLVERS: &str = "/etc/resolv.conf";
/// As long as programs may keep the address that they were told for a name.
pub const UNUSED: Duration = Duration::from_secs(egress::dns::TTL as u64);
/// How often counts that changed are said.
const TOLD_EVERY: Duration = Duration::from_secs(1);
/// So many times without a change, and the engine is told that it is there.
const MAX_QUIET: u32 = 2;

/// Serves one run: reads its orders from `socket`, and does what they say until they end or the other end closes.
///
/// # Errors
/// Orders that cannot be followed; they are also said on `socket` as `failed`. That the engine is gone is no error.
pub fn serve(socket: OwnedFd) -> Result<(), BrokerError> {
    serve_with(socket, Path::new(RESOLVERS), UNUSED)
}

/// [`serve`] with resolvers named by another file, where a name on whose high ports nothing was for `unused` gives its sockets to
/// the next that needs them.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(socket: OwnedFd, resolvers: &Path, unused: Duration) -> Result<(), BrokerError> {
    let socket = UnixStream::from(socket);
    // Where root starts it, it is a user that others on the machine may be too: none of them reads its memory. Refused where
    // processes are counted by looking, for which it is the caller's own user.
    if rustix::process::getuid().as_raw() == NOBODY {
        let _refused = sys::bare::set_dumpable(false);
    }
    let served = started(&socket, resolvers, unused);
    if let Err(error) = &served {
        // Who is gone needs not be told.
        drop(control::failed(&socket, error));
    }
    served
}

fn started(socket: &UnixStream, resolvers: &Path, unused: Duration) -> Result<(), BrokerError> {
    let (orders, came) = control::orders(socket)?;
    let rules = Rules::read(&orders.net).map_err(BrokerError::Rules)?;
    let bound = orders.sockets.iter().filter(|socket| !socket.kind.is_spare());
    let bound = bound.map(|socket| (socket.kind.is_udp(), socket.port)).collect();
    let Sockets { listeners: waiting, datagrams, spares } = sockets::sorted(&orders.sockets, came)?;
    let secrets = Secrets::read(&orders.secrets)?;
    let tls = orders.opening.as_ref().map(tls::Tls::new).transpose().map_err(BrokerError::Rules)?;
    let credentials = orders.proxy_login.as_ref().map(proxy::Credentials::new);
    let observed = Observed::new(orders.observe);
    drop(orders);
    let resolver = resolver::Resolver::new(PathBuf::from(resolvers));
    let listeners = Listeners::new(spares, bound, unused);
    let run = Run::new((rules, tls, secrets), observed, (resolver, credentials), listeners);
    let line = socket.try_clone().map_err(BrokerError::Runtime)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(BrokerError::Runtime)?;
    LocalSet::new().block_on(&runtime, async {
        let rules = run.rules();
        if let Some(port) = run.unheard(&rules) {
            return Err(BrokerError::Rules(format!("{port} has no socket among the orders")));
        }
        if !run.opens(&rules) {
            return Err(BrokerError::Rules("no authority came with which TLS could be opened".to_owned()));
        }
        let mut all = waiting.into_iter().map(listeners::waiting).collect::<Result<Vec<_>, _>>()?;
        all.extend(run.listen_for_ranges(&rules)?);
        run.listeners.serve(all);
        tokio::task::spawn_local(accept::all(Rc::clone(&run)));
        let slots = names::slots();
        for (port, socket) in datagrams {
            let run = Rc::clone(&run);
            let slots = std::sync::Arc::clone(&slots);
            tokio::task::spawn_local(async move {
                let (what, ended) = if port == NAMES_PORT {
                    ("look-ups", names::datagrams(Rc::clone(&run), socket, slots).await)
                } else {
                    ("datagrams", flows::serve(Rc::clone(&run), port, socket).await)
                };
                if let Err(error) = ended {
                    run.records.say(FromBroker::Failed { what: what.to_owned(), why: error.to_string() });
                }
            });
        }
        let mut line = Line::new(line)?;
        if let Some(digest) = run.secrets.digest() {
            line.say(&[FromBroker::Holds { digest }]).await?;
        }
        line.say(&[FromBroker::Ready { digest: rules.digest().to_owned(), authority: run.authority() }]).await?;
        // What its start alone needed.
        sys::memory::unmap_program();
        // That the engine is gone is the ordinary end of a run.
        drop(until_the_end(&run, &mut line).await);
        run.cut_all();
        tokio::task::yield_now().await;
        drop(line.say(&run.counts()).await);
        Ok(())
    })
}

/// Does what the engine says, and tells it what happens.
async fn until_the_end(run: &Rc<Run>, line: &mut Line) -> Result<(), BrokerError> {
    let mut tick = tokio::time::interval(TOLD_EVERY);
    let mut quiet = 0_u32;
    loop {
        let frame = tokio::select! {
            frame = line.next() => frame?,
            _ = tick.tick() => {
                let mut frames = run.counts();
                quiet = if frames.is_empty() { quiet.saturating_add(1) } else { 0 };
                if quiet >= MAX_QUIET {
                    frames.push(FromBroker::Alive {});
                    quiet = 0;
                }
                line.say(&frames).await?;
                continue;
            }
            () = run.records.more.notified() => {
                let fresh = run.records.fresh();
                line.say(&fresh).await?;
                // It is the last frame: without look-ups there is no network, and it is not to look as if there were.
                if fresh.iter().any(|frame| matches!(frame, FromBroker::Failed { .. })) {
                    return Ok(());
                }
                continue;
            }
        };
        match frame {
            None | Some(ToBroker::End {}) => return Ok(()),
            Some(ToBroker::Answer { id, allow, scope }) => run.answer(id, allow, scope),
            Some(ToBroker::Looked { id }) => run.looked(id),
            Some(ToBroker::Tell {}) => {
                let mut frames = run.counts();
                // Its last frame is said as such, above.
                let fails = frames.iter().any(|frame| matches!(frame, FromBroker::Failed { .. }));
                frames.push(FromBroker::Told {});
                line.say(&frames).await?;
                if fails {
                    return Ok(());
                }
            }
            Some(ToBroker::Rules { net }) => {
                let said = match replaced(run, &net) {
                    Ok(digest) => FromBroker::Ready { digest, authority: run.authority() },
                    Err(why) => FromBroker::Refused { why }.bounded(),
                };
                line.say(&[said]).await?;
            }
            Some(ToBroker::Orders(_)) => return Err(BrokerError::Orders("orders came a second time".to_owned())),
        }
    }
}

fn replaced(run: &Rc<Run>, net: &serde_json::Value) -> Result<String, String> {
    let rules = Rules::read(net)?;
    if let Some(port) = run.unheard(&rules) {
        return Err(format!("nobody listens inside for {port}: a new sandbox can have it"));
    }
    if !run.opens(&rules) {
        return Err("`methods` and `paths` for this host need TLS to be opened, which the run does not trust: a new sandbox does".to_owned());
    }
    // Where no byte leaves nobody asks a proxy.
    if rules.net().mode == NetMode::Allow && rules.net().proxy != run.proxy {
        return Err("`net.proxy` is another one: it is told at the start, with its login".to_owned());
    }
    // First what can fail: rules that are refused change nothing.
    let listeners = run.listen_for_ranges(&rules).map_err(|error| error.to_string())?;
    let digest = rules.digest().to_owned();
    run.replace(rules);
    run.listeners.serve(listeners);
    Ok(digest)
}
