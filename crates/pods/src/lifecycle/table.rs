//! The Pods that are followed, and what of them is over. Pure, and bounded in number and bytes.

use std::collections::HashMap;

use spans::Trace;

use super::{attempt::Attempt, life::Life, pod::Pod};
use crate::{LifecycleEnd, Loss, Metrics};

/// Pods that are followed at once; some 2 kB each.
const MAX_PODS: usize = 20_000;
/// Bytes of all of them.
const MAX_BYTES: usize = 64 << 20;
/// From the end of a Pod whose binding was traced until it is told: attempts leave seconds after they are over.
const SETTLE_NS: u64 = 3_000_000_000;
/// The same where the binding was not traced, and where of a Pod nothing but attempts is known: nothing comes any more then.
const LATE_NS: u64 = 15_000_000_000;

/// All that are followed, by UID. Times are nanoseconds since the Unix epoch.
#[derive(Debug)]
pub(super) struct Lives {
    lives: HashMap<Box<str>, Life>,
    bytes: usize,
    /// The number of the list that is, or was last, read.
    list: u64,
    /// Whether it is being read, as it is at first: which Pods there are is not known before.
    listing: bool,
    metrics: Metrics,
}

impl Lives {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self { lives: HashMap::new(), bytes: 0, list: 0, listing: true, metrics }
    }

    /// A Pod was created or has changed; says whether it is followed from now on. One that is first seen when it has begun to
    /// run is not: when it was Ready first, nobody knows.
    pub(super) fn seen(&mut self, pod: &Pod, now_ns: u64) -> bool {
        let Some(uid) = pod.metadata.uid.as_deref() else { return false };
        let pending = ["", "Pending"].contains(&pod.status.phase.as_str());
        let (list, mut new) = (self.list, false);
        self.change(uid, now_ns, pending, |life, _| {
            new = life.about.is_none();
            life.list = list;
            life.see(pod, now_ns);
        });
        new
    }

    /// A Pod is there no longer.
    pub(super) fn gone(&mut self, pod: &Pod, now_ns: u64) {
        let Some(uid) = pod.metadata.uid.as_deref() else { return };
        // It may have said more with that.
        self.change(uid, now_ns, false, |life, _| {
            life.see(pod, now_ns);
            life.gone(now_ns);
        });
    }

    /// An attempt was traced.
    pub(super) fn attempt(&mut self, trace: &Trace, now_ns: u64) {
        if let Some((uid, attempt)) = Attempt::of(trace) {
            self.change(uid, now_ns, true, |life, room| life.attempt(attempt, room));
        }
    }

    /// All Pods are listed anew.
    pub(super) fn list_begins(&mut self) {
        self.list += 1;
        self.listing = true;
    }

    /// What was not in the list is there no longer.
    pub(super) fn list_ends(&mut self, now_ns: u64) {
        self.listing = false;
        for life in self.lives.values_mut() {
            if life.about.is_none() {
                // It has come while the list was read, and what the API server tells of it has yet to come.
                life.last_ns = now_ns;
            } else if life.list < self.list {
                life.gone(now_ns);
            }
        }
    }

    /// Nobody lists Pods, which may stay so: what the API server tells of a Pod is not waited for.
    pub(super) fn list_fails(&mut self) {
        self.listing = false;
    }

    /// Takes out what is over and can be told; at the `last` moment everything that is over.
    pub(super) fn due(&mut self, now_ns: u64, last: bool) -> Vec<(Box<str>, Life)> {
        let due = self.lives.extract_if(|_, life| {
            let lacking = life.about.is_none() || life.binding().is_none() && life.node.is_some();
            let wait = if lacking { LATE_NS } else { SETTLE_NS };
            let over = life.end.is_some() || life.about.is_none() && !self.listing;
            over && (last || now_ns.saturating_sub(life.last_ns) >= wait)
        });
        let due: Vec<_> = due.collect();
        let mut told = Vec::new();
        for (uid, life) in due {
            self.bytes -= uid.len() + life.bytes();
            let Some((end, _)) = life.end else {
                self.metrics.lost(Loss::LifeUnknown);
                continue;
            };
            // One that has a Node was bound by whoever this daemon does not see, or by hand.
            let ours = life.binding().is_some() || life.node.is_none() && !life.attempts.is_empty();
            self.metrics.ended(if ours { end } else { LifecycleEnd::Elsewhere });
            if ours {
                told.push((uid, life));
            }
        }
        self.metrics.set_followed(self.lives.len());
        told
    }

    /// Changes what is known of a Pod, which `new` says whether to begin with, and keeps count of the bytes. The change is told
    /// whether there is room for more than what is needed.
    fn change(&mut self, uid: &str, now_ns: u64, new: bool, change: impl FnOnce(&mut Life, bool)) {
        let room = self.bytes < MAX_BYTES;
        if !self.lives.contains_key(uid) {
            if !new {
                return;
            }
            if !room || self.lives.len() == MAX_PODS {
                self.metrics.lost(Loss::LifeTableFull);
                return;
            }
            let life = Life::new(now_ns);
            self.bytes += uid.len() + life.bytes();
            self.lives.insert(uid.into(), life);
        }
        if let Some(life) = self.lives.get_mut(uid) {
            let before = life.bytes();
            change(life, room);
            self.bytes = self.bytes + life.bytes() - before;
        }
    }
}
