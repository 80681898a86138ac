//! Requests of reconciles: single ones, and schedules that could have happened, out of bytes.

mod limited;
mod removals;

use std::{collections::BTreeMap, sync::Arc};

use ::spans::{
    Anchor, Evidence, Origin, Relation, Span, SpanKind, Status, Story as _, Trace, TraceKind, attributes,
    identity::{LifecycleTrace, creation_id, lifecycle_id, lifecycle_root, span_id},
    story::Extras,
};
use gotrace::{Role, program::Assemble as _, values::Datum};
use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    ClientGo,
    reconcile::{Assembler, Reconcile},
    table::Function,
    values::Value,
};

type Event = gotrace::Event<ClientGo>;
type Values = gotrace::Values<Value>;

fn event(time_ns: u64, goroutine: u64, function: Function, role: Role, values: Values) -> Event {
    let (target, took_ns, last_loss) = (1, 0, 0);
    // What the client calls for a request is deeper in the stack than what its caller calls with the answer.
    let depth = if function == Function::Answer { 500 } else { 1_000 };
    Event { target, time_ns, goroutine, depth, function, role, took_ns, last_loss, values }
}

/// Within another request.
fn within(event: Event) -> Event {
    Event { depth: event.depth + 1_000, ..event }
}

fn of_queue(time_ns: u64, goroutine: u64, function: Function, key: &str) -> Event {
    let key = Datum::Texts(vec![Some(key.to_owned())]);
    let values =
        Values::default().with(Value::Metrics, 0x100).with(Value::Queue, "pods").with(Value::Key, key);
    event(time_ns, goroutine, function, Role::Entry, values)
}

/// A rate limiter makes a goroutine wait for so long.
fn limited(time_ns: u64, goroutine: u64, wait_ns: u64) -> Event {
    let values = Values::default().with(Value::RequestLimited, wait_ns);
    event(time_ns, goroutine, Function::Limit, Role::Entry, values)
}

/// A request about the Pod `name`, or about Pods, that began at the first time and is answered at the second; not, if the status is 0.
fn answered([start_ns, time_ns]: [u64; 2], goroutine: u64, name: &str, status: u64) -> Event {
    let slash = if name.is_empty() { "" } else { "/" };
    let path = format!("/api/v1/namespaces/default/pods{slash}{name}");
    let values = Values::default()
        .with(Value::Since, start_ns)
        .with(Value::RequestFailed, u64::from(status == 0))
        .with(Value::RequestStatus, status)
        .with(Value::RequestMethod, "POST")
        .with(Value::RequestError, (status == 0).then(|| path.clone()))
        .with(Value::RequestPath, if status == 0 { String::new() } else { path });
    event(time_ns, goroutine, Function::Attempt, Role::Entry, values)
}

/// On a goroutine that this one has started.
fn started_by(parent: u64, mut event: Event) -> Event {
    event.values.set(Value::RequestParent, parent);
    event
}

fn set(mut event: Event, value: Value, text: &str) -> Event {
    event.values.set(value, text);
    event
}

fn decoded(time_ns: u64, goroutine: u64, uid: &str) -> Event {
    let values = Values::default()
        .with(Value::ObjectType, Arc::from("*v1.Pod"))
        .with(Value::ObjectUid, uid)
        .with(Value::ObjectName, "a-1")
        .with(Value::ObjectVersion, "77");
    event(time_ns, goroutine, Function::Answer, Role::ReturnSite, values)
}

fn after(events: impl IntoIterator<Item = Event>) -> Assembler {
    let mut assembler = Assembler::default();
    events.into_iter().for_each(|event| assembler.on(event));
    assembler
}

/// The reconciles that are over.
fn finished(assembler: &mut Assembler) -> Vec<Reconcile> {
    assembler.take_finished().iter().filter_map(Finished::reconcile).cloned().collect()
}

/// The only reconcile of a worker with the goroutine 1, from 10 to 900, in which this happens.
fn reconcile(events: impl IntoIterator<Item = Event>) -> (Reconcile, BTreeMap<String, u64>) {
    let [get, done] =
        [(10, Function::Get), (900, Function::Done)].map(|(at, what)| of_queue(at, 1, what, "a"));
    let mut assembler = after([get].into_iter().chain(events).chain([done]));
    let mut finished = finished(&mut assembler);
    assert_eq!((finished.len(), assembler.account().open()), (1, 0));
    let counts = assembler.counts().into_iter().filter(|count| count.counter == "workqueue_requests");
    let counts = counts.filter(|count| count.total > 0).map(|count| (count.labels[0].clone(), count.total));
    (finished.remove(0), counts.collect())
}

fn only(events: impl IntoIterator<Item = Event>) -> Request {
    let (mut reconcile, _) = reconcile(events);
    assert_eq!(reconcile.made.requests.len(), 1);
    reconcile.made.requests.remove(0)
}

/// The answer is not decoded.
fn checked(time_ns: u64, goroutine: u64, body: &str) -> Event {
    let values = Values::default().with(Value::AnswerObject, keep(Value::AnswerObject, body.to_owned()));
    Event { depth: 500, ..event(time_ns, goroutine, Function::Check, Role::Entry, values) }
}

/// The Pod `name` is deleted, or evicted, and this is the beginning of the answer.
fn removed(time_ns: u64, goroutine: u64, name: &str, is_eviction: bool, body: &str) -> [Event; 2] {
    let about = if is_eviction { format!("{name}/eviction") } else { name.to_owned() };
    let status = if is_eviction { 201 } else { 200 };
    let mut answer = answered([time_ns, time_ns + 1], goroutine, &about, status);
    if !is_eviction {
        answer.values.set(Value::RequestMethod, "DELETE");
    }
    [answer, checked(time_ns + 2, goroutine, body)]
}

const DELETED: &str =
    r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a-1","uid":"u-1","resourceVersion":"78""#;
const EVICTED: &str = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#;

#[test]
fn a_request_has_what_it_is_about_and_what_came_back() {
    let (reconcile, counts) = reconcile([answered([20, 90], 1, "", 201), decoded(95, 1, "u-1")]);
    let object = Object {
        typ: "*v1.Pod".into(),
        uid: "u-1".to_owned(),
        name: Some("a-1".to_owned()),
        version: Some("77".to_owned()),
        owner: None,
    };
    let expected = Request {
        start_ns: 20,
        end_ns: 95,
        method: Some("POST".to_owned()),
        path: Some("/api/v1/namespaces/default/pods".to_owned()),
        attempts: 1,
        status: Some(201),
        object: Some(object),
        events: 2,
        ..Request::default()
    };
    assert_eq!(reconcile.made, Made { requests: vec![expected], are_seen: true, ..Made::default() });
    assert_eq!(counts, [("own".to_owned(), 1)].into());
}

#[test]
fn one_that_is_sent_again_is_one_request() {
    let request = only([answered([20, 30], 1, "a", 429), answered([20, 60], 1, "a", 200)]);
    let seen = (request.attempts, request.status, request.end_ns, request.events);
    assert_eq!(seen, (2, Some(200), 60, 2));
}

#[test]
fn a_request_within_another_one_is_a_request_of_its_own() {
    let (reconcile, _) = reconcile([
        within(answered([30, 32], 1, "token", 201)),
        within(decoded(33, 1, "u-token")),
        answered([20, 40], 1, "a", 200),
        decoded(45, 1, "u-a"),
    ]);
    let seen = reconcile.made.requests.iter().map(|request| {
        let uid = request.object.as_ref().map_or("", |object| &object.uid);
        (request.about().name, request.status, uid, request.end_ns)
    });
    let expected = [("a", Some(200), "u-a", 45), ("token", Some(201), "u-token", 33)];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
}

#[test]
fn the_next_request_ends_the_one_before_whatever_its_depth() {
    let one = |at| [answered([at, at + 5], 1, "", 200), decoded(at + 6, 1, "u")];
    let deeper = |events: [Event; 2]| events.map(within);
    let (reconcile, _) = reconcile([one(20), deeper(one(30)), one(40)].concat());
    let ends: Vec<_> = reconcile.made.requests.iter().map(|request| request.end_ns).collect();
    assert_eq!(ends, [26, 36, 46]);
}

#[test]
fn one_without_an_answer_has_the_type_of_its_error_and_the_path_of_its_url() {
    let request = only([answered([20, 30], 1, "a", 0)]);
    assert_eq!((request.status, request.error.as_deref()), (None, Some("*url.Error")));
    assert_eq!(request.path.as_deref(), Some("/api/v1/namespaces/default/pods/a"));
    let request = only([set(answered([20, 30], 1, "a", 0), Value::RequestError, "")]);
    assert_eq!((request.path.as_deref(), request.error.as_deref()), (Some(""), Some("*url.Error")));
    let other = set(answered([20, 30], 1, "a", 0), Value::RequestError, "*errors.errorString");
    let request = only([other]);
    assert_eq!((request.path.as_deref(), request.error.as_deref()), (Some(""), Some("*errors.errorString")));
    for (url, path) in
        [("https://a/b/c?d#e", "/b/c"), ("a/b", "/b"), ("https://a", ""), ("https://a/b#c?d", "/b"), ("", "")]
    {
        assert_eq!(keep(Value::RequestError, url.to_owned()).as_deref(), Some(path), "{url}");
    }
}

#[test]
fn a_watch_is_no_request() {
    let mut watch = answered([20, 30], 1, "", 200);
    watch.values.take(Value::Since);
    let (reconcile, counts) = reconcile([limited(25, 1, 4), watch]);
    assert_eq!((reconcile.made.requests.len(), counts), (0, BTreeMap::new()));
}

#[test]
fn writes_on_goroutines_that_the_worker_started_are_its_reconciles() {
    let one = |at, goroutine| started_by(1, answered([at, at + 2], goroutine, "", 201));
    let (reconcile, counts) = reconcile([one(20, 5), one(30, 6)]);
    let starts: Vec<_> = reconcile.made.requests.iter().map(|request| request.start_ns).collect();
    assert_eq!((starts, counts), (vec![20, 30], [("child".to_owned(), 2)].into()));
}

#[test]
fn what_is_of_no_reconcile_is_counted_by_its_cause() {
    let both = [of_queue(11, 3, Function::Get, "x"), of_queue(12, 3, Function::Get, "y")];
    let end = [of_queue(800, 3, Function::Done, "x"), of_queue(801, 3, Function::Done, "y")];
    let one = |at, goroutine| answered([at, at + 1], goroutine, "", 200);
    let requests = [one(20, 7), started_by(9, one(21, 8)), one(22, 3), started_by(3, one(23, 10))];
    let mut assembler = after(both.into_iter().chain(requests).chain(end));
    let made: usize = finished(&mut assembler).iter().map(|reconcile| reconcile.made.requests.len()).sum();
    assembler.exit(1);
    let counts = assembler.counts().into_iter().filter(|count| count.counter == "workqueue_requests");
    let counts: Vec<_> = counts.map(|count| format!("{} {}", count.labels[0], count.total)).collect();
    assert_eq!((made, assembler.account().open()), (0, 0));
    assert_eq!(counts, ["own 0", "child 0", "none 2", "several 2", "over 0"]);
}

#[test]
fn a_goroutine_of_a_reconcile_that_is_over_is_not_the_next_ones() {
    let one = |at| started_by(1, answered([at, at + 1], 5, "", 201));
    let next = [of_queue(950, 1, Function::Get, "b"), one(960), of_queue(990, 1, Function::Done, "b")];
    let events = [of_queue(10, 1, Function::Get, "a"), one(20), of_queue(30, 1, Function::Done, "a")];
    let mut assembler = after(events.into_iter().chain(next));
    let made: Vec<_> =
        finished(&mut assembler).iter().map(|reconcile| reconcile.made.requests.len()).collect();
    assert_eq!(made, [1, 0]);
    assert!(assembler.counts().iter().any(|count| count.labels == ["over"] && count.total == 1));
}

#[test]
fn requests_of_one_reconcile_are_bounded() {
    let some = |number: u64| answered([20 + number, 21 + number], 1, "", 201);
    let (reconcile, _) = reconcile((0..MAX_OF_RECONCILE as u64 + 3).map(some));
    assert_eq!((reconcile.made.requests.len(), reconcile.made.left_out), (MAX_OF_RECONCILE, 3));
}

#[test]
fn what_a_request_is_about_is_in_its_path() {
    let path = |path: &str| Request { path: Some(path.to_owned()), ..Request::default() };
    for (made, api, about) in [
        ("/api/v1/namespaces/a/pods/b/status", "v1", ["a", "pods", "b", "status"]),
        ("/apis/apps/v1/namespaces/a/deployments/b", "apps/v1", ["a", "deployments", "b", ""]),
        ("/cluster/apis/g.io/v2/things/c", "g.io/v2", ["", "things", "c", ""]),
        ("/api/v1/namespaces/a", "v1", ["", "namespaces", "a", ""]),
        ("/api/v1/namespaces/a/finalize", "v1", ["", "namespaces", "a", "finalize"]),
        ("/api/v1/namespaces/api/pods", "v1", ["api", "pods", "", ""]),
        ("/version", "", ["", "", "", ""]),
    ] {
        let [namespace, resource, name, subresource] = about;
        let expected = About { api: api.to_owned(), namespace, resource, name, subresource };
        assert_eq!(path(made).about(), expected, "{made}");
    }
}

#[test]
fn names_in_requests_are_replaced_where_recordings_hide_names() {
    for (status, value) in [(200, Value::RequestPath), (0, Value::RequestError)] {
        for (path, expected) in [
            ("/api/v1/namespaces/a/pods/b/status", "/api/v1/namespaces/namespace a/pods/object b/status"),
            ("/proxy/apis/apps/v1/namespaces/a/jobs", "/apis/apps/v1/namespaces/namespace a/jobs"),
            ("/api/v1/nodes/a", "/api/v1/nodes/object a"),
            ("/api/v1/namespaces/a/finalize", "/api/v1/namespaces/namespace a/finalize"),
            ("/healthz/a", "path /healthz/a"),
        ] {
            let mut values = set(answered([1, 2], 1, "", status), value, path).values;
            <ClientGo as Program>::redact(&mut values, &mut |kind, name| *name = format!("{kind} {name}"));
            assert_eq!(
                (values.text(value), values.text(Value::RequestMethod)),
                (Some(expected), Some("POST"))
            );
        }
    }
    let mut values = set(answered([1, 2], 1, "", 0), Value::RequestError, "*a.Error").values;
    <ClientGo as Program>::redact(&mut values, &mut |kind, name| *name = format!("{kind} {name}"));
    assert_eq!(values.text(Value::RequestError), Some("message *a.Error"));
    let mut values = decoded(1, 1, "u").values;
    <ClientGo as Program>::redact(&mut values, &mut |kind, name| *name = format!("{kind} {name}"));
    let seen = [Value::ObjectUid, Value::ObjectName, Value::ObjectVersion].map(|value| values.text(value));
    assert_eq!(seen, [Some("uid u"), Some("object a-1"), Some("77")]);
}

fn trace(reconcile: &Reconcile) -> Trace {
    reconcile.trace(Anchor::default(), Origin::default(), Extras { monotonic: true, ..Extras::default() })
}

fn spans_of(events: impl IntoIterator<Item = Event>) -> Vec<Span> {
    trace(&reconcile(events).0).spans
}

fn shown(span: &Span) -> String {
    let of = |(key, value): &(&str, ::spans::AttributeValue)| format!("{key}={value}");
    let ours = span.attributes.iter().filter(|(key, _)| !key.starts_with("schedspan.monotonic"));
    ours.map(of).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_request_is_a_span_below_its_reconcile() {
    let answer = started_by(1, answered([20, 90], 5, "", 201));
    let spans = spans_of([limited(21, 5, 1_500_000), answer, decoded(95, 5, "u-1")]);
    let [root, request] = &spans[..] else { panic!("there are two spans") };
    assert_eq!((request.kind, request.parent_id), (SpanKind::Request, Some(root.span_id)));
    assert_eq!((&*request.name.as_str(), request.start_unix_ns, request.end_unix_ns), ("POST pods", 20, 95));
    let expected = "http.request.method=POST http.response.status_code=201 k8s.request.api=v1 \
                    k8s.request.resource=pods k8s.namespace.name=default k8s.object.name=a-1 k8s.pod.name=a-1 \
                    k8s.object.uid=u-1 k8s.pod.uid=u-1 k8s.object.resource_version=77 \
                    k8s.request.rate_limiter.wait_ms=1.5";
    assert_eq!((shown(request), &request.status), (expected.to_owned(), &Status::Unset));
    assert!(spans.iter().all(|span| span.attribute(attributes::MONOTONIC_END).is_some()));
}

#[test]
fn a_request_that_fails_is_an_error_with_its_type() {
    let of = |events: Vec<Event>| {
        let spans = spans_of(events);
        (shown(&spans[1]), spans[1].status.clone())
    };
    let twice = [answered([20, 30], 1, "a", 500), answered([20, 40], 1, "a", 409)];
    let (list, status) = of(twice.into());
    assert!(
        list.contains("http.response.status_code=409 error.type=409 http.request.resend_count=1"),
        "{list}"
    );
    assert_eq!(status, Status::Error("HTTP status 409".to_owned()));
    let (list, status) = of(vec![answered([20, 30], 1, "a", 0)]);
    assert!(list.starts_with("http.request.method=POST error.type=*url.Error"), "{list}");
    assert_eq!(status, Status::Error("*url.Error".to_owned()));
}

fn leads_to(span: &Span) -> Vec<(Relation, [u8; 16], [u8; 8])> {
    let of = |link: &::spans::Link| (link.relation.clone(), link.context.trace_id, link.context.span_id);
    span.links.iter().map(of).collect()
}

#[test]
fn a_pod_that_is_created_has_a_span_in_its_own_trace_and_both_traces_are_linked() {
    let events = [started_by(1, answered([20, 90], 5, "", 201)), decoded(95, 5, "u-1")];
    let whole = trace(&reconcile(events).0);
    let [_, request] = &whole.spans[..] else { panic!("there are two spans") };
    let [creation] = &whole.beside[..] else { panic!("there is one creation") };
    let (id, root) = (lifecycle_id("u-1"), creation.root());
    assert_eq!((creation.kind, creation.trace_id, creation.spans.len()), (TraceKind::PodCreation, id, 1));
    assert_eq!(
        creation.parent.as_ref().map(|parent| (parent.trace_id, parent.span_id)),
        Some((id, span_id(&id, 0)))
    );
    assert_eq!((root.span_id, &*root.name.as_str()), (creation_id("u-1"), "create Pod"));
    assert_eq!((root.start_unix_ns, root.end_unix_ns), (request.start_unix_ns, request.end_unix_ns));
    let expected = "k8s.namespace.name=default k8s.pod.name=a-1 k8s.pod.uid=u-1 k8s.workqueue.name=pods \
                    k8s.workqueue.key=a";
    assert_eq!(shown(root), expected);
    assert_eq!(leads_to(root), [(Relation::Request(Evidence::Uid), whole.trace_id, request.span_id)]);
    assert_eq!(leads_to(request), [(Relation::Pod(Evidence::Uid), id, root.span_id)]);
    assert!(root.attribute(attributes::MONOTONIC_END).is_some());
}

#[test]
fn pods_of_an_owner_and_the_reconciles_that_created_them_are_in_one_trace_if_that_is_asked_for() {
    let of_pod = |at, uid: &str, owner: &str| {
        let object = set(decoded(at + 2, 1, uid), Value::ObjectOwner, owner);
        [answered([at, at + 1], 1, "", 201), object]
    };
    let extras = Extras { lifecycle: LifecycleTrace::Owner, ..Extras::default() };
    let of = |reconcile: &Reconcile| reconcile.trace(Anchor::default(), Origin::default(), extras);
    let (first, _) = reconcile([of_pod(20, "u-1", "o"), of_pod(30, "u-2", "o")].concat());
    let whole = of(&first);
    let id = lifecycle_id("o");
    let created = ["u-1", "u-2"].map(|uid| (id, Some((id, lifecycle_root(uid))), creation_id(uid)));
    let parent = |trace: &Trace| trace.parent.as_ref().map(|parent| (parent.trace_id, parent.span_id));
    let beside = |trace: &Trace| (trace.trace_id, parent(trace), trace.root().span_id);
    assert_eq!(whole.beside.iter().map(beside).collect::<Vec<_>>(), created);
    assert_eq!((whole.trace_id, whole.parent.is_none()), (id, true));
    assert_eq!(
        leads_to(whole.beside[0].root()),
        [(Relation::Request(Evidence::Uid), id, whole.spans[1].span_id)]
    );
    // The ids of spans are those of any other reconcile.
    let ids = |trace: &Trace| trace.spans.iter().map(|span| span.span_id).collect::<Vec<_>>();
    assert_eq!(ids(&whole), ids(&trace(&first)));
    assert_ne!(trace(&first).trace_id, id);
    let (alone, _) = reconcile(of_pod(20, "u-3", ""));
    assert_eq!(of(&alone).trace_id, trace(&alone).trace_id, "a Pod without an owner");
    assert_eq!(of(&alone).beside[0].trace_id, lifecycle_id("u-3"));
}

#[test]
fn a_link_to_a_creator_leads_to_the_trace_that_it_is_in() {
    let deployment = |at, what| of_named(of_queue(at, 1, what, "default/web"), 1, "deployment");
    let replica_set = |at, what| of_named(of_queue(at, 2, what, "default/web-1"), 2, "replicaset");
    // A controller that creates a Pod of its own, too.
    let mut pod = [answered([30, 31], 1, "", 201), decoded(32, 1, "u-1")];
    pod[1].values.set(Value::ObjectOwner, "o");
    let mut events = vec![deployment(10, Function::Get)];
    events.extend(of_replica_set(20, 1, "POST", 201, "r-1"));
    events.extend(pod);
    events.extend([replica_set(40, Function::Get), replica_set(50, Function::Done)]);
    events.push(deployment(60, Function::Done));
    let mut finished = finished(&mut after(events));
    let (by, of) = (finished.remove(1), finished.remove(0));
    for lifecycle in [LifecycleTrace::Pod, LifecycleTrace::Owner] {
        let extras = Extras { lifecycle, ..Extras::default() };
        let [by, of] =
            [&by, &of].map(|reconcile| reconcile.trace(Anchor::default(), Origin::default(), extras));
        assert_eq!(by.trace_id == lifecycle_id("o"), lifecycle == LifecycleTrace::Owner);
        let creator = (Relation::Creator(Evidence::Name), by.trace_id, by.root().span_id);
        assert_eq!(leads_to(of.root()), [creator]);
    }
}

#[test]
fn what_creates_no_pod_has_no_creation() {
    let of = |status, uid| [answered([20, 90], 1, "", status), decoded(95, 1, uid)];
    let of_subresource = [answered([20, 90], 1, "a/binding", 201), decoded(95, 1, "u-1")];
    let mut of_other = of(201, "u-1");
    of_other[1].values.set(Value::ObjectType, Arc::from("*v1.Status"));
    for events in [of(200, "u-1"), of(409, "u-1"), of(201, ""), of_subresource, of_other] {
        let whole = trace(&reconcile(events).0);
        assert_eq!((whole.beside.len(), whole.spans[1].links.len()), (0, 0));
    }
}

/// Kind, trace, parent, attributes and the evidence of what is beside a reconcile; and how its requests are linked.
fn beside(whole: &Trace) -> Vec<(TraceKind, [u8; 16], String, Evidence)> {
    let requests: Vec<_> = whole.spans[1..].iter().filter(|span| !span.links.is_empty()).collect();
    assert_eq!(requests.len(), whole.beside.len());
    let of = |(part, request): (&Trace, &&Span)| {
        let root = part.root();
        let parent = part.parent.as_ref().map(|parent| (parent.trace_id, parent.span_id));
        let uid = root.attribute(attributes::POD_UID).map(ToString::to_string).unwrap_or_default();
        assert_eq!(parent, Some((part.trace_id, lifecycle_root(&uid))));
        assert_eq!((root.start_unix_ns, root.end_unix_ns), (request.start_unix_ns, request.end_unix_ns));
        let [(relation, trace_id, span_id)] = &leads_to(root)[..] else { panic!("there is one link") };
        let Relation::Request(evidence) = relation else { panic!("it is {relation:?}") };
        assert_eq!((*trace_id, *span_id), (whole.trace_id, request.span_id));
        assert_eq!(leads_to(request), [(Relation::Pod(*evidence), part.trace_id, root.span_id)]);
        assert_eq!(SpanKind::Root(part.kind), root.kind);
        (part.kind, part.trace_id, shown(root), *evidence)
    };
    whole.beside.iter().zip(&requests).map(of).collect()
}

#[test]
fn nothing_but_which_object_it_is_about_is_kept_of_an_answer() {
    let mut replace = |kind: &'static str, text: &mut String| *text = format!("{kind}-{}", text.len());
    assert_eq!(keep(Value::AnswerObject, EVICTED.to_owned()), None);
    assert_eq!(keep(Value::ObjectName, EVICTED.to_owned()).as_deref(), Some(EVICTED));
    for (kept, expected) in [("u-1 78", "uid-3 78"), ("u-1", "uid-3")] {
        let mut datum = Datum::Text(kept.to_owned());
        redact(Value::AnswerObject, &mut datum, &mut replace);
        assert_eq!(datum, Datum::Text(expected.to_owned()));
    }
    assert_eq!(keep(Value::AnswerObject, DELETED.to_owned()).as_deref(), Some("u-1 78"));
}

#[test]
fn a_reconcile_is_linked_with_the_one_that_scaled_its_object_and_the_next_one_with_that() {
    let deployment = |at, what| of_named(of_queue(at, 1, what, "default/web"), 1, "deployment");
    let replica_set = |at, what| of_named(of_queue(at, 2, what, "default/web-1"), 2, "replicaset");
    let write = |at, goroutine, method: &str, version: &str| {
        let mut events =
            of_replica_set(at, goroutine, method, if method == "POST" { 201 } else { 200 }, "u-1");
        events[1].values.set(Value::ObjectVersion, version);
        events
    };
    let events = [
        vec![deployment(10, Function::Get)],
        write(20, 1, "POST", "1").into(),
        vec![deployment(30, Function::Done), replica_set(31, Function::Get)],
        write(32, 2, "PUT", "2").into(),
        vec![replica_set(40, Function::Done), deployment(50, Function::Get), replica_set(51, Function::Get)],
        // The answer comes after the event that makes a worker take the key.
        write(52, 1, "PUT", "3").into(),
        vec![deployment(60, Function::Done)],
        write(61, 2, "PUT", "4").into(),
        vec![
            replica_set(70, Function::Done),
            replica_set(80, Function::Get),
            replica_set(90, Function::Done),
        ],
    ];
    let traces: Vec<Trace> = finished(&mut after(events.into_iter().flatten())).iter().map(trace).collect();
    let [created, first, scaled, second, third] = &traces[..] else { panic!("there are five reconciles") };
    let link = |relation, of: &Trace| (relation, of.trace_id, of.root().span_id);
    let creator = |evidence| link(Relation::Creator(evidence), created);
    assert_eq!(leads_to(created.root()), []);
    assert_eq!(leads_to(scaled.root()), []);
    assert_eq!(leads_to(first.root()), [creator(Evidence::Uid)]);
    let by = link(Relation::Writer(Evidence::Uid), scaled);
    assert_eq!(leads_to(second.root()), [creator(Evidence::Uid), by]);
    let by = link(Relation::Writer(Evidence::Name), second);
    assert_eq!(leads_to(third.root()), [creator(Evidence::Name), by]);
}

/// The request of a ReplicaSet, by this method, and its answer.
fn of_replica_set(time_ns: u64, goroutine: u64, method: &str, status: u64, uid: &str) -> [Event; 2] {
    let mut answer = answered([time_ns, time_ns + 1], goroutine, "", status);
    answer.values.set(Value::RequestPath, "/apis/apps/v1/namespaces/default/replicasets");
    answer.values.set(Value::RequestMethod, method);
    let mut object = decoded(time_ns + 2, goroutine, uid);
    object.values.set(Value::ObjectType, Arc::from("*v1.ReplicaSet"));
    object.values.set(Value::ObjectName, "web-1");
    [answer, object]
}

fn of_named(mut event: Event, metrics: u64, queue: &str) -> Event {
    event.values.set(Value::Metrics, metrics);
    event.values.set(Value::Queue, queue);
    event
}

#[test]
fn a_reconcile_is_linked_with_the_one_that_created_its_object_even_while_that_goes_on() {
    let deployment = |at, what| of_named(of_queue(at, 1, what, "default/web"), 1, "deployment");
    let replica_set = |at, what| of_named(of_queue(at, 2, what, "default/web-1"), 2, "replicaset");
    let events = [vec![deployment(10, Function::Get)], of_replica_set(20, 1, "POST", 201, "u-1").into()];
    let first = [vec![replica_set(30, Function::Get), replica_set(40, Function::Done)]];
    let second = [
        vec![replica_set(50, Function::Get)],
        of_replica_set(60, 2, "PUT", 200, "u-1").into(),
        vec![replica_set(70, Function::Done)],
    ];
    let end = [vec![deployment(80, Function::Done)]];
    let events = events.into_iter().chain(first).chain(second).chain(end).flatten();
    let traces: Vec<Trace> = finished(&mut after(events)).iter().map(trace).collect();
    let [first, second, deployment] = &traces[..] else { panic!("there are three reconciles") };
    let root = |evidence| (Relation::Creator(evidence), deployment.trace_id, deployment.root().span_id);
    assert_eq!(leads_to(first.root()), [root(Evidence::Name)]);
    assert_eq!(leads_to(second.root()), [root(Evidence::Uid)]);
    assert!(deployment.root().links.is_empty() && deployment.beside.is_empty());
}

/// The result of the reconcile of the key `a`, whose requests are these.
fn result(events: impl IntoIterator<Item = Event>) -> String {
    let events = [of_queue(10, 1, Function::Get, "a")].into_iter().chain(events);
    let mut assembler = after(events.chain([of_queue(900, 1, Function::Done, "a")]));
    let finished = finished(&mut assembler);
    let counts = assembler.counts().into_iter().filter(|count| count.counter == "workqueue_reconciles");
    let one = counts.filter(|count| count.total == 1).map(|count| count.labels[1].clone());
    let one = one.collect::<Vec<_>>().concat();
    assert_eq!(finished[0].is_idle(), one == "idle");
    one
}

#[test]
fn a_reconcile_is_idle_if_it_certainly_wrote_nothing_and_no_request_failed() {
    // Another one shows that requests of the process are seen.
    let beside = answered([11, 12], 50, "", 200);
    let read = |status| {
        let mut answer = answered([20, 30], 1, "b", status);
        answer.values.set(Value::RequestMethod, "GET");
        [beside.clone(), answer]
    };
    let retry = of_named(of_queue(40, 1, Function::Retry, "a"), 9, "pods");
    for (events, expected) in [
        (vec![], "busy"),
        (vec![beside.clone()], "idle"),
        (read(200).into(), "idle"),
        (read(404).into(), "busy"),
        (vec![answered([20, 30], 1, "", 201)], "busy"),
        (vec![beside.clone(), retry], "retried"),
    ] {
        assert_eq!(result(events.clone()), expected, "{events:?}");
    }
    let mut assembler = after([beside.clone(), of_queue(20, 1, Function::Get, "a")]);
    assembler.exit(1);
    assert!(!finished(&mut assembler)[0].is_idle());
}

/// A request as it was: when it began, by which reconcile, and its answer.
struct Truth {
    start_ns: u64,
    reconcile: u64,
    status: Option<u64>,
}

/// Name and UID of the Pod that a request deletes which began then.
fn pod_at(start_ns: u64) -> String {
    format!("pod-{start_ns}")
}

/// The beginning of the answer to it.
fn answer_of(start_ns: u64) -> String {
    format!("{{\"kind\":\"\"uid\":\"{}\"", pod_at(start_ns))
}

/// Workers with one goroutine each, and goroutines that they start and wait for; informers beside them, and a goroutine that deletes Pods.
/// Last in the result: when its requests began that were answered.
fn run(bytes: &[u8], losses: bool) -> (Vec<Event>, Vec<Truth>, Vec<u64>) {
    const WORKERS: u64 = 3;
    let (mut events, mut truth) = (Vec::new(), Vec::new());
    // The beginning of the reconcile of each worker, the request of each goroutine, and the next goroutine.
    let mut open = [None::<u64>; WORKERS as usize + 1];
    let mut requests: BTreeMap<u64, Option<usize>> = BTreeMap::new();
    let (mut time_ns, mut fresh, mut last_loss) = (0, 100, 0);
    let mut children: BTreeMap<u64, u64> = BTreeMap::new();
    // The Pod that was deleted on a goroutine, of which the answer is not looked at yet.
    let mut deleted: BTreeMap<u64, u64> = BTreeMap::new();
    // The request of the goroutine without reconciles, and whether it was answered.
    let (mut alone, mut outside) = (None::<(u64, bool)>, Vec::new());
    for choice in bytes.chunks_exact(2) {
        time_ns += 10;
        let lose = losses && choice[1] % 16 == 15;
        let worker = 1 + u64::from(choice[1]) % WORKERS;
        let place = worker as usize;
        let key = format!("key-{worker}");
        let own: Vec<u64> =
            children.iter().filter(|(_, of)| **of == worker).map(|(child, _)| *child).collect();
        let somewhere = if own.is_empty() { worker } else { own[usize::from(choice[1] / 3) % own.len()] };
        let event = match choice[0] % 13 {
            0 if open[place].is_none() => {
                open[place] = Some(time_ns);
                of_queue(time_ns, worker, Function::Get, &key)
            }
            1 if open[place].is_some() && own.iter().all(|child| requests[child].is_none()) => {
                open[place] = None;
                children.retain(|_, of| *of != worker);
                requests.remove(&worker);
                of_queue(time_ns, worker, Function::Done, &key)
            }
            2 | 3 if open[place].is_some() && requests.get(&worker).is_none_or(Option::is_none) => {
                let goroutine = if choice[0] % 2 == 0 { worker } else { fresh };
                if goroutine == fresh {
                    fresh += 1;
                    children.insert(goroutine, worker);
                }
                let reconcile = open[place].unwrap_or_default();
                requests.insert(goroutine, Some(truth.len()));
                deleted.remove(&goroutine);
                truth.push(Truth { start_ns: time_ns, reconcile, status: None });
                continue;
            }
            // An informer.
            4 => answered([time_ns - 5, time_ns], 50, "", 200),
            5 => limited(time_ns, somewhere, 1),
            6 | 7 if requests.get(&somewhere).is_some_and(Option::is_some) => {
                let number = requests.insert(somewhere, None).flatten().unwrap_or_default();
                let status = 200 + u64::from(choice[1]);
                truth[number].status = Some(status);
                deleted.insert(somewhere, truth[number].start_ns);
                let start_ns = truth[number].start_ns;
                let mut answer = answered([start_ns, time_ns], somewhere, &pod_at(start_ns), status);
                answer.values.set(Value::RequestMethod, "DELETE");
                if somewhere == worker { answer } else { started_by(worker, answer) }
            }
            8 | 9 => {
                let Some(start_ns) = deleted.remove(&somewhere) else { continue };
                checked(time_ns, somewhere, &answer_of(start_ns))
            }
            10 => {
                alone = Some((time_ns, false));
                continue;
            }
            11 if alone.is_some_and(|(_, is_answered)| !is_answered) => {
                let (start_ns, _) = alone.unwrap_or_default();
                alone = Some((start_ns, true));
                let mut answer = answered([start_ns, time_ns], 60, &pod_at(start_ns), 200);
                answer.values.set(Value::RequestMethod, "DELETE");
                answer
            }
            12 if alone.is_some_and(|(_, is_answered)| is_answered) => {
                let (start_ns, _) = alone.take().unwrap_or_default();
                outside.push(start_ns);
                checked(time_ns, 60, &answer_of(start_ns))
            }
            _ => continue,
        };
        if lose {
            last_loss += 1;
        } else {
            events.push(Event { last_loss, ..event });
        }
    }
    (events, truth, outside)
}

fn check(bytes: &[u8], losses: bool) {
    let (events, truth, outside) = run(bytes, losses);
    let mut assembler = after(events.iter().cloned());
    assembler.exit(1);
    let all = assembler.take_finished();
    let finished: Vec<&Reconcile> = all.iter().filter_map(Finished::reconcile).collect();
    let alone: Vec<u64> = all
        .iter()
        .filter_map(|done| if let Finished::Removal(removal) = done { Some(removal) } else { None })
        .map(|removal| {
            assert_eq!(removal.removed.uid, pod_at(removal.request.start_ns));
            removal.request.start_ns
        })
        .collect();
    assert!(losses || alone == outside, "{alone:?} of {outside:?}");
    let account = assembler.account();
    assert_eq!((account.open(), account.events), (0, events.len() as u64));
    let by_start: BTreeMap<u64, &Truth> = truth.iter().map(|truth| (truth.start_ns, truth)).collect();
    // A reconcile may be lost, and its requests not.
    let is_one = |start_ns: &u64| outside.contains(start_ns) || losses && by_start.contains_key(start_ns);
    assert!(alone.iter().all(is_one), "{alone:?} of {outside:?}");
    let mut seen = 0;
    for reconcile in &finished {
        for request in &reconcile.made.requests {
            let truth = by_start[&request.start_ns];
            assert_eq!(reconcile.start_ns, truth.reconcile);
            assert!(!alone.contains(&request.start_ns), "{request:?}");
            assert_eq!(request.status, truth.status, "{request:?}");
            let removed = request.removed.as_ref().map(|removed| &*removed.uid);
            assert!(removed.is_none_or(|uid| uid == pod_at(truth.start_ns)), "{request:?}");
            assert!(removed.is_none() || request.succeeded(), "{request:?}");
            seen += 1;
        }
    }
    let answered = truth.iter().filter(|truth| truth.status.is_some()).count();
    assert!(losses || seen == answered, "{seen} of {answered}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn every_request_is_found_below_its_reconcile(bytes in vec(any::<u8>(), 0..400)) {
        check(&bytes, false);
    }

    #[test]
    fn whatever_is_lost_no_request_is_below_another_reconcile(bytes in vec(any::<u8>(), 0..400)) {
        check(&bytes, true);
    }
}
