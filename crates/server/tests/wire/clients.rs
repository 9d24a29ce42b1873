//! A server for released clients to be tried by hand, e.g. by `sdk/e2b/cases.py`.

use std::time::Duration;

use crate::stage::stage;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "serves until target/tmp/e2b is removed"]
async fn serve_for_clients() {
    let stage = stage().await;
    let key = stage.keys.add("by-hand", None, None).unwrap();
    let other = stage.keys.add("other", None, None).unwrap();
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("e2b");
    std::fs::write(&path, format!("{}\n{key}\n{other}\n", stage.base)).unwrap();
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if !path.exists() {
            return;
        }
    }
}
