//! Many sandboxes in a list: records that are held as a supervisor would, with nothing behind them.

use std::fs::File;
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};

use crate::http::Served;
use crate::{Scene, Table, median, state, timed};

const MANY: usize = 1000;

pub(crate) fn rows(scene: &Scene, table: &mut Table) {
    let mut served = Served::new(scene, "0");
    let made = served.ask("POST", "/v1/sandboxes", br#"{"policy": "strict"}"#);
    let id = serde_json::from_slice::<Value>(&made).unwrap()["id"].as_str().unwrap().to_owned();
    let live = state(scene).join("live");
    let record: Value = serde_json::from_slice(&std::fs::read(live.join(&id).join("record.json")).unwrap()).unwrap();
    let held: Vec<File> = (0..MANY)
        .map(|number| {
            let id = format!("a{number:019}");
            let folder = live.join(&id);
            std::fs::create_dir(&folder).unwrap();
            let mut copy = record.clone();
            copy["info"]["id"] = json!(id);
            std::fs::write(folder.join("record.json"), copy.to_string()).unwrap();
            let lock = File::create(folder.join("lock")).unwrap();
            flock(&lock, FlockOperation::LockExclusive).unwrap();
            lock
        })
        .collect();
    let listed = |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap();
    assert!(listed(served.ask("GET", "/v1/sandboxes", b""))["sandboxes"].as_array().unwrap().len() > MANY);
    let api = median((0..10).map(|_| timed(|| drop(served.ask("GET", "/v1/sandboxes", b"")))).collect());
    let ps = median(
        (0..10)
            .map(|_| {
                timed(|| {
                    let mut command = Command::new(&scene.program);
                    command.args(["ps", "--json"]).env("FUMEHOOD_STATE", state(scene)).stdout(Stdio::null());
                    assert!(command.status().unwrap().success());
                })
            })
            .collect(),
    );
    let create = timed(|| {
        let made = served.ask("POST", "/v1/sandboxes", br#"{"policy": "strict"}"#);
        let id = listed(made)["id"].as_str().unwrap().to_owned();
        served.ask("DELETE", &format!("/v1/sandboxes/{id}"), b"");
    });
    drop(held);
    served.ask("DELETE", &format!("/v1/sandboxes/{id}"), b"");
    for number in 0..MANY {
        drop(std::fs::remove_dir_all(live.join(format!("a{number:019}"))));
    }
    let found = format!("{api:.0} ms over HTTP, {ps:.0} ms by `ps` (a create and a kill beside them {create:.0} ms)");
    table.row(&format!("list of {MANY} sandboxes"), &found, "<= 100 ms");
}
