//! Everything that people read: faults, plans, refusals, reports and tables as text for a terminal.
//!
//! Functions here are pure (value in, `String` out) but for [`Console`], the only place that writes.
//! Whatever came from outside passes `fault::show_*` on its way in, so that no text can move a cursor or hide another.

mod console;
mod fault;
mod paint;
mod plan;
mod quantity;
mod refusal;
mod report;
mod table;
mod usage;

pub use console::Console;
pub use fault::{FAILED, Failure, REFUSED, fault};
pub use paint::{Palette, Role, When};
pub use plan::{abbreviated, plan};
pub use quantity::{count, seconds};
pub use refusal::refusal;
pub use report::{Detail, View, report};
pub use sandbox::quantity::bytes;
pub use table::{Table, hang};
pub use usage::{closest, usage};
