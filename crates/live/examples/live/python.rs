//! The row of a Python that has imported pandas and waits for code.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use live::client::{Client, Incoming};
use live::create::{Created, Layer, Request, create};
use live::template::Store;
use live::words::{Ask, Report};

use crate::{Scene, Table, median, rest, state, timed};

/// It has pandas, which few hosts have.
const TEMPLATE: &str = "code-interpreter-v1";
/// So long an import of pandas takes at most.
const IMPORTS: Duration = Duration::from_millis(2500);

/// A sandbox with such a Python; where registries are not reached, why there is none.
fn sandbox(scene: &Scene) -> Result<Created, String> {
    let mut command = Command::new(&scene.program);
    command.args(["template", "build", TEMPLATE]).env("FUMEHOOD_STATE", state(scene)).env("HOME", state(scene));
    let built = command.output().unwrap();
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        return Err(format!("`{TEMPLATE}` was not built: {}", said.lines().next().unwrap_or_default()));
    }
    let template = Store::new(state(scene)).find(TEMPLATE).unwrap();
    let mut layers: Vec<Layer> = template.layers().into_iter().map(Into::into).collect();
    layers.push(Layer::Set("limits.wall=\"10m\"".to_owned()));
    let imports = Some(vec!["pandas".to_owned()]);
    let request = Request { layers, template: TEMPLATE.to_owned(), imports, ..Request::default() };
    Ok(create(&request, &scene.program, &scene.environment).unwrap().unwrap())
}

/// From the asking to the first that the code prints, and to its end, in ms.
fn served(scene: &Scene, client: &Client) -> (f64, f64) {
    let code = "import pandas; print(pandas.DataFrame({'a': [1]}).shape)".to_owned();
    let (began, mut first) = (Instant::now(), 0.0);
    let since = || began.elapsed().as_secs_f64() * 1000.0;
    scene.runtime.block_on(async {
        let mut stream = client.open(&Ask::Python { code, timeout_ms: None }).unwrap();
        while let Some(incoming) = stream.next().await {
            match incoming {
                Incoming::Out(bytes) => {
                    assert_eq!(bytes, b"(1, 1)\n");
                    first = since();
                }
                Incoming::End(end) => {
                    assert_eq!(serde_json::from_value::<Report>(end.unwrap()).unwrap().code, Some(0));
                    break;
                }
                Incoming::Event(_) | Incoming::Err(_) => {}
            }
        }
    });
    (first, since())
}

pub(crate) fn rows(scene: &Scene, table: &mut Table) {
    let (what, bar) = ("Python ready, served, pandas imported", "<= 0.2x plain `python3 -c pass`");
    let created = match sandbox(scene) {
        Ok(created) => created,
        Err(why) => return table.row(what, &format!("not measured: {why}"), bar),
    };
    let client = scene.connect(&created);
    let (mut firsts, mut ends, mut plains, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scene.rounds(20) {
        rest(IMPORTS);
        let plain = timed(|| {
            let mut command = Command::new("/usr/bin/python3");
            assert!(command.args(["-c", "pass"]).stdin(Stdio::null()).status().unwrap().success());
        });
        let (first, end) = served(scene, &client);
        ratios.push(first / plain);
        firsts.push(first);
        ends.push(end);
        plains.push(plain);
    }
    let found = format!(
        "{:.2}x ({:.2} ms to the first that its code prints, {:.2} to its end; plain {:.2} ms)",
        median(ratios),
        median(firsts),
        median(ends),
        median(plains)
    );
    table.row(what, &found, bar);
    drop(client);
    scene.end(created);
}
