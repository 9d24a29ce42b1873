//! Where a connection really leads: its name resolved outside, and what that gives judged anew.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use egress::denial::{Reason, To};
use egress::judge::Route;
use tokio::net::TcpStream;

use crate::resolver::Resolved;
use crate::run::{Open, Run, leads_well};
use crate::stop::ConnectionEnd;
use crate::{outside, proxy};

/// When there is no way out by then, from the name to the connection, the program is told so.
pub(crate) const WAY_OUT: Duration = Duration::from_millis(2800);

/// Where a connection is for, and what a rule says of it.
#[derive(Clone, Debug)]
pub(crate) struct Aim {
    pub(crate) to: To,
    pub(crate) port: u16,
    pub(crate) way: Route,
    /// A person allowed it; no rule names it.
    pub(crate) asked: bool,
    /// Its place among those that are open.
    pub(crate) open: Rc<Open>,
}

/// A connection to where the name (or the address) really is, judged anew.
pub(crate) async fn reached(run: &Rc<Run>, aim: &Aim) -> Result<TcpStream, ConnectionEnd> {
    let late = |_| Err(ConnectionEnd::Failed(format!("{} cannot be reached in time", aim.to)));
    let reached = tokio::time::timeout(WAY_OUT, out(run, aim)).await.unwrap_or_else(late);
    if let Err(ConnectionEnd::Failed(why)) = &reached {
        run.unreached(&aim.to, aim.port, why);
    }
    reached
}

async fn out(run: &Rc<Run>, aim: &Aim) -> Result<TcpStream, ConnectionEnd> {
    let (rules, port) = (run.rules(), aim.port);
    // One that was accepted before may have waited with its name: that is heard outside as well as a byte is.
    if run.meter.is_used() {
        return Err(ConnectionEnd::Denied(Reason::Bytes));
    }
    if let (None, To::Name(name), Some(by)) = (aim.way.pin, &aim.to, &rules.net().proxy) {
        // Where it leads is the proxy's to say: nothing of it could be judged anew when rules change.
        return proxy::connect(by, (name, port), &run.resolver, run.credentials.as_ref()).await;
    }
    let addresses = addresses(run, (&aim.to, port), aim.way.pin).await?;
    let connected = outside::connect(&addresses).await;
    let stream = connected.map_err(|error| ConnectionEnd::Failed(format!("{} cannot be reached: {error}", aim.to)))?;
    let real = stream.peer_addr()?;
    // Rules that came while it was connecting hold for it, too.
    leads_well(&run.rules(), real, aim.way.pin.is_some()).map_err(ConnectionEnd::Denied)?;
    aim.open.leads_to(real);
    Ok(stream)
}

/// Where it really is, judged.
pub(crate) async fn addresses(
    run: &Run,
    (to, port): (&To, u16),
    pin: Option<SocketAddr>,
) -> Result<Vec<SocketAddr>, ConnectionEnd> {
    match (pin, to) {
        (Some(pin), _) => {
            run.rules().not_denied(pin.ip(), pin.port()).map_err(ConnectionEnd::Denied)?;
            Ok(vec![pin])
        }
        (None, To::Address(address)) => fitting(run, &[*address], port),
        (None, To::Name(name)) => match run.resolver.find(name).await {
            Resolved::Addresses(addresses) => fitting(run, &addresses, port),
            Resolved::NoName => Err(ConnectionEnd::Failed(format!("there is no {name} any more"))),
            Resolved::Failed(why) => Err(ConnectionEnd::Failed(format!("{name} cannot be resolved: {why}"))),
            Resolved::TooMany => Err(ConnectionEnd::Denied(Reason::Rate)),
        },
    }
}

/// The addresses that a name may lead to.
fn fitting(run: &Run, addresses: &[std::net::IpAddr], port: u16) -> Result<Vec<SocketAddr>, ConnectionEnd> {
    let (rules, mut last, mut fitting) = (run.rules(), Reason::UnknownAddress, Vec::new());
    for address in addresses {
        match rules.outside(*address, port) {
            Ok(()) if outside::is_own(*address) => last = Reason::Own,
            Ok(()) => fitting.push(SocketAddr::new(*address, port)),
            Err(reason) => last = reason,
        }
    }
    if fitting.is_empty() { Err(ConnectionEnd::Denied(last)) } else { Ok(fitting) }
}
