//! Identities of traces and spans. They follow from what a trace is about: the same trace always has the same ids.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use crate::names::LIFECYCLE;

/// The trace id of `what`, which began at `start_ns` in the process with this number.
#[must_use]
pub fn trace_id(what: &str, start_ns: u64, process: u32) -> [u8; 16] {
    let mut hasher = SipHasher13::new();
    hasher.write(what.as_bytes());
    hasher.write_u64(start_ns);
    hasher.write_u32(process);
    not_zero(hasher.finish128().as_bytes())
}

/// The trace id of the lifecycle of the Pod with this UID: the same on every node.
#[must_use]
pub fn lifecycle_id(uid: &str) -> [u8; 16] {
    let mut hasher = SipHasher13::new();
    hasher.write(LIFECYCLE.as_bytes());
    hasher.write(uid.as_bytes());
    not_zero(hasher.finish128().as_bytes())
}

/// The id of the span with this number in its trace.
#[must_use]
pub fn span_id(trace_id: &[u8; 16], number: u64) -> [u8; 8] {
    let mut hasher = SipHasher13::new();
    hasher.write(trace_id);
    hasher.write_u64(number);
    let id = hasher.finish().to_be_bytes();
    if id == [0; 8] { [1; 8] } else { id }
}

/// All zero means "no trace".
fn not_zero(id: [u8; 16]) -> [u8; 16] {
    if id == [0; 16] { [1; 16] } else { id }
}
