//! `fumehood __language`: this executable as an interpreter of the language tier, which the engine starts in a sandbox.

use sandbox::fault::Fault;

use super::args::Positionals;
use super::spec::{Call, Spec};
use crate::ui::Failure;

/// `fumehood __language`
pub(super) const SPEC: Spec = Spec {
    path: &[backends::LANGUAGE_WORD],
    about: "Part of run",
    usage: "",
    more: "",
    tables: &[],
    words: Positionals::EndFlags,
    hidden: true,
    run: language,
};

/// Its limits, the program's name and the program's arguments; the program comes by the standard input.
fn language(call: &mut Call<'_>) -> Result<u8, Failure> {
    let failed = |why: String| {
        Failure::own(Fault {
            id: "language/interpreter",
            what: "the interpreter cannot go on".to_owned(),
            place: "`fumehood __language`".to_owned(),
            why,
            fix: "it is started by `fumehood run --tier language`, and by nobody else".to_owned(),
        })
    };
    let words = std::mem::take(&mut call.parsed.words);
    let words: Result<Vec<String>, _> = words.into_iter().map(std::ffi::OsString::into_string).collect();
    let mut words = words.map_err(|_bytes| failed("an argument is no text".to_owned()))?.into_iter();
    let (Some(limits), Some(name)) = (words.next(), words.next()) else {
        return Err(failed("it was told nothing".to_owned()));
    };
    match ::language::serve(&limits, &name, words.collect()) {
        Ok(never) => match never {},
        Err(why) => Err(failed(why)),
    }
}
