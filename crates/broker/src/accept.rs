//! One connection of a program inside: whom it is for, whether it may, and then its bytes.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egress::denial::{Reason, To};
use egress::hello::{self, First, first};
use egress::judge::{Connect, NAMES_PORT, Reading, Route};
use tokio::net::TcpStream;

use crate::copy;
use crate::listeners::Listener;
use crate::meter;
use crate::reach::{Aim, reached};
use crate::run::{ApprovalRequest, OpenSlot, Run};
use crate::stop::{ConnectionEnd, orderly, reset};
use crate::{names, second, web};

/// How long nothing is accepted after it failed for want of descriptors.
const PAUSE: Duration = Duration::from_millis(20);
/// Accepts on every listener of the run, on those that come later as well.
pub(crate) async fn all(run: Rc<Run>) {
    loop {
        for one in run.listeners.unserved().await {
            tokio::task::spawn_local(listener(Rc::clone(&run), one));
        }
    }
}

/// Accepts on one socket until it is closed.
async fn listener(run: Rc<Run>, listener: Listener) {
    loop {
        let next = tokio::select! {
            biased;
            () = listener.closed.notified() => return,
            next = listener.socket.accept() => next,
        };
        match next {
            Ok((stream, _)) => {
                tokio::task::spawn_local(accepted(Rc::clone(&run), stream));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

async fn accepted(run: Rc<Run>, stream: TcpStream) {
    let Ok(asked) = stream.local_addr() else { return };
    let address = asked.ip().to_canonical();
    // The sandbox's own loopback is its own: nobody listens there.
    if address.is_loopback() {
        reset(&stream);
        return;
    }
    if asked.port() == NAMES_PORT {
        // Closed where there are too many: the client comes again.
        if let Ok(_slot) = run.lookup_connections.try_acquire() {
            names::connection(&run, stream).await;
        }
        return;
    }
    let (stream, to, port) = (Arc::new(stream), run.meant(address), asked.port());
    let place = match run.place(&to, port) {
        Ok(place) => place,
        Err(reason) => {
            run.denied(&reason, &to, port);
            reset(&stream);
            return;
        }
    };
    // The answers to small requests are not to wait for more.
    drop(stream.set_nodelay(true));
    reset(&stream);
    let ended = tokio::select! {
        biased;
        () = place.open.cut.notified() => Err(ConnectionEnd::Broken),
        ended = judged(&run, &stream, &place, (&to, port)) => ended,
    };
    match ended {
        Ok(()) => orderly(&stream),
        Err(ConnectionEnd::Denied(reason)) => {
            if reason == Reason::UnknownAddress {
                run.whose(&stream).await;
            }
            run.denied(&reason, &to, port);
        }
        Err(ConnectionEnd::Failed(_) | ConnectionEnd::Broken) => {}
    }
}

async fn judged(
    run: &Rc<Run>,
    stream: &Arc<TcpStream>,
    place: &OpenSlot,
    (to, port): (&To, u16),
) -> Result<(), ConnectionEnd> {
    let mut judged = run.connect(&run.rules(), to, port);
    if judged == Connect::Ask {
        if !run.ask(&ApprovalRequest { host: to.to_string(), port, request: None }).await {
            return Err(ConnectionEnd::Denied(Reason::Asked));
        }
        // Rules that came meanwhile may say more of it than that somebody is asked.
        judged = run.connect(&run.rules(), to, port);
    }
    let (way, asked) = match judged {
        Connect::Way(way) => (way, false),
        Connect::Denied(reason) => return Err(ConnectionEnd::Denied(reason)),
        Connect::Ask => {
            let reading = if matches!(port, 80 | 443) { Reading::Names } else { Reading::Nothing };
            (run.read_for_secrets(Route { pin: None, reading }, to, port), true)
        }
    };
    place.open.judged(way, asked);
    let aim = Aim { to: to.clone(), port, way, asked, open: Rc::clone(&place.open) };
    match (way.reading, to) {
        (Reading::Nothing, _) | (_, To::Address(_)) => passed(run, stream, &aim, None).await,
        (Reading::Names | Reading::Requests, To::Name(name)) => named(run, stream, &aim, name).await,
    }
}

/// Reads the first bytes, and judges by them.
async fn named(run: &Rc<Run>, stream: &Arc<TcpStream>, aim: &Aim, name: &str) -> Result<(), ConnectionEnd> {
    let mut bytes = Vec::new();
    loop {
        match first(&bytes) {
            First::More => {}
            First::Malformed(why) => return Err(ConnectionEnd::Denied(Reason::Malformed(why.to_owned()))),
            First::NotTls => return web::serve(run, stream, aim, bytes).await,
            First::Hello(hello) => {
                run.rules().hello(name, &hello).map_err(ConnectionEnd::Denied)?;
                if aim.way.reading == Reading::Requests {
                    return web::open(run, stream, (aim, name), bytes).await;
                }
                return passed(run, stream, aim, Some((name, &bytes))).await;
            }
        }
        if !more(stream, &mut bytes).await? {
            return Ok(());
        }
    }
}

/// Adds what comes next; whether there was anything.
async fn more(stream: &TcpStream, bytes: &mut Vec<u8>) -> Result<bool, ConnectionEnd> {
    loop {
        stream.readable().await?;
        match stream.try_read_buf(bytes) {
            Ok(count) => return Ok(count > 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Connects outside, says what was read already (a client hello that asks for this name, and what came behind it), and passes
/// bytes.
async fn passed(
    run: &Rc<Run>,
    stream: &TcpStream,
    aim: &Aim,
    read: Option<(&str, &[u8])>,
) -> Result<(), ConnectionEnd> {
    let server = Server(run, reached(run, aim).await?);
    let server = &server.1;
    run.passed();
    run.seen(&aim.to, aim.port, None);
    let through = async {
        if let Some((name, already)) = read {
            run.meter.wait().await;
            if run.meter.room(already.len()) < already.len() {
                return Err(ConnectionEnd::Denied(Reason::Bytes));
            }
            run.meter.count(meter::Direction::Out, already.len());
            let (hello, behind) = already.split_at_checked(hello::length(already)).unwrap_or_default();
            copy::all(server, hello).await?;
            second::judged(run, name, (stream, behind), server).await?;
        }
        Ok(copy::both_ways(stream, server, &run.meter).await?)
    };
    through.await?;
    orderly(server);
    Ok(())
}

/// A connection to a server. At the end of the run what was said to it still goes, as the kernel does for a program that ends.
struct Server<'a>(&'a Run, TcpStream);

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if self.0.has_ended.get() {
            orderly(&self.1);
        }
    }
}
