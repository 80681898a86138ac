//! W3C trace contexts, and the annotations of Kubernetes objects that carry them. Pure: text in, contexts out.
//!
//! # Layout
//!
//! * [`RemoteContext`]: a trace context, and how it is written as a `traceparent`.
//! * [`traceparent`], [`tracestate`]: the two headers of <https://www.w3.org/TR/trace-context-2/>.
//! * [`annotations`]: which annotations are read, and in which encodings.
//! * [`Refusal`]: why a value is refused.
//!
//! # Design constraints
//!
//! * Annotations are foreign: every value is bounded and checked, and a refused one has a reason.
//! * Light: the fuzz targets and the webhook use it without an API client.

#![forbid(unsafe_code)]

pub mod annotations;
mod context;
mod refusal;
mod traceparent;

pub use self::{
    context::RemoteContext,
    refusal::Refusal,
    traceparent::{traceparent, tracestate},
};
