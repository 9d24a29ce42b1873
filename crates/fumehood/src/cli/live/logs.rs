//! `fumehood logs`: what a program of a live sandbox has printed.

use agent::words::{Code, Failure as Said};
use live::client::{Client, Error, Incoming};
use live::words::{Ask, Programs, Which};
use tokio::io::AsyncWriteExt as _;

use super::super::args::{Flag, Positionals, To};
use super::super::spec::{Call, Spec};
use super::{answered, connected, home, sandbox_argument, text, wait_for};
use crate::ui::Failure;

const FLAGS: &[Flag] = &[Flag::new("follow", None, To::Ours, "Go on until the program ends").short(b'f')];

pub(crate) const SPEC: Spec = Spec {
    path: &["logs"],
    about: "Show what a program of a live sandbox has printed",
    usage: "[-f] ID|NAME [PROCESS]",
    more: "PROCESS is the word that `exec -d` printed, or a pid inside; without it the newest program is meant. The newest \
           MiB of stdout\nand of stderr is kept while the sandbox lives, of those that ended for the newest 64.\n\
           Exit code 0, or 125 if it is not known.",
    tables: &[FLAGS],
    words: Positionals::Mixed(2),
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let (home, word) = (home(call)?, sandbox_argument(call, "logs ID [PROCESS]")?);
    let named = call.parsed.words.get(1).map(|word| text(word)).transpose()?;
    let follow = call.parsed.has("follow");
    wait_for(async {
        let (info, client) = connected(&home, &word).await?;
        let shown = show(&client, named, follow).await;
        shown.map(|()| 0).map_err(|error| answered(error, &info.id))
    })
}

async fn show(client: &Client, named: Option<String>, follow: bool) -> Result<(), Error> {
    let which = match named {
        Some(word) => word.parse().map_or(Which::Id(word), Which::Pid),
        None => {
            let programs: Programs = client.call(&Ask::Programs {}).await?;
            let newest = programs.programs.last().map(|program| Which::Id(program.id.clone()));
            let none = || Said::new(Code::NotFound, "no program was started in it");
            newest.ok_or_else(|| Error::Failed(none()))?
        }
    };
    let mut stream = client.open(&Ask::Logs { which, follow })?;
    let (mut out, mut err) = (tokio::io::stdout(), tokio::io::stderr());
    while let Some(incoming) = stream.next().await {
        let written = match incoming {
            Incoming::Out(bytes) => out.write_all(&bytes).await.and(out.flush().await),
            Incoming::Err(bytes) => err.write_all(&bytes).await.and(err.flush().await),
            Incoming::Event(_) => Ok(()),
            Incoming::End(ended) => return ended.map(drop).map_err(Error::Failed),
        };
        if written.is_err() {
            // Whoever read it has seen what he wanted.
            return Ok(());
        }
    }
    Ok(())
}
