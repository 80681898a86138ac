//! The life of a Pod until it is Ready, as one trace: `PodLifecycle` of KEP #650, made afterwards of what the Pod said of
//! itself and of the attempts that were traced.
//! <https://github.com/kubernetes/enhancements/blob/82f7787/keps/sig-instrumentation/0034-distributed-tracing-kep.md>
//!
//! # Layout
//!
//! * `pod`: what is read of a Pod.
//! * `attempt`: what is told of an attempt to schedule it. Pure.
//! * `life`: what is known of one, from look to look. Pure.
//! * `table`: which Pods are followed, and since when one is over. Pure.
//! * `tree`: a life as spans. Pure.
//! * `watch`: the Pods of the API, and the clock.
//!
//! # Who tells it
//!
//! Where several daemons run, each sees all Pods. The life of one is told by the daemon that traced its binding; of a Pod
//! that was never bound by those that traced attempts of it. Identities follow from the Pod's UID, so what is told twice is
//! the same.

mod attempt;
mod life;
mod pod;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod watch;

pub use self::watch::Lifecycles;
