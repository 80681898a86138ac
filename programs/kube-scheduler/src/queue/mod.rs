//! The scheduling queue: where each Pod without a Node is, and why it is not tried.
//!
//! Pure: no clock and no I/O. [`Queues`] takes the events of the probes, the traces of attempts, and what the API server
//! says of Pods without a Node; [`Queues::answer`] puts these together.
//!
//! # Where the knowledge comes from
//!
//! * The scheduler's own queue: each entry of a Pod into a queue is a hit. A Pod that was in a queue before it was traced is
//!   known from its next move on.
//! * Attempts: which plugins rejected the Pod, and when.
//! * The Pod's object: its scheduling gates, its group, and its condition `PodScheduled`.

mod answer;
mod model;
#[cfg(test)]
mod tests;
mod wakes;
mod words;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use gotrace::recording::Line;
use spans::{Pending, Trace};

use self::model::Model;
pub use self::{
    answer::{Answer, From, Reason, SCHEMA_VERSION, Scheduler, Stall, Waiting, Wake},
    words::{one, sentence, stalls, table},
};
use crate::KubeScheduler;

/// How many Pods wait, and which schedulers stand still.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// An answer without its Pods.
    pub answer: Answer,
    /// Number of Pods by reason, without those that have none.
    pub counts: BTreeMap<Reason, usize>,
}

/// The queues of all traced schedulers. Clones share the same queues.
#[derive(Clone, Debug, Default)]
pub struct Queues(Arc<Mutex<Model>>);

/// Hands the pipeline's input to the queues. Of most events they need only know that nothing was lost before, which takes no lock.
#[derive(Debug)]
pub struct Feed {
    queues: Queues,
    /// The process of the last event, and its last loss.
    last: Option<(u32, u64)>,
}

impl Feed {
    /// Takes the next line of the pipeline's input.
    pub fn take(&mut self, line: &Line<'_, KubeScheduler>) {
        if let Line::Event(event) = line {
            let before = self.last.replace((event.target, event.last_loss));
            if before == self.last && !Model::is_about_queue(event) {
                return;
            }
        }
        self.queues.take(line);
    }
}

impl Queues {
    /// Takes the next line of the pipeline's input.
    pub fn take(&self, line: &Line<'_, KubeScheduler>) {
        self.model().line(line);
    }

    /// What the pipeline's input is to be handed to.
    #[must_use]
    pub fn feed(&self) -> Feed {
        Feed { queues: self.clone(), last: None }
    }

    /// Takes the profiles in a scheduler's configuration.
    pub fn configured(&self, target: u32, profiles: &[String]) {
        self.model().configured(target, profiles);
    }

    /// Takes the trace of an attempt.
    pub fn attempt(&self, trace: &Trace) {
        self.model().attempt(trace);
    }

    /// Says where each Pod waits, and which schedulers stand still.
    ///
    /// `pending` are all Pods without a Node, or `None` while the API server is not known or does not answer. Pods that it
    /// does not have are forgotten.
    #[must_use]
    pub fn answer(&self, now_unix_us: u64, pending: Option<&[Arc<Pending>]>) -> Answer {
        Answer::of(&mut self.model(), now_unix_us, pending)
    }

    /// The same without a text for each Pod: it is asked for every few seconds, and there may be thousands.
    #[must_use]
    pub fn look(&self, now_unix_us: u64, pending: Option<&[Arc<Pending>]>) -> Look {
        Answer::look(&mut self.model(), now_unix_us, pending)
    }

    /// Number of entries of Pods into a queue for which there was no room.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.model().left_out
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
