//! Requests that are seen after their rate limiter only.

use super::*;

/// One hit after the rate limiter says since when.
fn began(since_ns: u64, time_ns: u64, goroutine: u64, failed: bool) -> Event {
    let mut event = Event { role: Role::Metric, time_ns, ..begin(time_ns, goroutine, 0, "a") };
    event.values.take(Value::RequestReason);
    event.values.take(Value::RequestSubresource);
    event.values.set(Value::Since, since_ns);
    event.values.set(Value::RequestFailed, u64::from(failed));
    event.values.set(Value::RequestError, failed.then_some("too late"));
    event
}

#[test]
fn a_request_may_be_seen_after_its_rate_limiter_only() {
    let mut answer = answered(90, 1, 200);
    answer.values.set(Value::RequestSubresource, "status");
    let request = only([began(20, 50, 1, false), answer, decoded(95, 1, "u-1")]);
    let times = (request.start_ns, request.limited_ns, request.end_ns);
    assert_eq!((times, request.events, request.incomplete), ((20, 30, 95), 3, false));
    assert_eq!((&*request.subresource, request.error), ("status", None));
    // Its clock is another one, whose difference is estimated.
    let request = only([began(60, 50, 1, false), answered(90, 1, 200)]);
    assert_eq!((request.start_ns, request.limited_ns), (50, 0));
    let request = only([
        began(20, 50, 1, false),
        answered(60, 1, 429),
        again(70, 1),
        limited(75, 1),
        answered(90, 1, 200),
    ]);
    assert_eq!((request.attempts, request.limited_ns, request.events), (2, 35, 5));
}

#[test]
fn one_that_the_rate_limiter_refuses_is_over() {
    let request = only([began(20, 50, 1, true)]);
    let seen = (request.start_ns, request.end_ns, request.limited_ns, request.incomplete);
    assert_eq!((seen, request.error.as_deref()), ((20, 50, 30, false), Some("too late")));
}
