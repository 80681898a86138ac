//! The page in the browser, for people: what `schedspan explain` and `top` say, and more, in five views.
//!
//! # Layout
//!
//! * [`router`]: the routes. [`views`]: one module for each view. `frame`: what is around them. `text`: how foreign text gets in.
//! * `assets/`: style and script, without a build step. The script replaces parts that have changed; each view works without it.
//!
//! # Design constraints
//!
//! * Everything is in the executable, and the content security policy forbids to load anything from elsewhere.
//! * The browser executes nothing but the one script: no text of a Pod becomes markup, and if it did, it would not run.
//! * Every request only reads.

#![forbid(unsafe_code)]

mod frame;
#[cfg(test)]
mod tests;
mod text;
pub mod views;

use api::Daemon;
use axum::{
    Router,
    extract::{Path, Query, State},
    http::{
        HeaderName, HeaderValue, StatusCode, Uri,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
            X_CONTENT_TYPE_OPTIONS,
        },
    },
    middleware::map_response,
    response::{IntoResponse as _, Response},
    routing::{MethodRouter, get},
};
use maud::Markup;
use serde::Deserialize;

use self::{frame::page, views::View};

/// What the browser may load and do: only what comes from here, and nothing that is written in the page itself.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Headers of all answers.
const HEADERS: [(HeaderName, &str); 5] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// A file that is in the executable: path, type and text.
type Asset = (&'static str, &'static str, &'static str);

const ASSETS: [Asset; 3] = [
    (frame::STYLE, "text/css; charset=utf-8", include_str!("../assets/page.css")),
    (frame::SCRIPT, "text/javascript; charset=utf-8", include_str!("../assets/page.js")),
    (frame::ICON, "image/svg+xml", include_str!("../assets/icon.svg")),
];

/// The routes of the page.
pub fn router(daemon: &Daemon) -> Router {
    let views =
        routes().into_iter().fold(Router::new(), |router, (path, handler)| router.route(path, handler));
    let assets = ASSETS.into_iter().fold(views, |router, (path, kind, text)| {
        router.route(path, get(async move || ([(CONTENT_TYPE, HeaderValue::from_static(kind))], text)))
    });
    assets.fallback(missing).with_state(daemon.clone()).layer(map_response(async |mut response: Response| {
        for (name, value) in HEADERS {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }))
}

fn routes() -> [(&'static str, MethodRouter<Daemon>); 6] {
    [
        ("/", get(pending)),
        ("/attempts", get(attempts)),
        ("/pod", get(ask_for_pod)),
        ("/pod/{namespace}/{name}", get(pod)),
        ("/plugins", get(plugins)),
        ("/health", get(health)),
    ]
}

async fn pending(State(daemon): State<Daemon>) -> Markup {
    page(
        View::Pending,
        "Pending",
        &daemon,
        &views::pending::view(&daemon.history.recent(), api::now_unix_us()),
    )
}

/// Query of the view of attempts.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    keep: String,
}

async fn attempts(State(daemon): State<Daemon>, Query(Wanted { keep }): Query<Wanted>) -> Markup {
    let view = views::attempts::view(&daemon.history.recent(), &keep, api::now_unix_us());
    page(View::Attempts, "Attempts", &daemon, &view)
}

/// Query of the form that asks for a Pod.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Asked {
    pod: String,
}

async fn ask_for_pod(State(daemon): State<Daemon>, Query(Asked { pod }): Query<Asked>) -> Response {
    let asked = pod.trim();
    let (namespace, name) = asked.split_once('/').unwrap_or(("default", asked));
    if [namespace, name].into_iter().all(api::attempts::is_name) {
        return (StatusCode::SEE_OTHER, [(LOCATION, format!("/pod/{namespace}/{name}"))]).into_response();
    }
    let view = views::pod::ask(&daemon.history.recent(), asked, api::now_unix_us());
    page(View::Pod, "Pod", &daemon, &view).into_response()
}

async fn pod(State(daemon): State<Daemon>, Path((namespace, name)): Path<(String, String)>) -> Response {
    if ![&namespace, &name].into_iter().all(|name| api::attempts::is_name(name)) {
        let view =
            views::pod::ask(&daemon.history.recent(), &format!("{namespace}/{name}"), api::now_unix_us());
        return (StatusCode::NOT_FOUND, page(View::Pod, "Pod", &daemon, &view)).into_response();
    }
    let report = daemon.history.report(&namespace, &name, true, api::now_unix_us());
    page(View::Pod, &format!("{namespace}/{name}"), &daemon, &views::pod::view(&report)).into_response()
}

/// Query of the view of plugins.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Window {
    before: Option<u64>,
}

async fn plugins(State(daemon): State<Daemon>, Query(Window { before }): Query<Window>) -> Markup {
    let comparison = daemon.attempts.comparison(before.unwrap_or(views::plugins::DEFAULT));
    page(View::Plugins, "Plugins", &daemon, &views::plugins::view(&comparison))
}

async fn health(State(daemon): State<Daemon>) -> Markup {
    page(
        View::Health,
        "Health",
        &daemon,
        &views::health::view(&api::health::Vitals::of(&daemon), &daemon.last_minute()),
    )
}

async fn missing(State(daemon): State<Daemon>, uri: Uri) -> Response {
    let status = StatusCode::NOT_FOUND;
    // A client of the API wants no page.
    if uri.path().starts_with("/api/") {
        return (status, "there is no such path: /api/v1/openapi.json has them all\n").into_response();
    }
    (status, page(View::Pending, "Not found", &daemon, &views::missing())).into_response()
}
