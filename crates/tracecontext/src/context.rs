/// A span context that was found outside of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteContext {
    /// Identifies the trace; not all zero.
    pub trace_id: [u8; 16],
    /// Identifies the span; not all zero.
    pub span_id: [u8; 8],
    /// The trace flags. Bit 0: the trace is sampled.
    pub flags: u8,
    /// The `tracestate`, as it was found; empty if there is none.
    pub trace_state: String,
}

const SAMPLED: u8 = 1;
/// Sampled; the trace id is random.
const KNOWN_FLAGS: u8 = 3;

impl RemoteContext {
    /// The context of a sampled span without a `tracestate`.
    #[must_use]
    pub fn sampled(trace_id: [u8; 16], span_id: [u8; 8]) -> Self {
        Self { trace_id, span_id, flags: SAMPLED, trace_state: String::new() }
    }

    /// The context as a `traceparent` of version 00, without flags that this version does not define.
    ///
    /// <https://www.w3.org/TR/trace-context-2/#traceparent-header>
    #[must_use]
    pub fn traceparent(&self) -> String {
        let Self { trace_id, span_id, flags, trace_state: _ } = self;
        let (trace_id, span_id) = (u128::from_be_bytes(*trace_id), u64::from_be_bytes(*span_id));
        format!("00-{trace_id:032x}-{span_id:016x}-{:02x}", flags & KNOWN_FLAGS)
    }
}
