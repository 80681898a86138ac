//! What is said of single requests.

use std::sync::Arc;

use ::spans::ApiStep;
use gotrace::{
    Role,
    account::{Account, Stats},
    program::{Assemble as _, Program as _},
};

use super::{Assembler, MAX_CALLS, SILENCE_NS, Stored};
use crate::{Event, KubeApiserver, Values, table::Function, values::Value};

const ALICE: &str = "alice";
/// The goroutine that starts those of requests.
const HANDLER: u64 = 3;

fn event(time_ns: u64, goroutine: u64, (function, role): (Function, Role), values: Values) -> Event {
    Event { target: 1, time_ns, goroutine, depth: 40, function, role, took_ns: 0, last_loss: 0, values }
}

/// What is read of a request to create a Pod.
pub(super) fn of_request(operation: &str, elapsed: u64) -> Values {
    Values::default()
        .with(Value::ResourceLength, 4)
        .with(Value::Operation, operation)
        .with(Value::Resource, "pods")
        .with(Value::SubresourceLength, 0)
        .with(Value::Elapsed, elapsed)
        .with(Value::Rejected, false)
}

fn step(time_ns: u64, name: &str, elapsed: u64) -> Event {
    let values = of_request("CREATE", elapsed)
        .with(Value::User, ALICE)
        .with(Value::StepLength, name.len() as u64)
        .with(Value::Parent, HANDLER);
    event(time_ns, 7, (Function::Step, Role::Entry), values)
}

fn webhook(time_ns: u64, goroutine: u64, name: &str, elapsed: u64) -> Event {
    let values = of_request("CREATE", elapsed)
        .with(Value::Webhook, name)
        .with(Value::Code, 200)
        .with(Value::Parent, 7);
    event(time_ns, goroutine, (Function::Webhook, Role::Entry), values)
}

pub(super) fn of_object(key: &str, uid: &str) -> Values {
    Values::default()
        .with(Value::ResourceLength, 4)
        .with(Value::Key, key)
        .with(Value::ObjectUid, uid)
        .with(Value::OwnerUid, "owner")
        .with(Value::Manager, "kubectl")
}

fn store(time_ns: u64, uid: &str) -> Event {
    event(time_ns, 7, (Function::Store, Role::Entry), of_object("/pods/shop/web-0", uid))
}

fn stored(time_ns: u64, failed: u64) -> Event {
    event(time_ns, 7, (Function::Store, Role::Ret), Values::default().with(Value::Failed, failed))
}

/// What a patch gives that creates the Pod.
pub(super) fn of_patch(name: &str, uid: &str) -> Values {
    Values::default()
        .with(Value::Created, true)
        .with(Value::ObjectType, Arc::from("*core.Pod"))
        .with(Value::VersionLength, 3)
        .with(Value::ObjectUid, uid)
        .with(Value::Namespace, "shop")
        .with(Value::Name, name)
}

fn patched(time_ns: u64, uid: &str) -> Event {
    let values = of_patch("web-0", uid).with(Value::OwnerUid, "owner");
    event(time_ns, HANDLER, (Function::Patch, Role::ReturnSite), values)
}

fn with(mut event: Event, value: Value, datum: impl gotrace::values::IntoDatum) -> Event {
    event.values.set(value, datum);
    event
}

fn after(events: impl IntoIterator<Item = Event>) -> Assembler {
    let mut assembler = Assembler::default();
    events.into_iter().for_each(|event| assembler.on(event));
    assembler
}

fn one(assembler: &mut Assembler) -> Stored {
    let mut all = assembler.take_finished();
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

/// Steps with their times and whether they failed.
fn calls(stored: &Stored) -> Vec<(ApiStep, u64, Option<u64>, bool)> {
    stored.calls.iter().map(|call| (call.step, call.start_ns, call.end_ns, call.failed)).collect()
}

fn result(assembler: &Assembler, result: &str) -> u64 {
    let is = |count: &&gotrace::account::Count| {
        count.counter == "apiserver_pod_requests" && count.labels == [result]
    };
    assembler.counts().iter().find(is).map_or(0, |count| count.total)
}

/// The calls of one kind, those of other objects first.
fn counted(assembler: &Assembler, step: ApiStep) -> [u64; 2] {
    ["other", "pod"].map(|about| {
        let is = |count: &&gotrace::account::Count| count.labels == [step.name(), about];
        assembler.counts().iter().find(is).map_or(0, |count| count.total)
    })
}

#[test]
fn a_pod_is_stored_after_both_steps_of_admission() {
    let mut assembler =
        after([step(100, "admit", 50), step(200, "validate", 30), store(210, "uid"), stored(300, 0)]);
    let stored = one(&mut assembler);
    assert_eq!(
        calls(&stored),
        [
            (ApiStep::Mutation, 50, Some(100), false),
            (ApiStep::Validation, 170, Some(200), false),
            (ApiStep::Storage, 210, Some(300), false),
        ]
    );
    let pod = &stored.pod;
    assert_eq!((&*pod.uid, &*pod.namespace, &*pod.name), ("uid", "shop", "web-0"));
    assert_eq!((pod.owner.as_deref(), pod.manager.as_deref()), (Some("owner"), Some("kubectl")));
    assert_eq!((stored.user.as_deref(), stored.events, stored.incomplete), (Some(ALICE), 4, false));
    assert_eq!(assembler.account(), Account { events: 4, in_attempts: 4, ..Account::default() });
    assert_eq!(result(&assembler, "created"), 1);
    assert_eq!(counted(&assembler, ApiStep::Mutation), [0, 1]);
}

#[test]
fn a_pod_by_server_side_apply_is_stored_when_the_patch_is_over() {
    let mut assembler = after([step(100, "admit", 50), step(200, "validate", 30), patched(300, "uid")]);
    let stored = one(&mut assembler);
    let steps = [(ApiStep::Mutation, 50, Some(100), false), (ApiStep::Validation, 170, Some(200), false)];
    assert_eq!((calls(&stored), stored.end_ns), (steps.to_vec(), 300));
    let pod = &stored.pod;
    assert_eq!((&*pod.uid, &*pod.namespace, &*pod.name), ("uid", "shop", "web-0"));
    assert_eq!((pod.owner.as_deref(), pod.manager.as_deref()), (Some("owner"), None));
    assert_eq!((stored.user.as_deref(), stored.events, stored.incomplete), (Some(ALICE), 3, false));
    assert_eq!(assembler.account(), Account { events: 3, in_attempts: 3, ..Account::default() });
    assert_eq!(result(&assembler, "created"), 1);
}

#[test]
fn a_patch_that_creates_no_pod_stores_none() {
    let admitted = || [step(100, "admit", 50), step(200, "validate", 30)];
    let event = || patched(300, "uid");
    for patch in [
        // It failed, or was a trial.
        with(event(), Value::Created, false),
        with(event(), Value::Created, None::<bool>),
        with(event(), Value::VersionLength, 0),
        with(event(), Value::ObjectType, Arc::<str>::from("*core.ConfigMap")),
    ] {
        let mut assembler = after(admitted().into_iter().chain([patch]));
        assert_eq!((assembler.take_finished(), result(&assembler, "unstored")), (vec![], 1));
        assert_eq!(assembler.account(), Account { events: 3, skipped: 3, ..Account::default() });
    }
    // Most patches change what is there.
    let mut assembler = after([Event { goroutine: 4, ..event() }, event(), patched(400, "uid")]);
    assert_eq!((assembler.take_finished(), assembler.account().unrelated), (vec![], 3));
    // One of another process.
    let mut assembler = after(admitted().into_iter().chain([Event { target: 2, ..event() }]));
    assert_eq!((assembler.take_finished(), assembler.account().unrelated), (vec![], 1));
}

#[test]
fn webhooks_that_validate_are_called_on_goroutines_of_their_own() {
    let mut assembler = after([
        webhook(90, 7, "changes", 20),
        step(100, "admit", 50),
        webhook(190, 8, "checks", 20),
        webhook(191, 9, "checks too", 21),
        step(200, "validate", 30),
        store(210, "uid"),
        stored(300, 0),
    ]);
    let stored = one(&mut assembler);
    let webhooks: Vec<_> = stored.calls.iter().filter_map(|call| call.webhook.as_deref()).collect();
    assert_eq!((webhooks, stored.events), (vec!["changes", "checks", "checks too"], 7));
    assert!(assembler.requests.is_empty());
}

#[test]
fn a_webhook_that_fails_may_be_ignored() {
    let ignored = with(webhook(90, 7, "changes", 20), Value::Code, 500);
    let mut assembler =
        after([ignored, step(100, "admit", 50), step(200, "validate", 1), store(210, "uid"), stored(300, 0)]);
    let stored = one(&mut assembler);
    assert_eq!((stored.calls[0].failed, stored.calls[0].code), (true, Some(500)));
}

#[test]
fn a_name_that_is_taken_is_tried_again_with_another_uid() {
    let mut assembler = after([
        step(100, "admit", 50),
        step(200, "validate", 30),
        store(210, "first"),
        stored(220, 1),
        step(230, "validate", 5),
        store(240, "second"),
        stored(250, 0),
    ]);
    let stored = one(&mut assembler);
    assert_eq!((&*stored.pod.uid, stored.calls.len(), stored.events), ("second", 5, 7));
    assert_eq!(calls(&stored)[2], (ApiStep::Storage, 210, Some(220), true));
    assert_eq!(assembler.stats(), Stats::default());
}

#[test]
fn what_does_not_come_to_a_pod_is_counted_by_its_reason() {
    let rejected = with(step(200, "validate", 30), Value::Rejected, true);
    let mut assembler = after([step(100, "admit", 50), rejected]);
    assert_eq!(result(&assembler, "rejected"), 1);
    for event in [step(300, "admit", 1), store(310, "uid"), stored(320, 1)] {
        assembler.on(event);
    }
    assembler.expire(320 + SILENCE_NS + 1);
    // A dry run ends with its validation.
    assembler.on(step(400 + SILENCE_NS, "validate", 1));
    assembler.exit(1);
    let results =
        ["created", "rejected", "failed", "unstored", "unseen"].map(|name| result(&assembler, name));
    assert_eq!(results, [0, 1, 1, 1, 0]);
    assert_eq!((assembler.take_finished(), assembler.stats().skipped), (vec![], 3));
    assert_eq!(assembler.account(), Account { events: 6, skipped: 6, ..Account::default() });
}

#[test]
fn what_is_not_about_the_creation_of_a_pod_is_only_counted() {
    // Its strings are not read.
    let lease = Values::default().with(Value::ResourceLength, 6).with(Value::StepLength, 5);
    let mut assembler = after([
        event(1, 7, (Function::Step, Role::Entry), lease),
        with(step(2, "validate", 1), Value::Operation, "UPDATE"),
        with(step(3, "validate", 1), Value::SubresourceLength, 7),
        with(step(4, "validate", 1), Value::Resource, "jobs"),
        event(5, 7, (Function::Store, Role::Entry), Values::default().with(Value::ResourceLength, 6)),
        stored(6, 0),
        event(7, 7, (Function::Store, Role::Entry), of_object("/jobs/shop/once", "uid")),
        stored(8, 0),
    ]);
    assert_eq!((assembler.take_finished(), assembler.requests.len(), assembler.others.len()), (vec![], 0, 0));
    assert_eq!(assembler.account(), Account { events: 8, unrelated: 8, ..Account::default() });
    assert_eq!(counted(&assembler, ApiStep::Mutation), [1, 0]);
    assert_eq!(counted(&assembler, ApiStep::Validation), [3, 0]);
    assert_eq!(counted(&assembler, ApiStep::Storage), [2, 0]);
}

#[test]
fn a_pod_whose_end_was_not_seen_is_incomplete() {
    for end in [Some(with(stored(300, 0), Value::Failed, None::<u64>)), None] {
        let is_unwound = u64::from(end.is_none());
        let mut assembler = after([step(100, "admit", 50), store(210, "uid")].into_iter().chain(end));
        assembler.exit(1);
        let stored = one(&mut assembler);
        assert_eq!((&*stored.pod.uid, stored.incomplete), ("uid", true));
        let stats = Stats { incomplete_attempts: 1, unwound_calls: is_unwound, ..Stats::default() };
        assert_eq!((assembler.stats(), assembler.account().open()), (stats, 0));
        assert_eq!(result(&assembler, "unseen"), 1);
    }
}

#[test]
fn after_a_loss_the_end_of_a_write_is_not_believed() {
    let mut late = stored(300, 0);
    late.last_loss = 9;
    let mut assembler = after([step(100, "admit", 50), store(210, "uid"), late]);
    let stored = one(&mut assembler);
    assert_eq!((stored.incomplete, stored.calls[1].end_ns), (true, None));
    assert_eq!((assembler.stats().stray_ends, assembler.account().open()), (1, 0));
}

#[test]
fn a_pod_without_a_uid_has_no_trace_and_is_a_loss() {
    let mut assembler = after([step(100, "admit", 50), store(210, ""), stored(300, 0)]);
    assert_eq!((assembler.take_finished(), assembler.stats().orphan_calls), (vec![], 1));
    assert_eq!(assembler.account(), Account { events: 3, orphaned: 3, ..Account::default() });
}

#[test]
fn bytes_that_are_no_name_are_no_user() {
    let strange = with(step(100, "admit", 50), Value::User, "\u{0}\u{1}@\u{fffd}");
    let mut assembler = after([strange, store(210, "uid"), stored(300, 0)]);
    assert_eq!(one(&mut assembler).user, None);
}

#[test]
fn times_that_cannot_be_are_none() {
    let mut assembler = after([step(100, "admit", u64::MAX), store(210, "uid"), stored(300, 0)]);
    assert_eq!(one(&mut assembler).calls[0].start_ns, 100);
}

#[test]
fn calls_are_bounded() {
    let webhooks = (0..MAX_CALLS as u64 + 3).map(|number| webhook(100 + number, 7, "changes", 1));
    let mut assembler = after(webhooks.chain([store(1_000, "uid"), stored(1_001, 0)]));
    let stored = one(&mut assembler);
    assert_eq!((stored.calls.len(), stored.left_out), (MAX_CALLS, 4));
}

#[test]
fn open_requests_are_bounded() {
    let step = |goroutine| Event { goroutine, ..step(100, "admit", 1) };
    let mut assembler = after((0..=super::MAX_OPEN as u64).map(step));
    assert_eq!((assembler.requests.len(), assembler.stats().table_full), (super::MAX_OPEN, 1));
    assembler.exit(1);
    assert_eq!(assembler.account().open(), 0);
}

#[test]
fn redaction_leaves_what_says_that_it_is_a_pod() {
    let mut step = step(1, "admit", 1).values;
    let mut pod = of_object("/pods/shop/web-0", "uid");
    let mut other = of_object("/acme.com/pets/shop/rex", "uid");
    let mut patched = of_patch("web-0", "uid");
    for values in [&mut step, &mut pod, &mut other, &mut patched] {
        KubeApiserver::redact(values, &mut |kind, name| *name = kind.to_owned());
    }
    assert_eq!((step.text(Value::Resource), step.text(Value::Operation)), (Some("pods"), Some("CREATE")));
    assert_eq!(step.text(Value::User), Some("user"));
    assert_eq!(pod.text(Value::Key), Some("/pods/namespace/pod"));
    assert_eq!(other.text(Value::Key), Some("/resource/namespace/pod/name"));
    let names = [Value::Namespace, Value::Name, Value::ObjectUid].map(|value| patched.text(value));
    assert_eq!(names, [Some("namespace"), Some("pod"), Some("uid")]);
    assert_eq!((pod.text(Value::ObjectUid), pod.text(Value::Manager)), (Some("uid"), Some("manager")));
}
