//! `fumehood __broker`: this executable as the broker of a run, which the engine starts in a sandbox of its own.

use std::os::fd::AsFd as _;

use sandbox::fault::Fault;

use super::args::Positionals;
use super::spec::{Call, Spec};
use crate::ui::Failure;

/// `fumehood __broker`
pub(super) const SPEC: Spec = Spec {
    path: &[sandbox::run::BROKER_WORD],
    about: "Part of run",
    usage: "",
    more: "",
    tables: &[],
    words: Positionals::EndFlags,
    hidden: true,
    run: broker,
};

/// The orders come by the standard input, which is a socket to the engine.
fn broker(_call: &mut Call<'_>) -> Result<u8, Failure> {
    let failed = |why: String| {
        Failure::own(Fault {
            id: "net/broker",
            what: "the broker of the network cannot go on".to_owned(),
            place: "`fumehood __broker`".to_owned(),
            why,
            fix: "it is started by `fumehood run`, and by nobody else".to_owned(),
        })
    };
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| failed(error.to_string()))?;
    ::broker::serve(socket).map(|()| 0).map_err(|error| failed(error.to_string()))
}
