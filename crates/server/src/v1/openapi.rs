//! `/v1/openapi.json`: what this interface is, for programs that write clients.

use axum::body::Body;
use axum::http::{Response, StatusCode};

use crate::answer::json_response;

/// The document: data, held against the routes by a test.
const DOCUMENT: &str = include_str!("../../../../resources/openapi.json");

pub(super) async fn document() -> Response<Body> {
    let document = serde_json::from_str(DOCUMENT).unwrap_or_default();
    json_response(StatusCode::OK, &document)
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    #[test]
    fn the_document_names_every_route_and_no_other() {
        let document: Json = serde_json::from_str(super::DOCUMENT).unwrap();
        let mut told: Vec<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let source = include_str!("mod.rs");
        let routes = source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"")?.split('"').next());
        let mut routes: Vec<&str> = routes.collect();
        told.sort_unstable();
        routes.sort_unstable();
        assert_eq!(told, routes);
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                let line = source.lines().find(|line| line.contains(&format!(".route(\"{path}\""))).unwrap();
                assert!(line.contains(&format!("{method}(")), "{method} {path}");
            }
        }
    }
}
