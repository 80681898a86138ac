//! A case is a list of annotations: a byte for the key, one for the length and whether it is base64 of what follows, and the
//! value.

use std::{collections::BTreeMap, sync::LazyLock};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use tracecontext::{
    annotations::{Carriers, KEYS, MAX_CAUSES, Recovered},
    tracestate,
};

/// Keys that are read besides [`KEYS`].
const FURTHER: [&str; 7] = [
    "tracing.k8s.io/traceparent.0",
    "tracing.k8s.io/traceparent.7",
    "tracing.k8s.io/tracestate",
    "tracing.k8s.io/tracestate.0",
    "tracing.k8s.io/baggage",
    "tracestate",
    "baggage",
];
const MEMBER: &str = "user";

static CARRIERS: LazyLock<Carriers> = LazyLock::new(|| {
    let keys = KEYS.map(str::to_owned).into();
    Carriers::new(keys, vec![MEMBER.to_owned(), "k".to_owned()]).expect("these are keys")
});

/// Recovers the contexts of the annotations.
///
/// # Panics
///
/// If an answer is not within its bounds.
pub fn run(case: &[u8]) {
    let mut annotations = BTreeMap::new();
    let mut rest = case;
    while let [key, length, behind @ ..] = rest {
        let (value, next) = behind.split_at(behind.len().min(usize::from(length >> 1)));
        let keys: Vec<_> = KEYS.iter().chain(&FURTHER).collect();
        let key = keys[usize::from(*key) % keys.len()];
        let value = match length & 1 {
            0 => String::from_utf8_lossy(value).into_owned(),
            _ => BASE64_STANDARD.encode(value),
        };
        annotations.insert((*key).to_owned(), value);
        rest = next;
    }
    let (Recovered { causes, baggage, initial }, refused) = CARRIERS.recover(&annotations);
    assert!(causes.len() <= MAX_CAUSES && baggage.len() <= 2);
    for cause in &causes {
        let context = &cause.context;
        assert!(context.trace_id != [0; 16] && context.span_id != [0; 8]);
        assert_eq!(tracestate(&context.trace_state).as_ref(), Ok(&context.trace_state));
        assert!(annotations.contains_key(&CARRIERS.key(cause)));
    }
    assert!(baggage.iter().all(|(_, value)| value.len() <= 256));
    assert!(initial.is_none_or(|initial| initial.len() <= 36));
    for refused in refused {
        assert!(refused.value.chars().count() <= 64 && annotations.contains_key(&refused.key));
    }
}
