//! Labels of metrics: closed sets of words. Here are those that others than the daemon need as well.

/// The values of a metric's label: a closed set, all of which are there from the start.
pub trait Label: Copy + 'static {
    /// All values.
    const ALL: &'static [Self];
    /// As the metric shows it.
    fn label(self) -> &'static str;
}

/// Declares the values of a label: a line each.
macro_rules! labels {
    ($(#[$attribute:meta])* $name:ident { $($(#[$of_value:meta])* $value:ident = $label:literal,)* }) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$of_value])* $value,)* }

        impl $crate::metrics::Label for $name {
            const ALL: &'static [Self] = &[$(Self::$value,)*];
            fn label(self) -> &'static str {
                match self { $(Self::$value => $label,)* }
            }
        }
    };
}

labels! {
    /// Why an annotation was refused. See <https://www.w3.org/TR/trace-context-2/>.
    Refusal {
        /// `traceparent` has not the parts, lengths or digits that its version asks for.
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
        /// What base64 holds has none of the known forms.
        Encoding = "encoding",
        /// The JSON is broken, or has no `traceparent`.
        Json = "json",
        /// Bytes that should be text are none.
        NotUtf8 = "not_utf8",
        /// `baggage` has more than 8,192 bytes or 64 members, or a selected one is longer than 256 bytes.
        BaggageTooLarge = "baggage_too_large",
        /// A selected member of `baggage` has characters that are not allowed there.
        BaggageSyntax = "baggage_syntax",
        /// The object has more than eight contexts.
        TooMany = "too_many",
    }
}
