//! Traces as they end, as server-sent events.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    extract::{Query, State},
    http::{
        HeaderValue, StatusCode,
        header::{CACHE_CONTROL, CONTENT_TYPE},
    },
    response::{IntoResponse as _, Response},
};
use serde::Deserialize;
use spans::{
    export::{Filter, Seen, Watcher},
    figures::parse_duration,
};
use telemetry::Counters;
use tokio::{sync::OwnedSemaphorePermit, time::timeout};

use crate::{Api, Loss, refused};

/// After this time without a trace a comment is sent, so that a client that has gone is noticed.
const SILENCE: Duration = Duration::from_secs(15);

/// Which traces: the filter of `schedspan trace`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Question {
    namespace: Option<String>,
    pod: Option<String>,
    failed: Option<String>,
    slower_than: Option<String>,
}

impl Question {
    fn filter(self) -> Result<Filter, String> {
        let Self { namespace, pod, failed, slower_than } = self;
        let failed = match failed.as_deref() {
            None | Some("false") => false,
            Some("" | "true") => true,
            Some(_) => return Err("`failed` is `true` or `false`".to_owned()),
        };
        let slower_than = slower_than.as_deref().map(parse_duration).transpose();
        let slower_than = slower_than.map_err(|error| format!("`slower-than`: {error}"))?;
        let pod = pod.map(|pod| pod.parse()).transpose().map_err(|error| format!("`pod`: {error}"))?;
        Filter { namespace, pod, failed, slower_than, lifecycles: false }.of_attempts()
    }
}

/// `GET /api/v1/traces?namespace=..&pod=..&failed&slower-than=..`
pub(crate) async fn stream(State(api): State<Api>, Query(question): Query<Question>) -> Response {
    let filter = match question.filter() {
        Ok(filter) => filter,
        Err(why) => return refused(StatusCode::BAD_REQUEST, &why),
    };
    let Ok(seat) = api.streams.try_acquire_owned() else {
        let why = "as many clients as possible get traces already; try again later";
        return refused(StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let stream = Stream { watcher: api.daemon.live.watch(filter), lost: api.daemon.lost, _seat: seat };
    events(futures::stream::unfold(stream, async |mut stream| Some((stream.next().await?, stream))))
}

/// An answer that is a stream of events.
pub(crate) fn events(events: impl futures::Stream<Item = String> + Send + 'static) -> Response {
    // The first bytes tell the client that the stream is open.
    let first = futures::stream::iter([": open\n\n".to_owned()]);
    let all = futures::StreamExt::chain(first, events);
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    let body = Body::from_stream(futures::StreamExt::map(all, Ok::<_, Infallible>));
    (headers, body).into_response()
}

/// A client that gets traces.
struct Stream {
    watcher: Watcher,
    lost: Counters<Loss>,
    _seat: OwnedSemaphorePermit,
}

impl Stream {
    /// The next event, or a comment.
    async fn next(&mut self) -> Option<String> {
        let Ok(seen) = timeout(SILENCE, self.watcher.next()).await else {
            return Some(": quiet\n\n".to_owned());
        };
        Some(match seen? {
            Seen::Trace(json) => format!("data: {json}\n\n"),
            Seen::Lost(traces) => {
                self.lost.add(Loss::StreamLagged, traces);
                lost(traces)
            }
        })
    }
}

/// The event that says how many were lost.
pub(crate) fn lost(count: u64) -> String {
    format!("event: lost\ndata: {{\"lost\":{count}}}\n\n")
}
