//! What reconciles did to objects: who created the object that a reconcile is about, who wrote it last, and which Pod was deleted.
//!
//! An object is known by the UID in the answer to a request: a later reconcile is about the same one if an answer to it had that UID, for
//! the same resource, namespace and name. A key has no UID, so where there is no such answer only the name says so.

mod memory;
#[cfg(test)]
mod tests;

use std::sync::{Arc, OnceLock};

use ::spans::{Evidence, TraceKind, identity::LifecycleTrace};

use self::memory::Memory;
use super::{EVICTION, Object, Request};

/// Objects that are remembered, and Pods beside them. Processes share these limits in equal parts. The oldest are forgotten.
const MAX_OBJECTS: usize = 16_384;

/// Queues that are not called as the kind of their keys is, and the resource of that kind.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/volume/persistentvolume/pv_controller_base.go>
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/replication/replication_controller.go>
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/controller/disruption/disruption.go>
const OTHER_NAMES: [(&str, &str); 9] = [
    ("claims", CLAIMS),
    ("pvcprotection", CLAIMS),
    ("pvcs", CLAIMS),
    ("volume_expand", CLAIMS),
    ("volumes", VOLUMES),
    ("pvprotection", VOLUMES),
    ("replicationmanager", "replicationcontrollers"),
    ("ttl_jobs_to_delete", "jobs"),
    ("disruption", "poddisruptionbudgets"),
];
const CLAIMS: &str = "persistentvolumeclaims";
const VOLUMES: &str = "persistentvolumes";

/// A reconcile that may write something.
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

/// A reconcile that wrote the object of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The reconcile.
    pub maker: Maker,
    /// What says that it was this object.
    pub evidence: Evidence,
}

/// A Pod that was deleted or evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// Its UID.
    pub uid: String,
    /// What says that it was this Pod: the answer had its UID, or the process was answered with a Pod of this name before.
    pub evidence: Evidence,
    /// Its first owner.
    pub owner: Owner,
}

/// The first owner of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// It is not known whether there is one.
    Unknown,
    /// Its UID, if there is one.
    Known(Option<String>),
}

/// An object of a process: its resource, and its key as in a queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Subject {
    resource: String,
    key: String,
}

impl Subject {
    /// What a reconcile is about: queues and controllers are called as the kind is.
    pub(super) fn of_key(name: &str, key: &str) -> Self {
        let other = OTHER_NAMES.into_iter().find(|(queue, _)| *queue == name);
        let resource = other.map_or_else(|| resource_of(name), |(_, resource)| resource.to_owned());
        Self { resource, key: key.to_owned() }
    }

    /// What a request is about: one object.
    fn of(request: &Request) -> Option<Self> {
        let about = request.about();
        let came_back = || request.object.as_ref()?.name.as_deref();
        let name = if about.name.is_empty() { came_back()? } else { about.name };
        // That of a long path is cut.
        let is_whole = !about.resource.is_empty() && !name.ends_with('…');
        let slash = if about.namespace.is_empty() { "" } else { "/" };
        let key = format!("{}{slash}{name}", about.namespace);
        is_whole.then(|| Self { resource: about.resource.to_owned(), key })
    }
}

/// The resource of a kind, by Kubernetes' own rule of thumb:
/// <https://github.com/kubernetes/apimachinery/blob/v0.36.4/pkg/api/meta/restmapper.go> (`UnsafeGuessKindToResource`).
fn resource_of(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match (kind.strip_suffix('y'), kind.ends_with('s')) {
        _ if kind.ends_with("endpoints") => kind,
        (Some(stem), _) => format!("{stem}ies"),
        (None, true) => format!("{kind}es"),
        (None, false) => format!("{kind}s"),
    }
}

/// A reconcile that is open.
#[derive(Debug)]
pub(super) struct OpenReconcile {
    pub(super) target: u32,
    pub(super) maker: Maker,
    subject: Option<Subject>,
    /// UID of its object, and the reconcile that wrote it last before this one.
    before: Option<(String, Maker)>,
    /// Whether it has written its object itself.
    has_written: bool,
}

/// What reconciles did to objects.
#[derive(Debug, Default)]
pub(super) struct Objects {
    written: Memory<Written>,
    pods: Memory<Pod>,
}

/// An object that reconciles wrote.
#[derive(Debug)]
struct Written {
    uid: String,
    /// The resource version that came back. Later ones of an object are greater:
    /// <https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/5504-comparable-resource-version>.
    version: Option<u64>,
    creator: Option<Maker>,
    last: Maker,
}

/// A Pod that came back.
#[derive(Debug)]
struct Pod {
    uid: String,
    owner: Option<String>,
}

impl Objects {
    /// A reconcile begins.
    pub(super) fn begin(&self, target: u32, maker: Maker, subject: Option<Subject>) -> OpenReconcile {
        let written = subject.as_ref().and_then(|subject| self.written.get(target, subject));
        let before = written.map(|written| (written.uid.clone(), written.last.clone()));
        OpenReconcile { target, maker, subject, before, has_written: false }
    }

    /// A request of this reconcile was answered with an object.
    pub(super) fn answered(
        &mut self,
        by: &mut OpenReconcile,
        request: &Request,
        part: impl Fn(usize) -> usize,
    ) {
        let OpenReconcile { target, maker, .. } = by;
        let Some(object) = &request.object else { return };
        let is_pod = request.is_of_pod();
        let Some(subject) = (is_pod || request.changes()).then(|| Subject::of(request)).flatten() else {
            return;
        };
        if is_pod {
            if let (Some(owner), Some(_)) = (&object.owner, request.created()) {
                maker.owner.get_or_init(|| owner.as_str().into());
            }
            if object.is_decoded() {
                let Object { uid, owner, .. } = object.clone();
                self.pods.put(*target, subject, Pod { uid, owner }, part(MAX_OBJECTS));
            }
            return;
        }
        let version = object.version.as_deref().and_then(|version| version.parse().ok());
        let known = self.written.get(*target, &subject).filter(|known| known.uid == object.uid);
        if by.subject.as_ref() == Some(&subject) && !by.has_written {
            by.has_written = true;
            let is_earlier = |known: &&Written| known.version.is_some() && known.version <= version;
            let earlier = known.filter(is_earlier).map(|known| (known.uid.clone(), known.last.clone()));
            by.before = earlier.or(by.before.take());
        }
        let new = request.created().map(|_| maker.clone());
        if known.is_some_and(|known| version.is_some() && known.version >= version) {
            // It was so before, or somebody has written it since.
            let known = self.written.get_mut(*target, &subject).filter(|known| known.creator.is_none());
            known.into_iter().for_each(|known| known.creator.clone_from(&new));
            return;
        }
        let creator = new.or_else(|| known.and_then(|known| known.creator.clone()));
        let written = Written { uid: object.uid.clone(), version, creator, last: maker.clone() };
        self.written.put(*target, subject, written, part(MAX_OBJECTS));
    }

    /// Which Pod a request removed, as far as it is answered.
    pub(super) fn removed(&self, target: u32, request: &Request) -> Option<Removed> {
        request.removes()?;
        let known = Subject::of(request).and_then(|subject| self.pods.get(target, &subject));
        let answer = request.object.as_ref().map(|object| &object.uid);
        let same = known.filter(|known| answer.is_none_or(|uid| known.uid == *uid));
        let owner = same.map_or(Owner::Unknown, |known| Owner::Known(known.owner.clone()));
        let evidence = if answer.is_some() { Evidence::Uid } else { Evidence::Name };
        let uid = answer.or(same.map(|known| &known.uid))?.clone();
        Some(Removed { uid, evidence, owner })
    }

    /// Who created what a reconcile is about, which made these requests and is over, and who wrote it last before, if that is another
    /// one.
    pub(super) fn writers(&mut self, of: &OpenReconcile, requests: &[Request]) -> [Option<Writer>; 2] {
        let OpenReconcile { target, maker: own, subject: Some(subject), before, .. } = of else {
            return [None, None];
        };
        let is = |request: &&Request| Subject::of(request).as_ref() == Some(subject);
        let seen = requests.iter().filter(is).filter_map(|request| Some(&request.object.as_ref()?.uid));
        let seen: Vec<_> = seen.collect();
        let writer = |uid: &String, maker: &Maker| {
            let evidence = if seen.is_empty() { Evidence::Name } else { Evidence::Uid };
            let is_same = seen.is_empty() || seen.contains(&uid);
            (is_same && maker.id != own.id).then(|| Writer { maker: maker.clone(), evidence })
        };
        let known = self.written.get(*target, subject);
        let creator = known.and_then(|known| writer(&known.uid, known.creator.as_ref()?));
        let last = before.as_ref().and_then(|(uid, maker)| writer(uid, maker));
        let last =
            last.filter(|last| creator.as_ref().is_none_or(|creator| creator.maker.id != last.maker.id));
        // The name is another object's.
        if known.is_some_and(|known| !seen.is_empty() && !seen.contains(&&known.uid)) {
            self.written.remove(*target, subject);
        }
        [creator, last]
    }

    /// A process has ended.
    pub(super) fn exit(&mut self, target: u32) {
        self.written.exit(target);
        self.pods.exit(target);
    }

    /// How many objects were remembered and forgotten: by the labels `object` and `fate`.
    pub(super) fn fates(&self) -> impl Iterator<Item = ([&'static str; 2], u64)> {
        let of = |object, fates: [(&'static str, u64); 2]| {
            fates.map(|(fate, total)| ([object, fate], total)).into_iter()
        };
        of("pod", self.pods.fates()).chain(of("other", self.written.fates()))
    }
}

impl Request {
    /// What it did to a Pod that is gone then, or to all of a namespace.
    pub(super) fn removes(&self) -> Option<TraceKind> {
        let (kind, subresource) = match self.method.as_deref()? {
            "DELETE" => (TraceKind::PodDeletion, ""),
            "POST" => (TraceKind::PodEviction, EVICTION),
            _ => return None,
        };
        let about = self.about();
        (self.succeeded() && about.is_pods() && about.subresource == subresource).then_some(kind)
    }

    /// Whether it created, changed or deleted the object that came back.
    fn changes(&self) -> bool {
        let is_change = ["PUT", "PATCH", "DELETE"].map(Some).contains(&self.method.as_deref());
        self.created().is_some() || is_change && self.succeeded()
    }
}
