//! `/v1/openapi.json`: what this interface is, for programs that write clients.

use axum::body::Body;
use axum::http::{Response, StatusCode};

use crate::answer::json_response;

/// The document: data, held against the routes by a test.
pub(super) const DOCUMENT: &str = include_str!("../../../../resources/openapi.json");

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
        // A route may stand on several lines; its methods come before the next one.
        let source: String = include_str!("mod.rs").split_whitespace().collect();
        let all: Vec<(&str, &str)> =
            source.split(".route(\"").skip(1).filter_map(|part| part.split_once('"')).collect();
        let mut routes: Vec<&str> = all.iter().map(|(path, _)| *path).collect();
        told.sort_unstable();
        routes.sort_unstable();
        assert_eq!(told, routes);
        for (path, methods) in document["paths"].as_object().unwrap() {
            let (_, line) = all.iter().find(|(route, _)| route == path).unwrap();
            for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
                assert!(line.contains(&format!("{method}(")) || line.contains(",any("), "{method} {path}");
            }
        }
    }
}
