//! Which reconcile an object is known to come from.

use super::*;
use crate::requests::Object;

const BY: [u8; 16] = [7; 16];

fn answer(method: &str, status: u64, typ: &str, name: &str, uid: &str) -> Request {
    let object = Object {
        typ: typ.into(),
        uid: uid.to_owned(),
        name: Some(name.to_owned()),
        version: None,
        owner: None,
    };
    Request {
        method: Some(method.to_owned()),
        path: Some("/apis/apps/v1".to_owned()),
        namespace: "default".to_owned(),
        resource: format!("{}s", typ.rsplit('.').next().unwrap_or_default().to_lowercase()),
        status: Some(status),
        object: Some(object),
        ..Request::default()
    }
}

fn after(requests: &[Request]) -> Creators {
    let mut creators = Creators::default();
    requests.iter().for_each(|request| creators.answered(1, &Maker::new(BY), request, |limit| limit));
    creators
}

fn created() -> Request {
    answer("POST", 201, "*v1.ReplicaSet", "web-1", "u-1")
}

fn evidence(creators: &mut Creators, subject: &Subject, requests: &[Request]) -> Option<Evidence> {
    let creator = creators.of(1, subject, requests)?;
    assert_eq!(creator.maker.id, BY);
    Some(creator.evidence)
}

#[test]
fn the_uid_is_the_evidence_where_the_reconcile_has_seen_it_and_else_the_name() {
    let subject = Subject::of_key("replicaset", "default/web-1");
    let mut creators = after(&[created()]);
    assert_eq!(evidence(&mut creators, &subject, &[]), Some(Evidence::Name));
    let own = answer("PUT", 200, "*v1.ReplicaSet", "web-1", "u-1");
    let other = answer("POST", 201, "*v1.Pod", "web-1", "u-9");
    assert_eq!(evidence(&mut creators, &subject, &[other.clone(), own]), Some(Evidence::Uid));
    assert_eq!(evidence(&mut creators, &subject, &[other]), Some(Evidence::Name));
}

#[test]
fn another_object_of_the_same_name_has_no_creator_from_then_on() {
    let subject = Subject::of_key("replicaset", "default/web-1");
    let mut creators = after(&[created()]);
    let own = answer("PUT", 200, "*v1.ReplicaSet", "web-1", "u-2");
    assert_eq!(evidence(&mut creators, &subject, &[own]), None);
    assert_eq!(evidence(&mut creators, &subject, &[]), None);
}

#[test]
fn other_kinds_namespaces_processes_and_requests_are_not_it() {
    let mut creators = after(&[
        created(),
        answer("PUT", 200, "*v1.Job", "a", "u-2"),
        answer("POST", 409, "*v1.Job", "b", "u-3"),
        Request { subresource: "binding".to_owned(), ..answer("POST", 201, "*v1.Job", "c", "u-4") },
        answer("POST", 201, "*v1.Pod", "d", "u-5"),
    ]);
    for (queue, key) in [
        ("deployment", "default/web-1"),
        ("replicaset", "other/web-1"),
        ("replicaset", "default/web"),
        ("job", "default/a"),
        ("job", "default/b"),
        ("job", "default/c"),
        ("pod", "default/d"),
    ] {
        assert_eq!(creators.of(1, &Subject::of_key(queue, key), &[]), None, "{queue} {key}");
    }
    let subject = Subject::of_key("replicaset", "default/web-1");
    assert_eq!(creators.of(2, &subject, &[]), None);
    assert!(creators.of(1, &subject, &[]).is_some());
    creators.exit(1);
    assert_eq!(creators.of(1, &subject, &[]), None);
}

#[test]
fn queues_with_other_names_and_objects_without_a_namespace_are_found() {
    let cluster = Request { namespace: String::new(), ..answer("PATCH", 201, "*v1beta1.Widget", "w", "u-1") };
    let mut creators = after(&[
        answer("POST", 201, "*v1.ReplicationController", "a", "u-2"),
        answer("POST", 201, "*v1.PersistentVolumeClaim", "b", "u-3"),
        cluster,
    ]);
    for (queue, key) in [("replicationmanager", "default/a"), ("claims", "default/b"), ("widget", "w")] {
        assert!(creators.of(1, &Subject::of_key(queue, key), &[]).is_some(), "{queue}");
    }
}

#[test]
fn the_oldest_are_forgotten_and_counted() {
    let mut creators = Creators::default();
    for name in ["a", "b", "a", "c"] {
        creators.answered(1, &Maker::new(BY), &answer("POST", 201, "*v1.Job", name, "u"), |_| 2);
    }
    assert_eq!(creators.fates(), [("remembered", 4), ("forgotten", 1)]);
    let known = ["a", "b", "c"]
        .map(|name| creators.of(1, &Subject::of_key("job", &format!("default/{name}")), &[]).is_some());
    assert_eq!(known, [true, false, true]);
}
