//! What the engine built, by what the kernel says of its process: beside the evidence of every control, which is the native
//! backend's.

use policy::Control;
use sys::proc::Process;

use crate::native::start::Started;
use crate::native::verify::{Evident, must};

/// Everything that is otherwise than it was asked for.
pub(super) fn lacks(started: &Started, maps: &[Vec<(u32, u32)>; 2]) -> Vec<String> {
    let guest = match Process::open(started.child.guest) {
        Ok(guest) => guest,
        Err(error) => return vec![format!("the guest's process could not be looked at: {error}")],
    };
    let [users, groups] = maps;
    [("uid_map", users), ("gid_map", groups)]
        .into_iter()
        .filter_map(|(file, planned)| mapped(&guest, file, planned).err())
        .chain(unasked(started))
        .collect()
}

/// A namespace that the engine makes by itself is held only where the plan's control asked for it.
fn unasked(started: &Started) -> impl Iterator<Item = String> {
    let asked = &started.prepared.blueprint.namespaces;
    let lacks = move |control: &Control| {
        let Control::Namespace(kind) = control else { return None };
        (!asked.contains(kind)).then(|| format!("nobody asked for the namespace {kind:?}"))
    };
    started.prepared.plan.controls().filter_map(lacks)
}

/// Exactly these ids are mapped.
fn mapped(guest: &Process, file: &str, planned: &[(u32, u32)]) -> Evident {
    let text = guest.small_text(file).map_err(|error| error.to_string())?;
    let mut found: Vec<Vec<u32>> =
        text.lines().map(|line| line.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect()).collect();
    found.sort();
    let planned: Vec<Vec<u32>> = planned.iter().map(|(inside, outside)| vec![*inside, *outside, 1]).collect();
    must(found == planned, || format!("{file} is {found:?}"))
}
