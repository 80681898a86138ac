//! Deletions and evictions of Pods: by reconciles, and outside of any.

use super::*;

/// How many requests removed Pods, by evidence.
fn removals(assembler: &Assembler) -> Vec<(String, u64)> {
    let counts = assembler.counts().into_iter().filter(|count| count.counter == "workqueue_pod_removals");
    counts.map(|count| (count.labels[0].clone(), count.total)).collect()
}

#[test]
fn a_pod_that_is_deleted_has_a_span_in_its_own_trace_and_both_traces_are_linked() {
    let (first, _) = reconcile(removed(20, 1, "a-1", false, DELETED));
    let whole = trace(&first);
    let expected = "k8s.namespace.name=default k8s.pod.name=a-1 k8s.pod.uid=u-1 k8s.workqueue.name=pods \
                    k8s.workqueue.key=a";
    let id = lifecycle_id("u-1");
    let of_pod = (TraceKind::PodDeletion, id, expected.to_owned(), Evidence::Uid);
    assert_eq!(beside(&whole), [of_pod]);
    assert_eq!(&*whole.beside[0].root().name.as_str(), "delete Pod");
    let request = "http.request.method=DELETE http.response.status_code=200 k8s.request.api=v1 \
                   k8s.request.resource=pods k8s.namespace.name=default k8s.object.name=a-1 k8s.pod.name=a-1 \
                   k8s.object.uid=u-1 k8s.pod.uid=u-1 k8s.object.resource_version=78 \
                   k8s.request.rate_limiter.wait_ms=0";
    assert_eq!(shown(&whole.spans[1]), request);
    // It may be deleted again.
    let twice = [removed(20, 1, "a-1", false, DELETED), removed(30, 1, "a-1", false, DELETED)].concat();
    let whole = trace(&reconcile(twice).0);
    assert_ne!(whole.beside[0].root().span_id, whole.beside[1].root().span_id);
}

#[test]
fn a_pod_that_is_evicted_is_known_by_its_name_if_the_process_has_seen_it_and_else_only_counted() {
    let created = [answered([20, 21], 1, "", 201), decoded(22, 1, "u-1")];
    let events = [
        created.to_vec(),
        removed(30, 1, "a-1", true, EVICTED).to_vec(),
        removed(40, 1, "a-2", true, EVICTED).to_vec(),
        removed(50, 1, "a-1", false, DELETED).to_vec(),
        // All of a namespace, of which the first one comes back.
        removed(60, 1, "", false, DELETED).to_vec(),
    ];
    let ends = [(10, Function::Get), (900, Function::Done)].map(|(at, what)| of_queue(at, 1, what, "a"));
    let [get, done] = ends;
    let mut assembler = after([get].into_iter().chain(events.concat()).chain([done]));
    let whole = trace(&finished(&mut assembler)[0]);
    let seen: Vec<_> =
        beside(&whole).into_iter().map(|(kind, id, _, evidence)| (kind, id, evidence)).collect();
    let id = lifecycle_id("u-1");
    let expected = [
        (TraceKind::PodCreation, id, Evidence::Uid),
        (TraceKind::PodEviction, id, Evidence::Name),
        (TraceKind::PodDeletion, id, Evidence::Uid),
    ];
    assert_eq!((seen.as_slice(), whole.spans.len()), (expected.as_slice(), 6));
    let counts = [("uid", 1), ("name", 1), ("none", 2)].map(|(evidence, total)| (evidence.to_owned(), total));
    assert_eq!(removals(&assembler), counts);
}

#[test]
fn in_the_trace_of_an_owner_a_deletion_is_of_a_pod_whose_owner_is_known() {
    let extras = Extras { lifecycle: LifecycleTrace::Owner, ..Extras::default() };
    let of = |events: Vec<Event>| reconcile(events).0.trace(Anchor::default(), Origin::default(), extras);
    let delete = removed(50, 1, "a-1", false, DELETED).to_vec();
    assert!(of(delete.clone()).beside.is_empty());
    let mut created = [answered([20, 21], 1, "", 201), decoded(22, 1, "u-1")];
    created[1].values.set(Value::ObjectOwner, "o");
    let whole = of([created.to_vec(), delete].concat());
    let ids: Vec<_> = whole.beside.iter().map(|part| (part.kind, part.trace_id)).collect();
    let id = lifecycle_id("o");
    assert_eq!(ids, [(TraceKind::PodCreation, id), (TraceKind::PodDeletion, id)]);
}

#[test]
fn what_deletes_no_pod_has_no_deletion() {
    let mut failed = removed(20, 1, "a-1", false, DELETED);
    failed[0].values.set(Value::RequestStatus, 404);
    let mut of_other = removed(20, 1, "a-1", false, DELETED);
    of_other[0].values.set(Value::RequestPath, "/apis/batch/v1/namespaces/default/jobs/a-1");
    let [answer, _] = removed(20, 1, "a-1", false, DELETED);
    for events in [failed.into(), of_other.into(), removed(20, 1, "a-1", false, "").into(), vec![answer]] {
        let whole = trace(&reconcile(events).0);
        assert_eq!((whole.beside.len(), whole.spans[1].links.len()), (0, 0));
    }
}

/// The removals outside of reconciles that come of events.
fn outside(assembler: &mut Assembler) -> Vec<Finished<Reconcile>> {
    let mut all = assembler.take_finished();
    all.retain(|done| done.reconcile().is_none());
    all
}

#[test]
fn a_pod_that_is_deleted_outside_of_any_reconcile_has_its_span_with_the_request_below_it() {
    let mut assembler = after(removed(20, 7, "a-1", false, DELETED));
    let [done] = &outside(&mut assembler)[..] else { panic!("there is one deletion") };
    let extras = Extras { monotonic: true, ..Extras::default() };
    let whole = done.trace(Anchor::default(), Origin::default(), extras);
    let [root, request] = &whole.spans[..] else { panic!("there are two spans") };
    let id = lifecycle_id("u-1");
    assert_eq!((whole.kind, whole.trace_id, whole.beside.len()), (TraceKind::PodDeletion, id, 0));
    let parent = whole.parent.as_ref().map(|parent| (parent.trace_id, parent.span_id));
    assert_eq!(parent, Some((id, lifecycle_root("u-1"))));
    assert_eq!((&*root.name.as_str(), root.parent_id), ("delete Pod", None));
    assert_eq!(shown(root), "k8s.namespace.name=default k8s.pod.name=a-1 k8s.pod.uid=u-1");
    assert_eq!(leads_to(root), [(Relation::Request(Evidence::Uid), id, request.span_id)]);
    assert_eq!((request.kind, request.parent_id), (SpanKind::Request, Some(root.span_id)));
    assert_eq!((&*request.name.as_str(), request.links.len()), ("DELETE pods", 0));
    assert!(shown(request).contains("http.response.status_code=200"), "{}", shown(request));
    for span in [root, request] {
        assert_eq!((span.start_unix_ns, span.end_unix_ns), (20, 22));
        assert!(span.attribute(attributes::MONOTONIC_END).is_some());
    }
    assert!(!done.is_idle() && done.pod_uid().is_none());
    assert_eq!((assembler.account().in_attempts, assembler.account().open()), (2, 0));
    assert_eq!(removals(&assembler)[0], ("uid".to_owned(), 1));
    assert!(assembler.counts().iter().any(|count| count.labels == ["none"] && count.total == 1));
    // It may be deleted again.
    let [again] = &outside(&mut after(removed(30, 7, "a-1", false, DELETED)))[..] else {
        panic!("there is one")
    };
    let again = again.trace(Anchor::default(), Origin::default(), extras);
    assert_eq!(again.trace_id, id);
    assert_ne!(again.root().span_id, root.span_id);
}

#[test]
fn a_deletion_by_one_of_several_reconciles_or_after_its_reconcile_is_shown_without_one() {
    let [first, second] = ["x", "y"].map(|key| of_queue(10, 1, Function::Get, key));
    let ends = ["x", "y"].map(|key| of_queue(90, 1, Function::Done, key));
    let several = [vec![first, second], removed(20, 1, "a-1", false, DELETED).into(), ends.into()];
    let mut of_child = removed(20, 5, "a-1", false, DELETED);
    of_child[0].values.set(Value::RequestParent, 1);
    let mut later = removed(40, 5, "a-1", false, DELETED);
    later[0].values.set(Value::RequestParent, 1);
    let [get, done] =
        [(10, Function::Get), (30, Function::Done)].map(|(at, what)| of_queue(at, 1, what, "a"));
    let over = [vec![get], of_child.into(), vec![done], later.into()];
    let several = several.concat();
    for events in [several.clone(), over.concat()] {
        let all = after(events.clone()).take_finished();
        let outside = all.iter().filter(|done| done.reconcile().is_none()).count();
        assert_eq!((outside, all.len()), (1, if several == events { 3 } else { 2 }), "{all:?}");
    }
}

#[test]
fn what_deletes_no_pod_outside_of_reconciles_has_no_span() {
    let with_method = |mut events: [Event; 2], method: &str| {
        events[0].values.set(Value::RequestMethod, method);
        events
    };
    let created = [answered([20, 21], 7, "", 201), decoded(22, 7, "u-1")];
    let read = with_method([answered([20, 21], 7, "a", 200), decoded(22, 7, "u-1")], "GET");
    let list = with_method([answered([20, 21], 7, "", 503), answered([20, 22], 7, "", 200)], "GET");
    let status = with_method([answered([20, 21], 7, "a/status", 200), decoded(22, 7, "u-1")], "PATCH");
    let mut failed = removed(20, 7, "a", false, DELETED);
    failed[0].values.set(Value::RequestStatus, 404);
    let mut lease = removed(20, 7, "a", false, DELETED);
    lease[0].values.set(Value::RequestPath, "/apis/coordination.k8s.io/v1/namespaces/default/leases/a");
    let all_of_a_namespace = removed(20, 7, "", false, DELETED);
    let unknown = removed(20, 7, "a", true, EVICTED);
    for (events, counted) in [
        (read, 0),
        (list, 0),
        (created, 0),
        (status, 0),
        (failed, 0),
        (lease, 0),
        (all_of_a_namespace, 1),
        (unknown, 1),
    ] {
        let mut assembler = after(events.clone());
        assert_eq!(assembler.take_finished(), [], "{events:?}");
        assert_eq!((assembler.account().unrelated, assembler.account().open()), (2, 0), "{events:?}");
        assert_eq!(removals(&assembler)[2], ("none".to_owned(), counted), "{events:?}");
    }
}

#[test]
fn outside_of_reconciles_a_pod_is_known_by_its_name_and_its_owner_by_the_reconcile_that_saw_it() {
    let mut created = [answered([20, 21], 1, "", 201), decoded(22, 1, "u-1")];
    created[1].values.set(Value::ObjectOwner, "o");
    let [get, done] =
        [(10, Function::Get), (30, Function::Done)].map(|(at, what)| of_queue(at, 1, what, "a"));
    let events = [vec![get], created.to_vec(), vec![done], removed(40, 7, "a-1", true, EVICTED).to_vec()];
    let [evicted] = &outside(&mut after(events.concat()))[..] else { panic!("there is one eviction") };
    let [deleted] = &outside(&mut after(removed(40, 7, "a-1", false, DELETED)))[..] else {
        panic!("there is one deletion")
    };
    for (done, lifecycle, evidence, expected) in [
        (evicted, LifecycleTrace::Pod, Evidence::Name, "u-1"),
        (evicted, LifecycleTrace::Owner, Evidence::Name, "o"),
        (deleted, LifecycleTrace::Owner, Evidence::Uid, "u-1"),
    ] {
        let extras = Extras { lifecycle, ..Extras::default() };
        let whole = done.trace(Anchor::default(), Origin::default(), extras);
        let (id, request) = (lifecycle_id(expected), whole.spans[1].span_id);
        assert_eq!(whole.trace_id, id, "{lifecycle:?}");
        assert_eq!(leads_to(whole.root()), [(Relation::Request(evidence), id, request)]);
        assert_eq!(whole.parent.map(|parent| parent.span_id), Some(lifecycle_root("u-1")));
    }
}

#[test]
fn what_is_open_outside_of_reconciles_is_given_up_after_silence_or_a_loss_and_at_the_end() {
    const HOUR: u64 = 3_600_000_000_000;
    let [answer, check] = removed(20, 7, "a-1", false, DELETED);
    let open = || after([answer.clone()]);
    let mut silent = open();
    silent.expire(HOUR);
    assert_eq!(silent.account().open(), 1);
    silent.expire(HOUR + 22);
    let mut over = open();
    over.exit(1);
    let mut lost = open();
    lost.on(Event { last_loss: 1, ..check });
    for (assembler, events) in [(silent, 1), (over, 1), (lost, 2)] {
        // The answer, and so the UID, was not seen.
        assert_eq!((assembler.account().unrelated, assembler.account().open()), (events, 0));
        assert_eq!(removals(&assembler)[2], ("none".to_owned(), 1));
    }
}

#[test]
fn requests_outside_of_reconciles_are_bounded() {
    const PROCESSES: u32 = 64;
    let deleted = |goroutine| removed(20, goroutine, "a", false, "")[0].clone();
    let others = (2..=PROCESSES).map(|target| Event { target, ..deleted(7) });
    let part = MAX_OPEN as u64 / u64::from(PROCESSES);
    let own = (0..part + 3).map(|goroutine| deleted(100 + goroutine));
    let mut assembler = after(others.chain(own));
    assert_eq!((assembler.stats().table_full, assembler.account().no_room), (3, 3));
    (1..=PROCESSES).for_each(|target| assembler.exit(target));
    assert_eq!(assembler.account().open(), 0);
}
