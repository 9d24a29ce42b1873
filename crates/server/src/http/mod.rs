//! Listening, and whose a request is: a sandbox's, E2B's control interface, or our own.

mod connection;
mod finish;
mod heads;
mod listener;
mod route;
mod tail;
mod tls;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderValue, Response, StatusCode};
use policy::json::hex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::backend::Images;
use crate::docker::{self, Docker, OfDocker};
use crate::meters::{Meters, Part};
use crate::traces::Tracer;
use crate::{e2b, envd, jupyter, metrics, page, v1};
use finish::Finish;
use route::RouteKind;

pub use crate::app::Settings;
pub use listener::{Listen, Listeners, bind};
pub use tls::TlsFiles;

/// How often what is due is done.
const TEND: Duration = Duration::from_secs(1);

/// Everything that answers.
#[derive(Clone)]
pub struct Server {
    app: Arc<AppState>,
    e2b: Router,
    v1: Router,
    docker: Option<(Arc<Docker>, Router)>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("app", &self.app).finish_non_exhaustive()
    }
}

impl Server {
    /// A server over an app state.
    #[must_use]
    pub fn new(app: AppState) -> Self {
        let app = Arc::new(app);
        Self {
            e2b: e2b::router(Arc::clone(&app)),
            v1: v1::router(Arc::clone(&app)).merge(jupyter::router(Arc::clone(&app))),
            docker: None,
            app,
        }
    }

    /// The same, with Docker's interface on the socket of [`Listen::docker`]: over these images, under this policy as a ceiling
    /// (a preset's name or an absolute path).
    ///
    /// # Errors
    /// The ceiling cannot be read, or the state folder not be written to.
    pub fn with_docker(self, images: Arc<dyn Images>, ceiling: Option<String>) -> Result<Self, Vec<Problem>> {
        let docker = Arc::new(Docker::new(Arc::clone(&self.app), images, ceiling)?);
        let router = docker::router(Arc::clone(&docker));
        Ok(Self { docker: Some((docker, router)), ..self })
    }

    fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.app.meters)
    }

    /// The answer to a request.
    pub async fn answer(self, request: Request) -> Response<Body> {
        // A body is not shared between threads: only what is about it is looked at across a wait.
        let began = Instant::now();
        let (parts, body) = request.into_parts();
        let whose = route::whose(&self.app, &parts).await;
        let part = whose.as_ref().map_or(Part::Other, part);
        let app = Arc::clone(&self.app);
        let traced = app.tracer.as_ref().and_then(|tracer| Some((tracer, Tracer::begin(&parts, part)?)));
        let mut response = self.routed(whose, parts, body).await;
        let took = began.elapsed();
        app.meters.answered(part, &response, took);
        if let Some((tracer, begun)) = traced {
            tracer.end(&begun, part, &response, took);
        }
        let mut random = [0_u8; 8];
        if sys::random::fill(&mut random)
            && let Ok(id) = HeaderValue::from_str(&hex(&random))
        {
            response.headers_mut().insert("x-request-id", id);
        }
        response
    }

    async fn routed(self, whose: Result<RouteKind, Problem>, parts: Parts, body: Body) -> Response<Body> {
        let request = Request::from_parts(parts, body);
        if let Some(finish) = request.extensions().get::<Finish>()
            && ends_with_client(whose.as_ref().ok(), &request)
        {
            finish.not();
        }
        if let Some((_, router)) = self.docker.filter(|_| request.extensions().get::<OfDocker>().is_some()) {
            return Docker::answer(router, request).await;
        }
        match whose {
            Ok(RouteKind::Sandbox(target)) => envd::serve(self.app, target, request).await,
            Ok(RouteKind::Health) => json_response(StatusCode::OK, &json!({ "status": "ok" })),
            Ok(RouteKind::Metrics) => {
                // Its body is nothing to us.
                let (parts, _) = request.into_parts();
                metrics::answer(&self.app, &parts).await.unwrap_or_else(|problem| problem.e2b())
            }
            Ok(RouteKind::Page) => page::answer(self.app, request).await,
            Ok(RouteKind::Ours) => never_fails(self.v1.oneshot(request).await),
            Ok(RouteKind::Control) => never_fails(self.e2b.oneshot(request).await),
            Err(problem) => problem.e2b(),
        }
    }
}

/// Whether the work for a request ends when its client hangs up: programs that are run for who waits for them, what is asked of
/// programs inside, and output.
fn ends_with_client(whose: Option<&RouteKind>, request: &Request) -> bool {
    let path = request.uri().path();
    if request.extensions().get::<OfDocker>().is_some() {
        return docker::ends_with_client(path);
    }
    match whose {
        Some(RouteKind::Ours) => v1::ends_with_client(path),
        Some(RouteKind::Sandbox(target)) => envd::is_inside(target.port) || envd::is_input(path),
        Some(RouteKind::Health | RouteKind::Metrics | RouteKind::Page | RouteKind::Control) | None => false,
    }
}

const fn part(whose: &RouteKind) -> Part {
    match whose {
        RouteKind::Sandbox(_) => Part::Sandbox,
        RouteKind::Ours => Part::Native,
        RouteKind::Control => Part::Control,
        RouteKind::Health | RouteKind::Metrics | RouteKind::Page => Part::Other,
    }
}

fn never_fails(answer: Result<Response<Body>, std::convert::Infallible>) -> Response<Body> {
    match answer {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Serves until `stop` is done; requests that are on their way then have two seconds more.
pub async fn serve(listeners: Listeners, server: Server, stop: impl Future<Output = ()> + Send) {
    let app = Arc::clone(&server.app);
    let exporter = app.exporter();
    let tending = tokio::spawn(async move {
        loop {
            tokio::time::sleep(TEND).await;
            app.tend().await;
        }
    });
    if let Some((docker, _)) = &server.docker {
        docker.adopt().await;
    }
    let ended = CancellationToken::new();
    let sending = exporter.map(|exporter| tokio::spawn(exporter.run(ended.clone().cancelled_owned())));
    listeners.serve(server, stop).await;
    tending.abort();
    ended.cancel();
    if let Some(sending) = sending {
        // It ends by itself soon, whoever hears it.
        drop(sending.await);
    }
}
