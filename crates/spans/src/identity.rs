//! Identities of traces and spans. They follow from what a trace is about, so that whoever makes it again makes the same.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

/// The trace id of `what`, which began at `start_ns` in this target.
#[must_use]
pub fn trace_id(what: &str, start_ns: u64, target: u32) -> [u8; 16] {
    let mut hasher = SipHasher13::new();
    hasher.write(what.as_bytes());
    hasher.write_u64(start_ns);
    hasher.write_u32(target);
    let id = hasher.finish128().as_bytes();
    // All zero means "no trace".
    if id == [0; 16] { [1; 16] } else { id }
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
