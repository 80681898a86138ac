//! Which reconciles an object is known to come from, and which Pod a request removed.

use proptest::{collection::vec, prelude::*};

use super::*;

const BY: [u8; 16] = [7; 16];

fn answer(method: &str, status: u64, typ: &str, name: &str, uid: &str) -> Request {
    let object = Object {
        typ: typ.into(),
        uid: uid.to_owned(),
        name: Some(name.to_owned()),
        version: None,
        owner: None,
    };
    let kind = typ.rsplit('.').next().unwrap_or_default();
    let api = if kind == "Pod" { "/api/v1" } else { "/apis/apps/v1" };
    let mut path = format!("{api}/namespaces/default/{}", resource_of(kind));
    if method != "POST" && !name.is_empty() {
        path = format!("{path}/{name}");
    }
    Request {
        method: Some(method.to_owned()),
        path: Some(path),
        status: Some(status),
        object: Some(object),
        ..Request::default()
    }
}

/// The same with this behind its path.
fn below(request: Request, more: &str) -> Request {
    let path = request.path.map(|path| path + more);
    Request { path, ..request }
}

/// The same with another part of its path.
fn with(request: Request, part: &str, other: &str) -> Request {
    let path = request.path.map(|path| path.replace(part, other));
    Request { path, ..request }
}

fn at(version: u64, mut request: Request) -> Request {
    request.object.as_mut().expect("there is one").version = Some(version.to_string());
    request
}

fn replica_set(method: &str, uid: &str, version: u64) -> Request {
    at(version, answer(method, if method == "POST" { 201 } else { 200 }, "*v1.ReplicaSet", "web-1", uid))
}

fn subject() -> Subject {
    Subject::of_key("replicaset", "default/web-1")
}

/// What is known after a reconcile made these requests.
fn after(requests: &[Request]) -> Objects {
    let mut objects = Objects::default();
    let mut by = objects.begin(1, Maker::new(BY), None);
    requests.iter().for_each(|request| objects.answered(&mut by, request, |limit| limit));
    objects
}

/// Who created and wrote the object of a reconcile that begins now, makes these requests and is over.
fn writers(objects: &mut Objects, id: u8, subject: &Subject, requests: &[Request]) -> [Option<Writer>; 2] {
    let mut own = objects.begin(1, Maker::new([id; 16]), Some(subject.clone()));
    requests.iter().for_each(|request| objects.answered(&mut own, request, |limit| limit));
    objects.writers(&own, requests)
}

fn evidence(objects: &mut Objects, subject: &Subject, requests: &[Request]) -> Option<Evidence> {
    let [creator, _] = writers(objects, 1, subject, requests);
    creator.map(|Writer { maker, evidence }| {
        assert_eq!(maker.id, BY);
        evidence
    })
}

/// First bytes of the ids, and evidences.
fn shown(writers: [Option<Writer>; 2]) -> [Option<(u8, Evidence)>; 2] {
    writers.map(|writer| writer.map(|Writer { maker, evidence }| (maker.id[0], evidence)))
}

#[test]
fn the_uid_is_the_evidence_where_the_reconcile_has_seen_it_and_else_the_name() {
    let mut objects = after(&[replica_set("POST", "u-1", 1)]);
    assert_eq!(evidence(&mut objects, &subject(), &[]), Some(Evidence::Name));
    let own = answer("GET", 200, "*v1.ReplicaSet", "web-1", "u-1");
    let other = answer("POST", 201, "*v1.Pod", "web-1", "u-9");
    assert_eq!(evidence(&mut objects, &subject(), &[other.clone(), own]), Some(Evidence::Uid));
    assert_eq!(evidence(&mut objects, &subject(), &[other]), Some(Evidence::Name));
}

#[test]
fn another_object_of_the_same_name_has_no_creator_from_then_on() {
    for method in ["GET", "PUT"] {
        let mut objects = after(&[replica_set("POST", "u-1", 1)]);
        let own = replica_set(method, "u-2", 9);
        assert_eq!(writers(&mut objects, 1, &subject(), &[own]), [None, None], "{method}");
        assert_eq!(evidence(&mut objects, &subject(), &[]), None, "{method}");
    }
}

#[test]
fn other_kinds_namespaces_processes_and_requests_are_not_it() {
    let mut objects = after(&[
        replica_set("POST", "u-1", 1),
        answer("POST", 409, "*v1.Job", "b", "u-3"),
        below(answer("POST", 201, "*v1.Job", "c", "u-4"), "/c/binding"),
        answer("POST", 201, "*v1.Pod", "d", "u-5"),
        answer("GET", 200, "*v1.Job", "e", "u-6"),
        answer("PUT", 409, "*v1.Job", "f", "u-7"),
        below(answer("DELETE", 200, "*v1.Job", "", "u-8"), "/cut…"),
    ]);
    for (queue, key) in [
        ("deployment", "default/web-1"),
        ("replicaset", "other/web-1"),
        ("replicaset", "default/web"),
        ("job", "default/b"),
        ("job", "default/c"),
        ("pod", "default/d"),
        ("job", "default/e"),
        ("job", "default/f"),
        ("job", "default/cut…"),
    ] {
        let none = [None, None];
        assert_eq!(writers(&mut objects, 1, &Subject::of_key(queue, key), &[]), none, "{queue} {key}");
    }
    let other = objects.begin(2, Maker::new([1; 16]), Some(subject()));
    assert_eq!(objects.writers(&other, &[]), [None, None]);
    assert!(evidence(&mut objects, &subject(), &[]).is_some());
    objects.exit(1);
    assert_eq!(evidence(&mut objects, &subject(), &[]), None);
}

#[test]
fn queues_with_other_names_and_objects_without_a_namespace_are_found() {
    let cluster = |request| with(request, "/namespaces/default", "");
    let mut objects = after(&[
        answer("POST", 201, "*v1.ReplicationController", "a", "u-2"),
        answer("POST", 201, "*v1.PersistentVolumeClaim", "b", "u-3"),
        cluster(answer("POST", 201, "*v1.PersistentVolume", "c", "u-4")),
        cluster(answer("PATCH", 201, "*v1beta1.Widget", "w", "u-1")),
        answer("POST", 201, "*v1.NetworkPolicy", "n", "u-5"),
        answer("POST", 201, "*v1.Ingress", "i", "u-6"),
        answer("POST", 201, "*v1.Endpoints", "e", "u-7"),
    ]);
    for (queue, key) in [
        ("replicationmanager", "default/a"),
        ("claims", "default/b"),
        ("pvcprotection", "default/b"),
        ("volumes", "c"),
        ("widget", "w"),
        ("networkpolicy", "default/n"),
        ("ingress", "default/i"),
        ("endpoints", "default/e"),
    ] {
        assert!(evidence(&mut objects, &Subject::of_key(queue, key), &[]).is_some(), "{queue}");
    }
}

#[test]
fn the_oldest_are_forgotten_and_counted() {
    let mut objects = Objects::default();
    let mut by = objects.begin(1, Maker::new(BY), None);
    for name in ["a", "b", "a", "c"] {
        objects.answered(&mut by, &answer("POST", 201, "*v1.Job", name, "u"), |_| 2);
    }
    let pod = |name| answer("POST", 201, "*v1.Pod", name, name);
    ["d", "e", "f"].map(pod).iter().for_each(|pod| objects.answered(&mut by, pod, |_| 2));
    let fates: Vec<_> = objects.fates().map(|(labels, total)| (labels.join(" "), total)).collect();
    let expected =
        [("pod remembered", 3), ("pod forgotten", 1), ("other remembered", 3), ("other forgotten", 1)];
    assert_eq!(fates, expected.map(|(labels, total)| (labels.to_owned(), total)));
    let known = ["a", "b", "c"].map(|name| {
        evidence(&mut objects, &Subject::of_key("job", &format!("default/{name}")), &[]).is_some()
    });
    assert_eq!(known, [true, false, true]);
}

#[test]
fn the_life_of_an_object_is_a_chain_of_those_who_wrote_it() {
    use Evidence::{Name, Uid};
    let mut objects = after(&[replica_set("POST", "u", 1)]);
    let status = |version| below(replica_set("PUT", "u", version), "/status");
    let mut of = |id, requests: &[Request]| shown(writers(&mut objects, id, &subject(), requests));
    assert_eq!(of(1, &[status(2)]), [Some((7, Uid)), None]);
    // It wrote nothing, and the next one did not either: what came back was as before.
    assert_eq!(of(2, &[]), [Some((7, Name)), Some((1, Name))]);
    assert_eq!(of(3, &[status(2)]), [Some((7, Uid)), Some((1, Uid))]);
    assert_eq!(of(4, &[status(3), status(4)]), [Some((7, Uid)), Some((1, Uid))]);
    assert_eq!(of(5, &[]), [Some((7, Name)), Some((4, Name))]);
    // Another queue's reconcile scales it, the next one deletes it.
    let scale = below(replica_set("PUT", "u", 5), "/scale");
    for (id, request) in [(6, scale), (8, answer("DELETE", 200, "*v1.ReplicaSet", "web-1", "u"))] {
        let mut by = objects.begin(1, Maker::new([id; 16]), None);
        objects.answered(&mut by, &request, |limit| limit);
        assert_eq!(shown(writers(&mut objects, 9, &subject(), &[])), [Some((7, Name)), Some((id, Name))]);
    }
}

#[test]
fn what_is_written_meanwhile_is_before_a_reconcile_only_if_the_versions_say_so() {
    use Evidence::Uid;
    for (scaled, expected) in [(5, 6), (20, 2)] {
        let mut objects = after(&[replica_set("POST", "u", 1)]);
        writers(&mut objects, 2, &subject(), &[replica_set("PUT", "u", 2)]);
        let mut own = objects.begin(1, Maker::new([3; 16]), Some(subject()));
        let mut by = objects.begin(1, Maker::new([6; 16]), None);
        objects.answered(&mut by, &replica_set("PUT", "u", scaled), |limit| limit);
        let mut again = objects.begin(1, Maker::new([8; 16]), None);
        let requests = [replica_set("PUT", "u", 10), replica_set("PUT", "u", 12)];
        objects.answered(&mut own, &requests[0], |limit| limit);
        // Between its own two writes.
        objects.answered(&mut again, &replica_set("PUT", "u", 11), |limit| limit);
        objects.answered(&mut own, &requests[1], |limit| limit);
        assert_eq!(shown(objects.writers(&own, &requests)), [Some((7, Uid)), Some((expected, Uid))]);
    }
}

#[test]
fn a_creation_is_before_each_reconcile_of_the_object_even_if_it_is_answered_meanwhile() {
    let mut objects = Objects::default();
    let [first, mut second] = [1, 2].map(|id| objects.begin(1, Maker::new([id; 16]), Some(subject())));
    let status = replica_set("PUT", "u", 2);
    objects.answered(&mut second, &status, |limit| limit);
    let mut by = objects.begin(1, Maker::new(BY), None);
    objects.answered(&mut by, &replica_set("POST", "u", 1), |limit| limit);
    assert_eq!(shown(objects.writers(&first, &[])), [Some((7, Evidence::Name)), None]);
    assert_eq!(shown(objects.writers(&second, &[status])), [Some((7, Evidence::Uid)), None]);
}

#[test]
fn the_pod_that_a_request_removed_is_known_by_its_answer_or_else_by_its_name() {
    let mut created = answer("POST", 201, "*v1.Pod", "a", "u-a");
    created.object.as_mut().expect("there is one").owner = Some("o".to_owned());
    let objects = after(&[created, answer("GET", 200, "*v1.Pod", "b", "u-b")]);
    let checked = |uid: &str| Some(Object { uid: uid.to_owned(), ..Object::default() });
    let delete = |name: &str, uid: Option<&str>| Request {
        object: uid.and_then(checked),
        ..answer("DELETE", 200, "*v1.Pod", name, "")
    };
    let evict = |name: &str| {
        let delete = below(delete(name, None), "/eviction");
        Request { method: Some("POST".to_owned()), status: Some(201), ..delete }
    };
    let removed = |uid: &str, evidence, owner| Some(Removed { uid: uid.to_owned(), evidence, owner });
    let owned = || Owner::Known(Some("o".to_owned()));
    for (request, expected) in [
        (delete("a", Some("u-a")), removed("u-a", Evidence::Uid, owned())),
        (delete("b", Some("u-b")), removed("u-b", Evidence::Uid, Owner::Known(None))),
        // Another Pod of that name; one that was not seen before.
        (delete("a", Some("u-z")), removed("u-z", Evidence::Uid, Owner::Unknown)),
        (delete("c", Some("u-c")), removed("u-c", Evidence::Uid, Owner::Unknown)),
        (delete("a", None), removed("u-a", Evidence::Name, owned())),
        (evict("a"), removed("u-a", Evidence::Name, owned())),
        (delete("c", None), None),
        (evict("c"), None),
        (delete("cut…", Some("u-d")), removed("u-d", Evidence::Uid, Owner::Unknown)),
        // All of a namespace, another namespace's, and requests that failed or are about something else.
        (delete("", None), None),
        (with(delete("a", None), "/default/", "/other/"), None),
        (Request { status: Some(404), ..delete("a", None) }, None),
        (Request { status: None, ..delete("a", None) }, None),
        (Request { status: Some(429), ..evict("a") }, None),
        (with(evict("a"), "/eviction", "/binding"), None),
        (with(delete("a", None), "/api/v1/", "/apis/metrics.k8s.io/v1beta1/"), None),
        (with(delete("a", None), "/pods/", "/jobs/"), None),
    ] {
        assert_eq!(objects.removed(1, &request), expected, "{request:?}");
        assert_eq!(
            objects.removed(2, &request).is_some(),
            request.removes().is_some() && request.object.is_some()
        );
    }
}

/// What reconciles of one object and of others really did, in the order of the object's versions.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A reconcile of the object begins.
    Begin,
    /// It writes the object, and is answered.
    Write,
    /// It is over.
    End,
    /// A reconcile of another object writes it. Its answer comes at once, or with the next act of its kind.
    WriteOther { late: bool },
    /// Somebody else writes it.
    Elsewhere,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        Just(Act::Begin),
        Just(Act::Write),
        Just(Act::End),
        any::<bool>().prop_map(|late| Act::WriteOther { late }),
        Just(Act::Elsewhere),
    ]
}

proptest! {
    #[test]
    fn a_writer_is_always_one_that_wrote_the_object_before(acts in vec(acts(), 0..60)) {
        let mut objects = after(&[replica_set("POST", "u", 1)]);
        // By the id of the reconcile: the versions that it wrote.
        let mut truth = vec![(7_u8, 1_u64)];
        let (mut version, mut id) = (1, 7);
        let mut open: Option<(OpenReconcile, Vec<Request>, u64)> = None;
        let mut late: Vec<(u8, Request)> = Vec::new();
        for act in acts {
            match act {
                Act::Begin => if open.is_none() {
                    id += 1;
                    let began = objects.begin(1, Maker::new([id; 16]), Some(subject()));
                    open = Some((began, Vec::new(), version));
                },
                Act::Write => if let Some((own, requests, _)) = &mut open {
                    version += 1;
                    truth.push((own.maker.id[0], version));
                    requests.push(replica_set("PUT", "u", version));
                    objects.answered(own, &requests[requests.len() - 1], |limit| limit);
                },
                Act::End => if let Some((own, requests, began)) = open.take() {
                    let first = requests.first().and_then(|request| request.object.as_ref()?.version.clone());
                    let before = first.map_or(began, |first| first.parse::<u64>().unwrap() - 1);
                    let [creator, last] = shown(objects.writers(&own, &requests));
                    prop_assert_eq!(creator.map(|(id, _)| id), Some(7));
                    let evidence = if requests.is_empty() { Evidence::Name } else { Evidence::Uid };
                    if let Some((last, seen)) = last {
                        prop_assert_eq!(seen, evidence);
                        prop_assert!(truth.iter().any(|(id, at)| *id == last && *at <= before), "{last} {truth:?}");
                    }
                },
                Act::WriteOther { late: is_late } => {
                    (version, id) = (version + 1, id + 1);
                    truth.push((id, version));
                    late.push((id, replica_set("PUT", "u", version)));
                    // The last one is answered first.
                    while let Some((id, request)) = late.pop_if(|_| !is_late) {
                        let mut by = objects.begin(1, Maker::new([id; 16]), None);
                        objects.answered(&mut by, &request, |limit| limit);
                    }
                }
                Act::Elsewhere => version += 1,
            }
        }
    }
}
