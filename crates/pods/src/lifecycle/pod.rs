//! The fields of a Pod that a lifecycle needs. The rest is skipped while parsing.

use std::{borrow::Cow, fmt};

use k8s_openapi::jiff::Timestamp;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use crate::context::PodWith;

/// A Pod with the fields that its lifecycle needs.
pub type Pod = PodWith<Spec, Status>;

/// What is wanted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub(super) node_name: Option<String>,
    pub(super) scheduler_name: String,
    pub(super) priority: Option<i64>,
    pub(super) priority_class_name: Option<String>,
    pub(super) scheduling_gates: Vec<Named>,
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
    pub(super) volumes: Vec<Volume>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Named {
    pub(super) name: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) image: String,
    /// `Always` for a sidecar: an init container that keeps running.
    pub(super) restart_policy: Option<String>,
}

/// The kind of the volume, and its claim if it has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Volume {
    pub(super) kind: String,
    pub(super) claim: Option<String>,
}

/// How far it is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub(super) phase: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) qos_class: Option<String>,
    #[serde(deserialize_with = "seconds")]
    pub(super) start_time: Option<u64>,
    pub(super) conditions: Vec<Condition>,
    pub(super) init_container_statuses: Vec<ContainerStatus>,
    pub(super) container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
    pub(super) message: String,
    #[serde(deserialize_with = "seconds")]
    pub(super) last_transition_time: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ContainerStatus {
    pub(super) name: String,
    pub(super) restart_count: i64,
    pub(super) state: State,
    pub(super) last_state: State,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct State {
    pub(super) waiting: Option<Waiting>,
    pub(super) running: Option<Run>,
    pub(super) terminated: Option<Run>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Waiting {
    pub(super) reason: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Run {
    pub(super) exit_code: i64,
    pub(super) reason: String,
    #[serde(deserialize_with = "seconds")]
    pub(super) started_at: Option<u64>,
    #[serde(deserialize_with = "seconds")]
    pub(super) finished_at: Option<u64>,
}

impl Pod {
    /// `status.phase`.
    #[must_use]
    pub fn phase(&self) -> &str {
        &self.status.phase
    }

    /// Its Node.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|node| !node.is_empty())
    }

    /// Whether a condition is true, and its message; `None` if the Pod does not have it.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<(bool, &str)> {
        let condition = self.status.conditions.iter().find(|condition| condition.kind == kind)?;
        Some((condition.status == "True", &condition.message))
    }
}

/// Seconds since the Unix epoch; `None` for what is not a time after it. The API server writes `null`, or Go's zero time, for
/// unknown times.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = Option::<Cow<'de, str>>::deserialize(deserializer)?;
    let time = text.and_then(|text| text.parse::<Timestamp>().ok());
    Ok(time.and_then(|time| u64::try_from(time.as_second()).ok()).filter(|seconds| *seconds > 0))
}

impl<'de> Deserialize<'de> for Volume {
    /// The kind is the key beside `name`.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Claim {
            claim_name: Option<String>,
        }

        struct Sources;

        impl<'de> Visitor<'de> for Sources {
            type Value = Volume;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a volume")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Volume, A::Error> {
                let mut volume = Volume::default();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    match &*key {
                        "name" => drop(map.next_value::<IgnoredAny>()?),
                        "persistentVolumeClaim" => volume.claim = map.next_value::<Claim>()?.claim_name,
                        _ => drop(map.next_value::<IgnoredAny>()?),
                    }
                    if key != "name" {
                        volume.kind = key.into_owned();
                    }
                }
                Ok(volume)
            }
        }

        deserializer.deserialize_map(Sources)
    }
}
