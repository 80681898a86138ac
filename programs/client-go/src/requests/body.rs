//! What the beginning of an answer says that its client does not decode: of which object it is. Nothing else of it is kept, since it may be
//! anything.
//!
//! The API server answers a deletion with the object, or with a `Status` that names its UID
//! (<https://github.com/kubernetes/apiserver/blob/v0.36.4/pkg/registry/generic/registry/store.go>, `finalizeDelete`). Both are written
//! field by field in one order, in which nothing but names is before the UID, and no name has a character of what is looked for.

use super::Object;

/// How an object begins as JSON. One without a Go type of its own begins with `apiVersion`, and its fields are in another order.
const JSON: &str = "{\"kind\":\"";
/// How one begins in Kubernetes' form of protobuf:
/// <https://github.com/kubernetes/apimachinery/blob/v0.36.4/pkg/runtime/serializer/protobuf/protobuf.go#L37-L43>.
const PROTOBUF: &str = "k8s\0";
/// Characters of a UID.
const UID_LEN: usize = 36;
/// What is before the UID in protobuf: the field's number in `ObjectMeta` or `StatusDetails`, and the length
/// (<https://github.com/kubernetes/apimachinery/blob/v0.36.4/pkg/apis/meta/v1/generated.proto>).
const UID: [&str; 2] = ["*$", "2$"];
/// Number of the field after it in `ObjectMeta`, the resource version.
const VERSION: char = '2';

/// What is kept of an answer with this beginning: UID and resource version of its object, with a space between.
pub(super) fn kept(body: &str) -> Option<String> {
    let (uid, version) = if body.starts_with(JSON) {
        of_json(body)?
    } else if body.starts_with(PROTOBUF) {
        of_protobuf(body)?
    } else {
        return None;
    };
    let version = version.filter(|version| version.bytes().all(|byte| byte.is_ascii_digit()));
    Some([uid, version.unwrap_or_default()].join(" ").trim_end().to_owned())
}

/// The object of which that is kept.
pub(super) fn object(kept: &str) -> Option<Object> {
    let mut parts = kept.split(' ').map(str::to_owned);
    let uid = parts.next().filter(|uid| !uid.is_empty())?;
    Some(Object { uid, version: parts.next(), ..Object::default() })
}

fn of_json(body: &str) -> Option<(&str, Option<&str>)> {
    let (_, rest) = body.split_once("\"uid\":\"")?;
    let (uid, rest) = rest.split_once('"').filter(|(uid, _)| is_uid(uid))?;
    let version = rest.strip_prefix(",\"resourceVersion\":\"").and_then(|rest| rest.split_once('"'));
    Some((uid, version.map(|(version, _)| version)))
}

fn of_protobuf(body: &str) -> Option<(&str, Option<&str>)> {
    let (uid, rest) = body.match_indices('$').find_map(|(place, _)| {
        let is_meant = UID.iter().any(|before| body[..=place].ends_with(before));
        let (uid, rest) = body[place + 1..].split_at_checked(UID_LEN)?;
        (is_meant && is_uid(uid)).then_some((uid, rest))
    })?;
    let version = rest.strip_prefix(VERSION).and_then(|rest| {
        let length = usize::from(*rest.as_bytes().first()?);
        rest.get(1..=length)
    });
    Some((uid, version))
}

fn is_uid(text: &str) -> bool {
    (1..=UID_LEN).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "0f2d7f6e-31a8-4d0c-9a53-8f0f3f1f6c11";

    fn seen(body: &str) -> Option<(String, Option<String>)> {
        let object = object(&kept(body)?)?;
        assert!(!object.is_decoded());
        Some((object.uid, object.version))
    }

    /// The beginning of a Pod in protobuf, as it is read: bytes that are no text are replaced.
    fn pod(name: &str, uid: &str) -> String {
        let length = |text: &str| char::from(text.len() as u8);
        let head = "k8s\0\n\t\n\u{2}v1\u{12}\u{3}Pod\u{12}\u{fffd}\u{b}\n\u{fffd}\u{2}";
        let names = format!("\n{}{name}\u{12}\u{4}web-\u{1a}\u{7}default\"\0", length(name));
        format!("{head}{names}*{}{uid}2\u{3}7738\0B\0", length(uid))
    }

    #[test]
    fn an_object_and_a_status_name_the_uid_in_both_forms() {
        let known = |version: Option<&str>| Some((UID.to_owned(), version.map(str::to_owned)));
        let json = format!(
            r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"name":"web-1","namespace":"default","uid":"{UID}","resourceVersion":"773","labels":{{"#
        );
        assert_eq!(seen(&json), known(Some("773")));
        let status = format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Success","details":{{"name":"web-1","group":"apps","kind":"replicasets","uid":"{UID}"}}}}"#
        );
        assert_eq!(seen(&status), known(None));
        assert_eq!(seen(&pod("web-1", UID)), known(Some("773")));
        let status = format!(
            "k8s\0\n\u{c}\n\u{2}v1\u{12}\u{6}Status\u{12}Z\n\u{6}\n\0\u{12}\0\u{1a}\0\u{12}\u{7}Success\u{1a}\0\"\0*F\n\u{5}web-1\u{12}\u{4}apps\u{1a}\u{b}replicasets(\u{0}2${UID}0\0"
        );
        assert_eq!(seen(&status), known(None));
    }

    #[test]
    fn an_answer_that_names_none_or_is_cut_before_it_has_none() {
        let whole = pod("web-1", UID);
        let end = whole.find(UID).expect("it is there") + UID.len();
        for cut in (0..end).filter(|cut| whole.is_char_boundary(*cut)) {
            assert_eq!(seen(&whole[..cut]), None, "{cut}");
            assert_eq!(seen(&format!("{}…", &whole[..cut])), None, "{cut}");
        }
        assert_eq!(seen(&whole[..end]), Some((UID.to_owned(), None)));
        let evicted = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}"#;
        // Of an object without a Go type, owners may come first.
        let other =
            format!(r#"{{"apiVersion":"a/v1","kind":"B","metadata":{{"ownerReferences":[{{"uid":"{UID}"}}]"#);
        let quoted = format!(r#"{{"kind":"Status","message":"\"uid\":\"{UID}\"","code":200}}"#);
        for body in ["", "k8s\0", "{", evicted, &other, &quoted, &pod("web-1", "")] {
            assert_eq!(seen(body), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn whatever_a_pod_is_called_its_uid_is_found_and_no_text_makes_it_panic(
            name in "[a-z0-9]([-a-z0-9.]{0,60}[a-z0-9])?",
            any in ".{0,80}",
        ) {
            prop_assert_eq!(seen(&pod(&name, UID)).map(|(uid, _)| uid), Some(UID.to_owned()));
            for head in [JSON, PROTOBUF, "k8s\0*$", "{\"kind\":\"\"uid\":\""] {
                seen(&format!("{head}{any}"));
            }
        }
    }
}
