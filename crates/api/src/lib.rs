//! The daemon's answers under `/api/v1`, for `schedspan explain`, `queue` and `top`, the page in the browser, and other clients.
//!
//! # Layout
//!
//! * [`Daemon`]: what is asked. [`router`]: the routes. `openapi.json` describes them.
//! * `lists`: all attempts that are remembered, the Pods that are pending, where time goes, and when something changes.
//! * [`attempts`]: the attempts of a Pod. [`queue`]: why Pods are not tried. `top`: the last minute. [`traces`]: traces as they end. [`health`]: what is probed, and what
//!   is lost. [`promptly`]: routes that are asked several times in a row.
//!
//! # Design constraints
//!
//! * Every request only reads.
//! * Clients are bounded in number, and what they ask for in size. A client that reads too slowly loses traces; an event says how many.

#![forbid(unsafe_code)]

pub mod attempts;
pub mod health;
mod lists;
pub mod queue;
#[cfg(test)]
mod tests;
pub mod traces;

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Router,
    extract::State,
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, get},
};
use kube_scheduler::{
    attempt_log::AttemptLog,
    last_minute::{Count, LastMinute},
};
use serde::Serialize;
use spans::{export::Live, wakeups};
use status::Health;
use telemetry::{Counters, Registry};
use tokio::sync::Semaphore;

use self::{health::Targets, queue::Board};

telemetry::labels! {
    /// Why clients lose. The unit is traces.
    pub Loss {
        /// A client of `/api/v1/traces` reads too slowly.
        StreamLagged = "stream_lagged",
    }
}

/// Longest `wait` of a request.
pub const MAX_WAIT: Duration = attempts::MAX_WAIT;
/// Most clients that get events: those of traces and, apart from them, those of changes.
const MAX_STREAMS: usize = 8;
/// Beginning of all paths.
const PREFIX: &str = "/api/v1";
const OPENAPI: &str = include_str!("openapi.json");

/// What is asked: handles of the daemon's parts. Clones share them.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// The attempts that are remembered.
    pub history: AttemptLog,
    /// Where Pods wait.
    pub board: Board,
    /// Figures of attempts.
    pub attempts: kube_scheduler::metrics::Metrics,
    /// All metrics: its losses are shown.
    pub registry: Registry,
    /// What clients lose.
    pub lost: Counters<Loss>,
    /// Traces as they end.
    pub live: Live,
    /// What is probed.
    pub targets: Targets,
    /// Whether the daemon works.
    pub health: Health,
}

impl Daemon {
    /// The figures of the last minute.
    #[must_use]
    pub fn last_minute(&self) -> LastMinute {
        LastMinute {
            schedulers: self.targets.all().len() as u64,
            losses: self.losses(),
            ..self.attempts.last_minute()
        }
    }

    /// All losses by cause, zeros included.
    #[must_use]
    pub fn losses(&self) -> Vec<Count> {
        let count = |(name, count): (&'static str, u64)| Count { name: name.to_owned(), count };
        self.registry.lost().into_iter().map(count).collect()
    }
}

/// State of the handlers.
#[derive(Clone, Debug)]
struct Api {
    daemon: Daemon,
    streams: Arc<Semaphore>,
    pages: Arc<Semaphore>,
}

/// Answers the requests that follow one without the pause between two wake-ups: a page asks for several things in a row.
pub fn promptly(routes: Router) -> Router {
    routes.layer(from_fn(async |request, next: Next| {
        wakeups::prompt();
        next.run(request).await
    }))
}

/// The routes.
pub fn router(daemon: &Daemon) -> Router {
    let seats = || Arc::new(Semaphore::new(MAX_STREAMS));
    let api = Api { daemon: daemon.clone(), streams: seats(), pages: seats() };
    let add =
        |router: Router<Api>, (path, handler): (&str, _)| router.route(&format!("{PREFIX}/{path}"), handler);
    routes().into_iter().fold(Router::new(), add).with_state(api)
}

fn routes() -> [(&'static str, MethodRouter<Api>); 10] {
    [
        ("attempts", get(attempts::of_pod)),
        ("queue", get(queue::waiting)),
        ("top", get(top)),
        ("traces", get(traces::stream)),
        ("recent", get(lists::recent)),
        ("pending", get(lists::pending)),
        ("plugins", get(lists::plugins)),
        ("changes", get(lists::changes)),
        ("health", get(health::health)),
        ("openapi.json", get(async || document(OPENAPI.into()))),
    ]
}

/// `GET /api/v1/top`
async fn top(State(Api { daemon, .. }): State<Api>) -> Response {
    json(&daemon.last_minute())
}

/// The time by this machine's clock, microseconds since the Unix epoch.
#[must_use]
pub fn now_unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, format!("{why}\n")).into_response()
}

fn json(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(body) => document(body),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn document(body: Vec<u8>) -> Response {
    ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}
