//! Which words a query may have: those that the OpenAPI document names. Any other is refused, since a word that is misspelt would
//! else be as if it were not there.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use axum::body::Body;
use axum::extract::{MatchedPath, Request};
use axum::http::{Method, Response};
use axum::middleware::Next;
use axum::response::IntoResponse as _;
use serde_json::Value as Json;

use super::{Refused, openapi};
use crate::answer::Problem;
use crate::request::Query;

/// The words of each route, by its path and method.
type QueryKeys = BTreeMap<(String, String), Vec<String>>;

/// Below these a port inside is asked, and the query is for whoever listens there.
const FOR_A_PORT: &str = "/v1/sandboxes/{id}/ports/{port}/";

pub(super) async fn check(request: Request, next: Next) -> Response<Body> {
    let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    match route.map_or(Ok(()), |route| known(&route, request.method(), &Query::of(request.uri()))) {
        Ok(()) => next.run(request).await,
        Err(problem) => Refused::from(problem).into_response(),
    }
}

fn known(route: &str, method: &Method, query: &Query) -> Result<(), Problem> {
    static WORDS: OnceLock<QueryKeys> = OnceLock::new();
    if route.starts_with(FOR_A_PORT) {
        return Ok(());
    }
    // Whatever answers GET answers HEAD.
    let method = if method == Method::HEAD { Method::GET } else { method.clone() };
    let route = (route.to_owned(), method.as_str().to_lowercase());
    let Some(words) = WORDS.get_or_init(|| read(openapi::DOCUMENT)).get(&route) else {
        // Nothing is there for this method, which is told.
        return Ok(());
    };
    query.known(&words.iter().map(String::as_str).collect::<Vec<_>>())
}

fn read(document: &str) -> QueryKeys {
    let document: Json = serde_json::from_str(document).unwrap_or_default();
    let paths = document.get("paths").and_then(Json::as_object);
    let mut words = QueryKeys::new();
    for (path, methods) in paths.into_iter().flatten() {
        let of_all = in_query(methods);
        for (method, operation) in methods.as_object().into_iter().flatten().filter(|(name, _)| *name != "parameters") {
            let mut all = of_all.clone();
            all.extend(in_query(operation));
            words.insert((path.clone(), method.clone()), all);
        }
    }
    words
}

fn in_query(place: &Json) -> Vec<String> {
    let parameters = place.get("parameters").and_then(Json::as_array);
    let text = |parameter: &Json, name: &str| parameter.get(name).and_then(Json::as_str).map(str::to_owned);
    let named = parameters.into_iter().flatten().filter(|one| text(one, "in").as_deref() == Some("query"));
    named.filter_map(|one| text(one, "name")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &Method, route: &str, query: &str) -> Result<(), Problem> {
        known(route, method, &Query::of(&format!("/?{query}").parse().unwrap()))
    }

    #[test]
    fn what_the_document_names_is_known_and_nothing_else_is() {
        let files = "/v1/sandboxes/{id}/files";
        assert_eq!(asked(&Method::PUT, files, "path=x&mode=600"), Ok(()));
        assert_eq!(asked(&Method::HEAD, files, "path=x"), Ok(()));
        let problem = asked(&Method::GET, files, "path=x&mode=600").unwrap_err();
        assert_eq!((&*problem.clause, problem.instead.as_str()), ("mode", "known here: `path`"));
        let problem = asked(&Method::POST, "/v1/runs", "timeout=5").unwrap_err();
        assert!(problem.status == 400 && problem.instead.contains("leave it out"), "{problem:?}");
    }

    #[test]
    fn a_port_inside_is_asked_what_it_likes() {
        assert_eq!(asked(&Method::GET, "/v1/sandboxes/{id}/ports/{port}/{*path}", "anything=1"), Ok(()));
        assert_eq!(asked(&Method::GET, "/v1/sandboxes/{id}/ports/{port}/", "anything=1"), Ok(()));
    }

    /// Each word that a handler looks for is told to whoever reads the document; else it could not be said any more.
    #[test]
    fn every_word_that_is_looked_for_is_in_the_document() {
        let sources = [
            include_str!("approvals.rs"),
            include_str!("audit.rs"),
            include_str!("changes.rs"),
            include_str!("files.rs"),
            include_str!("processes.rs"),
            include_str!("sandboxes.rs"),
            include_str!("usage.rs"),
        ];
        let told: Vec<String> = read(openapi::DOCUMENT).into_values().flatten().collect();
        let mut looked_for = 0_u32;
        let places =
            ["query.get(\"", "query.all(\"", "yes(&query, \"", "Query::of(&uri), \"", "Query::of(request.uri()), \""];
        for (source, place) in sources.into_iter().flat_map(|source| places.map(|place| (source, place))) {
            for part in source.split(place).skip(1) {
                let word = part.split_once('"').map_or("", |(word, _)| word);
                looked_for += 1;
                assert!(told.iter().any(|known| known == word), "{word}");
            }
        }
        assert!(looked_for > 12, "{looked_for}");
    }
}
