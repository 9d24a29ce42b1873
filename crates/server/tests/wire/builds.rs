//! Templates that clients build: whose they are, what may be sent for them, and what is refused before anything is done.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use server::answer::Problem;
use server::backend::{Image, Images, Recipe};
use server::keys::Rights;

use crate::stage::{Caller, HttpReply, Stage, stage, stage_with_images};

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

async fn two() -> (Stage, Caller, Caller) {
    let stage = stage().await;
    let (one, other) = (Caller::new(&stage, "one"), Caller::new(&stage, "other"));
    (stage, one, other)
}

/// Ids of the template and of its build.
async fn wished(caller: &Caller, name: &str) -> (String, String) {
    let answer = caller.json("POST", "/v3/templates", json!({ "name": name })).await;
    assert_eq!(answer.status, 202, "{}", answer.json());
    let text = |field: &str| answer.json()[field].as_str().unwrap().to_owned();
    (text("templateID"), text("buildID"))
}

/// Where an upload is to be sent, below the server's address.
async fn place(caller: &Caller, id: &str, hash: &str) -> String {
    let answer = caller.json("GET", &format!("/templates/{id}/files/{hash}"), Value::Null).await;
    assert_eq!((answer.status, &answer.json()["present"]), (201, &json!(false)), "{}", answer.json());
    answer.json()["url"].as_str().unwrap().strip_prefix(&caller.base).unwrap().to_owned()
}

fn nobody(caller: &Caller) -> Caller {
    Caller { base: caller.base.clone(), headers: Vec::new() }
}

fn clause(answer: &HttpReply) -> String {
    answer.json()["fumehood"]["clause"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_is_its_keys_alone() {
    let (_stage, one, other) = two().await;
    let (id, build) = wished(&one, "app:v1").await;
    let again = wished(&one, "app").await;
    assert!(again.0 == id && again.1 != build);
    // The same name of another key is another template, and nothing of the first is seen or changed by it.
    assert_ne!(wished(&other, "app").await.0, id);
    for (method, path) in [
        ("GET", format!("/templates/{id}")),
        ("GET", format!("/templates/{id}/tags")),
        ("GET", format!("/templates/{id}/files/{HASH}")),
        ("GET", format!("/templates/{id}/builds/{build}/status")),
        ("POST", format!("/v2/templates/{id}/builds/{build}")),
        ("DELETE", format!("/templates/{id}")),
    ] {
        assert_eq!(other.json(method, &path, Value::Null).await.status, 404, "{method} {path}");
    }
    let status = one.json("GET", &format!("/templates/{id}/builds/{build}/status"), Value::Null).await;
    assert_eq!((status.status, &status.json()["status"]), (200, &json!("waiting")));
    assert_eq!(one.json("GET", "/templates/aliases/app", Value::Null).await.json()["templateID"], json!(id));
    assert_eq!(one.json("GET", "/templates/aliases/app:v1", Value::Null).await.status, 404, "it is not ready");
    let listed =
        |answer: &HttpReply| answer.json().as_array().unwrap().iter().any(|one| one["templateID"] == json!(id));
    assert!(listed(&one.json("GET", "/templates", Value::Null).await));
    assert!(!listed(&other.json("GET", "/templates", Value::Null).await));
    let made = one.json("POST", "/v2/sandboxes", json!({ "templateID": "app" })).await;
    assert_eq!((made.status, clause(&made)), (400, "templateID".to_owned()), "{}", made.json());
    assert_eq!(one.json("DELETE", &format!("/templates/{id}"), Value::Null).await.status, 204);
    assert_eq!(one.json("GET", &format!("/templates/{id}"), Value::Null).await.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_wants_an_address_that_was_signed_for_it() {
    let (stage, one, other) = two().await;
    let (id, _) = wished(&one, "app").await;
    let good = place(&one, &id, HASH).await;
    let anybody = nobody(&one);
    let another = wished(&other, "app").await.0;
    let later = |url: &str| url.replacen("until=", "until=9", 1);
    for (bad, what) in [
        (good.replace(&id, &another), "another template"),
        (good.replace(HASH, &"b".repeat(64)), "another hash"),
        (later(&good), "a later end"),
        (good.split('&').next().unwrap().to_owned(), "no signature"),
        (good.replace("signature=", "signature=0"), "another signature"),
        (format!("/templates/uploads/..%2F..%2Fx/{HASH}?until=9999999999&signature=0"), "a path"),
    ] {
        let answer = anybody.send("PUT", &bad, "x").await;
        assert!(matches!(answer.status, 401 | 404), "{what}: {}", answer.status);
    }
    // What was sent for one template is there for no other, whatever hash it asks for.
    assert_eq!(anybody.send("PUT", &good, "x").await.status, 200);
    let present = |caller: &Caller, id: &str| {
        let (caller, path) = (caller.clone(), format!("/templates/{id}/files/{HASH}"));
        async move { caller.json("GET", &path, Value::Null).await.json()["present"].clone() }
    };
    assert_eq!((present(&one, &id).await, present(&other, &another).await), (json!(true), json!(false)));
    let large = anybody.request("PUT", &good, "x").header("content-length", (1_u64 << 40).to_string()).send().await;
    assert!(large.is_err() || large.unwrap().status() == 413);
    assert_eq!(one.json("GET", &format!("/templates/{id}/files/..%2Ftemplate.json"), Value::Null).await.status, 400);
    // What a key handed out ends with it.
    let unused = place(&one, &id, &"c".repeat(64)).await;
    stage.keys.remove("one").unwrap();
    assert_eq!(anybody.send("PUT", &unused, "x").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_built_is_refused_before_anything_is_done() {
    let (stage, one, _) = two().await;
    for (body, field) in [
        (json!({ "name": "base" }), "name"),
        (json!({ "name": "code-interpreter-v1" }), "name"),
        (json!({ "name": "strict:x" }), "name"),
        (json!({ "name": "team/app" }), "name"),
        (json!({ "name": "../app" }), "name"),
        (json!({ "name": "app", "tags": ["a b"] }), "tags"),
        (json!({ "name": "app", "cpuCount": 0 }), "cpuCount"),
        (json!({ "name": "app", "minFreeDiskMB": 100 }), "minFreeDiskMB"),
        (json!({ "name": "app", "gpu": true }), "gpu"),
    ] {
        let answer = one.json("POST", "/v3/templates", body.clone()).await;
        assert_eq!((answer.status, clause(&answer)), (400, field.to_owned()), "{body}: {}", answer.json());
    }
    let (id, build) = wished(&one, "app").await;
    let begin = format!("/v2/templates/{id}/builds/{build}");
    let copy = |source: &str, to: &str| json!([{ "type": "COPY", "args": [source, to, "", ""], "filesHash": HASH }]);
    for (body, field) in [
        (json!({ "fromTemplate": "nosuch" }), "fromTemplate"),
        (json!({ "fromImage": "python:3.99" }), "images"),
        (
            json!({ "fromImage": "python:3", "fromImageRegistry": { "type": "registry", "username": "a" } }),
            "fromImageRegistry",
        ),
        (json!({ "steps": copy("app.py", "app.py") }), "steps[0].filesHash"),
        (json!({ "steps": copy("../app.py", "app.py") }), "steps[0].args"),
        (json!({ "steps": copy("app.py", "/etc/passwd") }), "steps"),
        (json!({ "steps": [{ "type": "MOUNT", "args": ["/"] }] }), "steps[0].type"),
        (json!({ "steps": [{ "type": "RUN", "args": ["true"], "force": "yes" }] }), "steps[0].force"),
        (json!({ "force": 1 }), "force"),
    ] {
        let answer = one.json("POST", &begin, body.clone()).await;
        assert!(matches!(answer.status, 400 | 403), "{body}: {}", answer.json());
        assert_eq!(clause(&answer), field, "{body}: {}", answer.json());
    }
    let status = one.json("GET", &format!("/templates/{id}/builds/{build}/status"), Value::Null).await;
    assert_eq!(status.json()["status"], "waiting", "nothing was begun: {}", status.json());
    // Keys that may not.
    for (name, rights, field) in [
        ("none", Rights { builds: Some(0), ..Rights::default() }, "builds"),
        ("few", Rights { templates: Some(vec!["base".to_owned()]), ..Rights::default() }, "templates"),
    ] {
        let key = one.with("x-api-key", &stage.keys.add_with(name, rights).unwrap());
        let answer = key.json("POST", "/v3/templates", json!({ "name": "app" })).await;
        assert_eq!((answer.status, clause(&answer)), (403, field.to_owned()), "{}", answer.json());
        assert!(answer.json()["message"].as_str().unwrap().contains(&format!("--{field}")), "{}", answer.json());
    }
    let one_alone = Rights { builds: Some(1), ..Rights::default() };
    let key = one.with("x-api-key", &stage.keys.add_with("single", one_alone).unwrap());
    wished(&key, "first").await;
    assert_eq!(key.json("POST", "/v3/templates", json!({ "name": "second" })).await.status, 429);
}

/// A store with one image, `python:3`; what was brought is written down, and is not there.
#[derive(Default)]
pub(crate) struct OneImage(Mutex<Vec<String>>);

fn absent() -> Problem {
    Problem::of(400, "image/registry", "the registry has it not", "it is no registry", "ask another")
}

impl Images for OneImage {
    fn list(&self) -> Result<Vec<Image>, Problem> {
        Ok(Vec::new())
    }

    fn find(&self, reference: &str) -> Result<Option<Image>, Problem> {
        let names = vec!["python:3".to_owned()];
        Ok((reference == "python:3").then(|| Image { digest: "sha256:aa".to_owned(), names, ..Image::default() }))
    }

    fn remove(&self, _reference: &str) -> Result<(), Problem> {
        Err(absent())
    }

    fn is_among(&self, name: &str, patterns: &[String]) -> bool {
        patterns.iter().any(|pattern| name.starts_with(pattern.as_str()))
    }

    fn pull(&self, reference: &str) -> Result<Image, Problem> {
        self.0.lock().unwrap().push(reference.to_owned());
        Err(absent())
    }

    fn build(&self, _recipe: &Recipe, _tell: &mut dyn FnMut(&str)) -> Result<Image, Problem> {
        Err(absent())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_brought_without_the_ceilings_word_and_what_is_not_listed_is_no_base() {
    let images = Arc::new(OneImage::default());
    let stage = stage_with_images(Arc::<OneImage>::clone(&images)).await;
    let plain = Caller::new(&stage, "plain");
    let listing = |name: &str, pull: bool| {
        let rights = Rights { images: Some(vec!["python".to_owned()]), pull, ..Rights::default() };
        plain.with("x-api-key", &stage.keys.add_with(name, rights).unwrap())
    };
    let (keeps, brings) = (listing("keeps", false), listing("brings", true));
    // A policy's root is looked up elsewhere, and here there is no image: so one that may be had is told by another clause.
    for (caller, image, refused) in [
        (&plain, "python:3", (400, "images")),
        (&plain, "nosuch:1", (400, "images")),
        (&keeps, "python:3", (403, "fs.root")),
        (&keeps, "python:4", (400, "pull")),
        (&keeps, "nosuch:1", (400, "images")),
        (&brings, "nosuch:1", (400, "images")),
    ] {
        let (id, build) = wished(caller, "app").await;
        let begin = format!("/v2/templates/{id}/builds/{build}");
        let answer = caller.json("POST", &begin, json!({ "fromImage": image })).await;
        assert_eq!((answer.status, clause(&answer).as_str()), refused, "{image}: {}", answer.json());
    }
    assert_eq!(*images.0.lock().unwrap(), Vec::<String>::new());
    let (id, build) = wished(&brings, "app").await;
    let begin = format!("/v2/templates/{id}/builds/{build}");
    assert_eq!(brings.json("POST", &begin, json!({ "fromImage": "python:4" })).await.status, 202);
    let told = ended(&brings, &format!("/templates/{id}/builds/{build}/status")).await;
    assert_eq!((&told["status"], &told["reason"]["step"]), (&json!("error"), &json!("base")), "{told}");
    assert!(told["reason"]["message"].as_str().unwrap().contains("the registry has it not"), "{told}");
    assert_eq!(*images.0.lock().unwrap(), ["python:4"]);
}

/// What came of a build.
async fn ended(caller: &Caller, status: &str) -> Value {
    for _ in 0..300 {
        let told = caller.json("GET", status, Value::Null).await.json();
        if !matches!(told["status"].as_str(), Some("waiting" | "building")) {
            return told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{status}: it does not end")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_upload_stands_for_its_hash_and_is_anothers_in_no_way() {
    let (stage, one, other) = two().await;
    let (id, _) = wished(&one, "app").await;
    let another = wished(&other, "app").await.0;
    let url = place(&one, &id, HASH).await;
    let anybody = nobody(&one);
    let files = |id: &str| {
        let entries = std::fs::read_dir(stage.keys.folder().join("templates").join(id).join("files"));
        let texts = entries.into_iter().flatten().map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap());
        texts.collect::<Vec<_>>()
    };
    for text in ["first", "second", "second"] {
        assert_eq!(anybody.send("PUT", &url, text).await.status, 200);
        assert_eq!(files(&id), [text]);
    }
    assert_eq!(files(&another), Vec::<String>::new());
    // What breaks off changes nothing of what is there.
    let cut = anybody.request("PUT", &url, "third").header("content-length", "9");
    let cut = cut.timeout(std::time::Duration::from_secs(1)).send().await;
    assert!(cut.is_err() || !cut.unwrap().status().is_success());
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(files(&id), ["second"]);
}

/// Here nothing keeps files, so that each build fails at its end: what is said of it is what is tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_fails_says_where_and_is_no_template() {
    let (_stage, one, _) = two().await;
    let (id, build) = wished(&one, "app").await;
    let path = format!("/v2/templates/{id}/builds/{build}");
    let body = json!({ "fromImage": "e2bdev/base", "steps": [{ "type": "ENV", "args": ["A", "1"], "force": false }] });
    assert_eq!(one.json("POST", &path, body.clone()).await.status, 202);
    assert_eq!(one.json("POST", &path, body).await.status, 409, "once alone");
    let status = format!("/templates/{id}/builds/{build}/status");
    let told = ended(&one, &status).await;
    assert_eq!((&told["status"], &told["reason"]["step"]), (&json!("error"), &json!("finalize")), "{told}");
    let said = told["logEntries"].as_array().unwrap();
    assert!(said.iter().any(|entry| entry["message"] == "ENV A" && entry["step"] == "1"), "{told}");
    let rest = one.json("GET", &format!("{status}?logsOffset={}", said.len()), Value::Null).await.json();
    assert_eq!(rest["logEntries"], json!([]));
    let errors = one.json("GET", &format!("{status}?level=error"), Value::Null).await.json();
    assert_eq!(errors["logEntries"].as_array().unwrap().len(), 1, "{errors}");
    assert_eq!(one.json("GET", "/sandboxes", Value::Null).await.json(), json!([]), "its sandbox is gone");
    assert_eq!(one.json("POST", "/v2/sandboxes", json!({ "templateID": "app" })).await.status, 400);
}
