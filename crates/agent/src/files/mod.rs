//! Files inside, with the rights of the sandbox's user.

pub(crate) mod entry;
pub(crate) mod failure;
pub(crate) mod names;
pub(crate) mod place;
