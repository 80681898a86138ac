//! The fields of a Pod that are read: its identity, its annotations, what selectors ask for, and kinds of terms.
//!
//! The rest is skipped while parsing. It is much longer, above all the managed fields, for which the client's own type would
//! allocate a tree of maps at each event of the watch.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1,
    apimachinery::pkg::apis::meta::v1::{OwnerReference, Time},
};
use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use spans::{sample::Selector, terms::Terms};

use super::terms;

/// A Pod with the fields that its reader needs. Unless `WHOLE`, only metadata is requested of the API server.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodWith<Spec, Status = IgnoredAny, const WHOLE: bool = true> {
    #[serde(deserialize_with = "metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}

/// A Pod as the watch for contexts reads it.
pub(super) type Pod<const WHOLE: bool> = PodWith<Spec, Status, WHOLE>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    priority_class_name: Option<String>,
    pub(super) scheduler_name: String,
    pub(super) scheduling_gates: Vec<Gate>,
    pub(super) scheduling_group: Option<Group>,
    #[serde(deserialize_with = "terms::node_selector")]
    node_selector: Terms,
    #[serde(deserialize_with = "terms::affinity")]
    affinity: Terms,
    #[serde(deserialize_with = "terms::spread")]
    topology_spread_constraints: Terms,
    #[serde(deserialize_with = "terms::volumes")]
    volumes: Terms,
    #[serde(deserialize_with = "terms::containers")]
    init_containers: Terms,
    #[serde(deserialize_with = "terms::containers")]
    containers: Terms,
    #[serde(deserialize_with = "terms::resource_claims")]
    resource_claims: Terms,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Gate {
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Group {
    pub(super) pod_group_name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) last_transition_time: Option<Time>,
}

impl<const WHOLE: bool> Pod<WHOLE> {
    pub(super) fn priority_class(&self) -> Option<&str> {
        self.spec.priority_class_name.as_deref()
    }

    /// Kinds of terms in its spec.
    pub(super) fn terms(&self) -> Terms {
        let Spec {
            priority_class_name: _,
            scheduler_name: _,
            scheduling_gates: _,
            scheduling_group: _,
            node_selector,
            affinity,
            topology_spread_constraints,
            volumes,
            init_containers,
            containers,
            resource_claims,
        } = self.spec;
        node_selector
            | affinity
            | topology_spread_constraints
            | volumes
            | init_containers
            | containers
            | resource_claims
    }
}

/// Whether a selector matches a Pod.
pub(super) fn selected(selector: &Selector, metadata: &ObjectMeta, priority_class: Option<&str>) -> bool {
    match selector {
        Selector::Label(key, value) => {
            let found = metadata.labels.as_ref().and_then(|labels| labels.get(key));
            found.is_some_and(|found| value.as_ref().is_none_or(|value| found == value))
        }
        Selector::PriorityClass(name) => priority_class == Some(name),
    }
}

/// Reads the needed fields of the metadata.
///
/// # Errors
///
/// When it is not the metadata of an object.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Read {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        annotations: Option<BTreeMap<String, String>>,
        labels: Option<BTreeMap<String, String>>,
        owner_references: Option<Vec<OwnerReference>>,
    }
    let read = Read::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: read.name,
        namespace: read.namespace,
        uid: read.uid,
        resource_version: read.resource_version,
        creation_timestamp: read.creation_timestamp,
        deletion_timestamp: read.deletion_timestamp,
        annotations: read.annotations,
        labels: read.labels,
        owner_references: read.owner_references,
        ..ObjectMeta::default()
    })
}

impl<Spec, Status, const WHOLE: bool> Resource for PodWith<Spec, Status, WHOLE> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn metadata_api() -> bool {
        !WHOLE
    }

    fn kind((): &()) -> Cow<'_, str> {
        v1::Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        v1::Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        v1::Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        v1::Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
