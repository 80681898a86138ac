//! Pod lifecycles: each Pod until it is Ready as one trace, `PodLifecycle` of KEP #650, made from the Pod's status and from the
//! traced attempts after both are complete.
//! <https://github.com/kubernetes/enhancements/blob/82f7787/keps/sig-instrumentation/0034-distributed-tracing-kep.md>
//!
//! # Layout
//!
//! * `pod`: the fields of a Pod that are read.
//! * `text`: how long a text may be.
//! * `attempt`: the summary of an attempt. Pure.
//! * `progress`: what is known of one Pod, from event to event. Pure.
//! * `table`: the followed Pods, and which of them are complete. Pure.
//! * `tree`: the spans of a complete Pod. Pure.
//! * `watch`: the watch of all Pods, and the clock.
//! * `followed`: some Pods that a client of the API server follows by itself. Pure.
//!
//! # Which daemon exports it
//!
//! Where several daemons run, each sees all Pods. The daemon that traced the binding of a Pod exports its lifecycle; for a Pod
//! that is never bound, those that traced attempts of it. Ids follow from the Pod's UID, so a lifecycle that is exported twice
//! has the same ids.

mod attempt;
mod followed;
mod pod;
mod progress;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod tree;
mod watch;

pub use self::{followed::Followed, pod::Pod, watch::Lifecycles};
