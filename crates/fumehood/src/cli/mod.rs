//! The command line: arguments and environment in, one call into the rooms below, an exit code out.

pub mod request;
pub mod world;

pub use request::{Code, Ingredient, Interpreter, Request, Script, What};
pub use world::World;
