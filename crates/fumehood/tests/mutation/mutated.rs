//! The product with something left out of its run, which `$MUTATION` names: the number of a control of the plan, its name as
//! `variants.rs` has it, or a word. It says what that is. A program of the tests alone: the product has no way to be asked for it.
#![forbid(unsafe_code)]

#[path = "../../../backends/tests/mutation/variants.rs"]
#[expect(dead_code, reason = "the tests use all of it")]
mod variants;

use std::io::Write as _;
use std::process::ExitCode;

use policy::{Control, Plan};
use sandbox::Options;

fn main() -> ExitCode {
    fumehood::mutation::set(change);
    ExitCode::from(fumehood::cli::main())
}

fn change(plan: &Plan, options: &mut Options) {
    #[expect(clippy::disallowed_methods, reason = "a test says it")]
    let wanted = std::env::var("MUTATION").unwrap_or_default();
    let mut all: Vec<&Control> = Vec::new();
    plan.controls().for_each(|control| all.extend((!all.contains(&control)).then_some(control)));
    let mut left = wanted.clone();
    match wanted.as_str() {
        "nothing protected" => options.launched = Some(|launch| launch.protect.clear()),
        "less protected" => options.launched = Some(|launch| drop(launch.protect.pop())),
        "nothing covered" => options.launched = Some(|launch| launch.covered.clear()),
        "less covered" => options.launched = Some(|launch| drop(launch.covered.pop())),
        "signals alone" => {
            options.launched = Some(|launch| {
                launch.mutation.told = Some(|config| {
                    if let Some(layer) = &mut config.landlock {
                        layer.handled_fs = 0;
                        layer.rules.clear();
                    }
                });
            });
        }
        number => {
            let control = match number.parse::<usize>() {
                Ok(number) => all.get(number),
                Err(_) => all.iter().find(|control| variants::of(control) == number),
            };
            if let Some(control) = control {
                // Two clauses may ask for the same limit of a file: it is missing only where both are left out.
                let size = |control: &Control| control.name() == "rlimit:fsize";
                let same = |other: &&&Control| *other == control || size(other) && size(control);
                options.without = all.iter().filter(same).map(|control| (*control).clone()).collect();
                left = variants::of(control);
            }
        }
    }
    drop(writeln!(std::io::stderr(), "mutation: {} controls, without: {left}", all.len()));
}
