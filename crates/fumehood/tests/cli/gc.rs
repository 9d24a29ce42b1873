//! `fumehood gc`

use std::path::PathBuf;
use std::process::Stdio;

use crate::Fixture;
use crate::pool::until;

#[test]
fn a_clean_house_has_nothing_to_remove() {
    let fixture = Fixture::new();
    let said = fixture.run(&["gc"]);
    // What others left on this host may be named before it.
    assert!(said.code == 0 && said.out.contains("0 things removed, 0 stay, 0 runs live\n"), "{said:?}");
    let json = fixture.run(&["gc", "--json"]).json();
    assert_eq!((json["removed"].as_array().unwrap().len(), json["live"].as_u64()), (0, Some(0)));
}

#[test]
fn what_is_not_ours_stays_and_is_told() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["gc"]).code, 0);
    std::fs::write(fixture.state().join("runs/no\u{1b}tes.txt"), "").unwrap();
    let said = fixture.run(&["gc"]);
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    assert!(said.out.contains(r"no\u{1b}tes.txt: it is no journal of"), "{}", said.out);
    assert!(!said.out.contains('\u{1b}'));
}

#[test]
fn the_root_of_a_machine_goes_with_a_measurement_that_was_killed() {
    let fixture = Fixture::new();
    let mut measuring = fixture.command(&["bench", "tiers", "--rounds", "1"]);
    let mut measuring = measuring.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // Written down before it is made, and made before the first round.
    let noted = || -> Option<PathBuf> {
        let journals = std::fs::read_dir(fixture.state().join("runs")).ok()?;
        let texts = journals.filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        let found: Vec<String> = texts.collect();
        let at =
            found.iter().find_map(|text| text.split('"').find(|word| word.starts_with("/tmp/fumehood-machine-")))?;
        Some(PathBuf::from(at)).filter(|root| root.join("fumehood").exists())
    };
    let there = until(|| noted().is_some());
    let root = noted();
    measuring.kill().unwrap();
    measuring.wait().unwrap();
    let root = root.filter(|_| there).unwrap();
    assert!(root.exists(), "whoever is killed removes nothing");
    let removed = || fixture.run(&["gc"]).code == 0 && !root.exists();
    assert!(until(removed), "{} stays", root.display());
}

#[test]
fn groups_of_dead_runs_of_another_state_folder_are_named_and_left_alone() {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap();
    let pids = own.lines().find_map(|line| line.split_once(":pids:").map(|(_, own)| own.to_owned()));
    // A group of our own to be in: others may run, and leave, what they like beside it.
    let fixture = Fixture::new();
    let unique = fixture.path("");
    let base = std::path::Path::new("/sys/fs/cgroup/pids")
        .join(pids.unwrap_or_default().trim_start_matches('/'))
        .join(unique.file_name().unwrap());
    let (dead, busy, young) = ("r-20200101-000000-00d0d0", "r-20200101-000000-00b5b5", "r-29990101-000000-00a0a0");
    let group = |name: &str| base.join("fumehood").join(name);
    if [dead, busy, young].iter().any(|name| std::fs::create_dir_all(group(name)).is_err()) {
        eprintln!("skip: no control group to write in");
        return;
    }
    let mut sleeper = crate::script("exec sleep 60", &fixture).spawn().unwrap();
    std::fs::write(group(busy).join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    let gc = |flags: &str| {
        let inside = format!("echo 0 > {}/cgroup.procs; exec \"$1\" gc {flags}", base.display());
        fixture.said(&crate::script(&inside, &fixture).output().unwrap())
    };
    let (said, json) = (gc(""), gc("--json").json());
    let left = [dead, busy, young].map(|name| group(name).exists());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    // A group is busy until the kernel has forgotten its last process.
    let busy_still = |e: std::io::Error| e.kind() == std::io::ErrorKind::ResourceBusy;
    for folder in [group(dead), group(busy), group(young), base.join("fumehood"), base.clone()] {
        while std::fs::remove_dir(&folder).is_err_and(busy_still) {}
    }
    assert_eq!(left, [true; 3], "nothing of another state folder is removed");
    assert!(said.code == 0 && said.out.contains(dead) && said.out.contains("rmdir PATH"), "{said:?}");
    assert!(!said.out.contains(busy) && !said.out.contains(young), "{said:?}");
    // Of other hierarchies, in which this process still is, others may have left something.
    let paths = json["elsewhere"].as_array().unwrap().iter().map(|stray| stray["path"].as_str().unwrap());
    let ours: Vec<_> = paths.filter(|path| std::path::Path::new(path).starts_with(&base)).collect();
    assert_eq!(ours, [group(dead).to_str().unwrap()]);
}
