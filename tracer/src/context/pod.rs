//! What is read of a Pod: the part of its metadata that identifies it and may hold a trace context.
//!
//! The rest of the metadata is skipped in place. It is much longer, above all the managed fields, of which the client's
//! own type would make a tree of maps for each event of the watch.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{NamespaceResourceScope, api::core::v1};
use kube::{Resource, core::ObjectMeta};
use serde::{Deserialize, Deserializer};

/// A Pod, of which the API server is asked for the metadata only.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Pod {
    #[serde(deserialize_with = "metadata")]
    metadata: ObjectMeta,
}

fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Read {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        annotations: Option<BTreeMap<String, String>>,
    }
    let Read { name, namespace, uid, resource_version, annotations } = Read::deserialize(deserializer)?;
    Ok(ObjectMeta { name, namespace, uid, resource_version, annotations, ..ObjectMeta::default() })
}

impl Resource for Pod {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn metadata_api() -> bool {
        true
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
