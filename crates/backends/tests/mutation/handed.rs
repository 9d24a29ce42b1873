//! What the proof cannot know from what the start was given: paths that were found on the host, of which the start was given less,
//! and a layer of Landlock that the guest never put on as it was told of it.

use backends::{Capabilities, FoundPaths, Launch, Mutation, Protect, StartError};
use guest::config::Config;
use policy::{Control, Plan};

use super::cases::{CASES, Case};
use super::{as_root, as_user, found, go_on, launch, plan, scene, start};

/// Each list that is shorter, and each path that stands otherwise than it was found.
fn less(all: &FoundPaths) -> Vec<FoundPaths> {
    let mut less = vec![FoundPaths::default()];
    for (at, protect) in all.protect.iter().enumerate() {
        let (mut shorter, mut weaker) = (all.clone(), all.clone());
        shorter.protect.remove(at);
        less.push(shorter);
        let (Protect::Pinned(path) | Protect::ReadOnly(path) | Protect::Layered(path, _)) = protect;
        weaker.protect.splice(at..=at, [Protect::Pinned(path.clone())]);
        less.push(weaker);
    }
    for at in 0..all.covered.len() {
        let mut shorter = all.clone();
        shorter.covered.remove(at);
        less.push(shorter);
    }
    less.retain(|less| less != all);
    less
}

fn short(plan: &Plan, case: &Case, host: &Capabilities, folder: &std::path::Path) -> usize {
    let all = found(plan);
    let lists = less(&all);
    start(plan, case, host, folder, &Mutation::default()).unwrap_or_else(|e| panic!("{}: all of it: {e:?}", case.name));
    for FoundPaths { protect, covered } in &lists {
        let whole = launch(plan, case, folder, &Mutation::default()).unwrap();
        let given = Launch { protect: protect.clone(), covered: covered.clone(), ..whole };
        match go_on(plan, host, &given) {
            Err(StartError::Posture(lacks)) => assert!(
                lacks.iter().all(|why| why.contains("by mountns:ro: ") || why.contains("by mountns:cover: ")),
                "{}: {lacks:?}",
                case.name
            ),
            other => panic!("{}: of {all:?} only {protect:?} and {covered:?} were given: {other:?}", case.name),
        }
    }
    lists.len()
}

#[test]
fn a_start_that_is_given_less_than_was_found_fails() {
    let (mut protected, mut covered) = (0, 0);
    for case in CASES.iter().filter(|case| case.name.starts_with("container")) {
        let folder = tempfile::tempdir().unwrap();
        let text = scene(case, folder.path());
        let work = || {
            let host = Capabilities::probe();
            let plan = plan(case, &text, &host);
            let has = |wanted: fn(&Control) -> bool| plan.controls().any(wanted);
            let kinds = (has(|one| *one == Control::ProtectedMounts), has(|one| matches!(one, Control::Covered(_))));
            (kinds, short(&plan, case, &host, folder.path()))
        };
        let ((protects, covers), tried) = if case.root { as_root(work) } else { as_user(work) };
        protected += if protects { tried } else { 0 };
        covered += if covers { tried } else { 0 };
    }
    assert!(protected >= 5 && covered >= 3, "{protected} and {covered}");
}

/// A policy of the process tier in which nothing is left that could not be opened.
const ALL_READ: &str = "tier = \"process\"\nfs.dangerous-read = [\"/\"]";

/// The guest is told of a layer that judges signals alone.
fn signals_alone(config: &mut Config) {
    let layer = config.landlock.as_mut().unwrap();
    layer.handled_fs = 0;
    layer.rules.clear();
}

/// The guest is told of a layer whose rules let a device be called.
fn devices_too(config: &mut Config) {
    let layer = config.landlock.as_mut().unwrap();
    layer.rules.iter_mut().for_each(|rule| rule.access |= sys::landlock::fs::IOCTL_DEV);
}

fn no_layer(config: &mut Config) {
    config.landlock = None;
}

#[test]
fn where_everything_is_granted_that_a_layer_of_landlock_is_in_force_is_still_tried() {
    for root in [true, false] {
        let case = Case { name: "process, everything is granted", root, terminal: false, text: ALL_READ };
        let folder = tempfile::tempdir().unwrap();
        let text = scene(&case, folder.path());
        let work = || {
            let host = Capabilities::probe();
            let plan = plan(&case, &text, &host);
            let by = |told: Option<fn(&mut Config)>| {
                start(&plan, &case, &host, folder.path(), &Mutation { told, ..Mutation::default() })
            };
            by(None).unwrap_or_else(|e| panic!("as it was prepared: {e:?}"));
            for told in [signals_alone as fn(&mut Config), devices_too] {
                let Err(StartError::Posture(lacks)) = by(Some(told)) else { panic!("{text}: nobody missed it") };
                let missed = |why: &String| why.contains("by landlock:") && why.ends_with("seen to be refused");
                assert!(lacks.iter().any(missed), "{text}: {lacks:?}");
            }
            // The guest itself sees that its signals are not kept inside.
            let error = by(Some(no_layer)).expect_err("nobody missed the layer");
            assert!(matches!(error, StartError::Guest { .. }), "{text}: {error:?}");
        };
        if root { as_root(work) } else { as_user(work) }
    }
}
