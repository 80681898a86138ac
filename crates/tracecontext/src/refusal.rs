telemetry::labels! {
    /// Why an annotation is refused. See <https://www.w3.org/TR/trace-context-2/>.
    pub Refusal {
        /// The parts, lengths or digits of `traceparent` are not those of its version.
        Syntax = "syntax",
        /// `traceparent` has version ff, which is forbidden.
        Version = "version",
        /// The trace id is all zero.
        ZeroTraceId = "zero_trace_id",
        /// The parent id is all zero.
        ZeroParentId = "zero_parent_id",
        /// `tracestate` is longer than 512 bytes or has more than 32 members.
        TraceStateTooLarge = "tracestate_too_large",
        /// `tracestate` is not a list of keys and values.
        TraceStateSyntax = "tracestate_syntax",
        /// The value is longer than any valid one.
        TooLong = "too_long",
        /// The value is neither a `traceparent`, nor JSON, nor base64.
        Base64 = "base64",
        /// The decoded base64 has none of the known forms.
        Encoding = "encoding",
        /// The JSON is broken, or has no `traceparent`.
        Json = "json",
        /// The bytes are not UTF-8.
        NotUtf8 = "not_utf8",
        /// `baggage` has more than 8,192 bytes or 64 members, or a selected member is longer than 256 bytes.
        BaggageTooLarge = "baggage_too_large",
        /// A selected member of `baggage` has characters that are not allowed there.
        BaggageSyntax = "baggage_syntax",
        /// The object has more than eight contexts.
        TooMany = "too_many",
    }
}
