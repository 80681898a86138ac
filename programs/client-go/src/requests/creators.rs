//! Which reconcile created the object that another one is about.
//!
//! Known by the UID that came back from the request: the later reconcile is about the same object if one of its own requests got an
//! object of that kind, name and UID. A key has no UID, so where there is no such request only the name says so.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use ::spans::{Evidence, identity::LifecycleTrace};

use super::{Request, spans::is_pod};

/// Objects whose creators are known. Processes share this limit in equal parts. The oldest are forgotten.
const MAX_CREATED: usize = 16_384;

/// Queues that are not called as the kind of their keys is, in lower case.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/volume/persistentvolume/pv_controller_base.go>
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/replication/replication_controller.go>
const OTHER_NAMES: [(&str, &str); 2] =
    [("claims", "persistentvolumeclaim"), ("replicationmanager", "replicationcontroller")];

/// A reconcile that may create something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Maker {
    /// The id of its trace, if that is its own. The ids of its spans follow from it in any case.
    pub id: [u8; 16],
    owner: Arc<OnceLock<Box<str>>>,
}

impl Maker {
    pub(super) fn new(id: [u8; 16]) -> Self {
        Self { id, owner: Arc::default() }
    }

    /// UID of the first owner of the first Pod that it has created.
    pub(super) fn owner(&self) -> Option<&str> {
        self.owner.get().map(|uid| &**uid)
    }

    /// The id of its trace.
    #[must_use]
    pub fn trace_id(&self, lifecycle: LifecycleTrace) -> [u8; 16] {
        lifecycle.of(self.id, self.owner())
    }
}

/// The reconcile that created an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Creator {
    /// The reconcile.
    pub maker: Maker,
    /// What says that it was this object.
    pub evidence: Evidence,
}

/// An object of a process: its kind in lower case, and its key as in a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    kind: String,
    key: String,
}

impl Subject {
    /// What a reconcile is about: queues and controllers are called as the kind is.
    pub(super) fn of_key(name: &str, key: &str) -> Self {
        let other = OTHER_NAMES.into_iter().find(|(queue, _)| *queue == name);
        let kind = other.map_or(name, |(_, kind)| kind);
        Self { kind: kind.to_lowercase(), key: key.to_owned() }
    }

    /// What a request got back.
    fn of_answer(request: &Request) -> Option<(Self, &Arc<str>, &str)> {
        let object = request.object.as_ref()?;
        let name = object.name.as_deref()?;
        let (_, kind) = object.typ.rsplit_once('.')?;
        let namespace = request.about().namespace;
        let slash = if namespace.is_empty() { "" } else { "/" };
        let subject = Self { kind: kind.to_lowercase(), key: format!("{namespace}{slash}{name}") };
        Some((subject, &object.typ, &object.uid))
    }
}

/// What reconciles created.
#[derive(Debug, Default)]
pub(super) struct Creators {
    by_process: BTreeMap<u32, Created>,
    /// How many there were in all.
    remembered: u64,
    /// How many made room for others.
    forgotten: u64,
}

#[derive(Debug, Default)]
struct Created {
    /// Number of the last object.
    last: u64,
    objects: BTreeMap<Subject, Known>,
    /// By number: the oldest first.
    order: BTreeMap<u64, Subject>,
}

#[derive(Debug)]
struct Known {
    number: u64,
    typ: Arc<str>,
    uid: String,
    maker: Maker,
}

impl Created {
    fn remove(&mut self, subject: &Subject) {
        if let Some(known) = self.objects.remove(subject) {
            self.order.remove(&known.number);
        }
    }
}

impl Creators {
    /// A request of this reconcile was answered. Pods are left out: their own trace says who created them.
    pub(super) fn answered(
        &mut self,
        target: u32,
        maker: &Maker,
        request: &Request,
        part: impl Fn(usize) -> usize,
    ) {
        let Some(object) = request.created() else { return };
        if is_pod(request.about().resource, object) {
            if let Some(owner) = &object.owner {
                maker.owner.get_or_init(|| owner.as_str().into());
            }
            return;
        }
        let Some((subject, typ, uid)) = Subject::of_answer(request) else { return };
        let created = self.by_process.entry(target).or_default();
        created.remove(&subject);
        created.last += 1;
        let number = created.last;
        self.remembered += 1;
        created.order.insert(number, subject.clone());
        created.objects.insert(
            subject,
            Known { number, typ: Arc::clone(typ), uid: uid.to_owned(), maker: maker.clone() },
        );
        while created.objects.len() > part(MAX_CREATED).max(1) {
            let Some((_, oldest)) = created.order.pop_first() else { break };
            created.objects.remove(&oldest);
            self.forgotten += 1;
        }
    }

    /// Who created what a reconcile is about, which made these requests.
    pub(super) fn of(&mut self, target: u32, subject: &Subject, requests: &[Request]) -> Option<Creator> {
        let created = self.by_process.get_mut(&target)?;
        let Known { typ, uid, maker, .. } = created.objects.get(subject)?;
        let is = |other: &(Subject, &Arc<str>, &str)| other.0 == *subject && other.1 == typ;
        let mut same =
            requests.iter().filter_map(Subject::of_answer).filter(is).map(|(_, _, other)| other == uid);
        let creator = |evidence| Some(Creator { maker: maker.clone(), evidence });
        match same.next() {
            None => creator(Evidence::Name),
            Some(first) if first || same.any(|same| same) => creator(Evidence::Uid),
            // The name is another object's.
            Some(_) => {
                created.remove(subject);
                None
            }
        }
    }

    /// A process has ended.
    pub(super) fn exit(&mut self, target: u32) {
        self.by_process.remove(&target);
    }

    /// How many objects were remembered, and how many of them made room for others: by the label `fate`.
    pub(super) const fn fates(&self) -> [(&'static str, u64); 2] {
        [("remembered", self.remembered), ("forgotten", self.forgotten)]
    }
}
