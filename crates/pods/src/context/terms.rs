//! Reads the kinds of terms in a Pod's spec, and keeps nothing else of it: a spec may be as large as the API server allows.

use std::fmt;

use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use spans::terms::{Term, Terms};

/// How a value of the spec is read. A value of another type than expected holds no term.
#[derive(Clone, Copy)]
enum Reading {
    /// Not at all.
    Skip,
    /// This term, if it is a list or a map that is not empty.
    Filled(Term),
    /// This term, if it is a number other than 0.
    Number(Term),
    /// This term, if it is this text.
    Text(&'static [(&'static str, Term)]),
    /// Those of its values by their keys; of a list, those of its elements.
    Keys(&'static [(&'static str, Reading)]),
}

use Reading::{Filled, Keys, Number, Text};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

const AFFINITY: Reading = Keys(&[
    (
        "nodeAffinity",
        Keys(&[
            (REQUIRED, Filled(Term::RequiredNodeAffinity)),
            (PREFERRED, Filled(Term::PreferredNodeAffinity)),
        ]),
    ),
    (
        "podAffinity",
        Keys(&[
            (REQUIRED, Filled(Term::RequiredPodAffinity)),
            (PREFERRED, Filled(Term::PreferredPodAffinity)),
        ]),
    ),
    (
        "podAntiAffinity",
        Keys(&[
            (REQUIRED, Filled(Term::RequiredPodAntiAffinity)),
            (PREFERRED, Filled(Term::PreferredPodAntiAffinity)),
        ]),
    ),
]);
const SPREAD: Reading = Keys(&[(
    "whenUnsatisfiable",
    Text(&[("DoNotSchedule", Term::HardSpread), ("ScheduleAnyway", Term::SoftSpread)]),
)]);
const VOLUMES: Reading = Keys(&[
    ("persistentVolumeClaim", Filled(Term::VolumeClaims)),
    ("ephemeral", Filled(Term::VolumeClaims)),
    ("awsElasticBlockStore", Filled(Term::InlineDisks)),
    ("gcePersistentDisk", Filled(Term::InlineDisks)),
    ("iscsi", Filled(Term::InlineDisks)),
    ("rbd", Filled(Term::InlineDisks)),
]);
const CONTAINERS: Reading = Keys(&[("ports", Keys(&[("hostPort", Number(Term::HostPorts))]))]);

/// Makes a function for `deserialize_with` of each field.
macro_rules! fields {
    ($($field:ident: $reading:expr,)*) => {
        $(
            pub(super) fn $field<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Terms, D::Error> {
                $reading.deserialize(deserializer)
            }
        )*
    };
}

fields! {
    node_selector: Filled(Term::NodeSelector),
    affinity: AFFINITY,
    spread: SPREAD,
    volumes: VOLUMES,
    containers: CONTAINERS,
    resource_claims: Filled(Term::ResourceClaims),
}

impl<'de> DeserializeSeed<'de> for Reading {
    type Value = Terms;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Terms, D::Error> {
        match self {
            Self::Skip => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Terms::default()),
            Filled(_) | Number(_) | Text(_) | Keys(_) => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Reading {
    type Value = Terms;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a part of a Pod's spec")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Terms, A::Error> {
        let mut terms = Terms::default();
        while let Some(of_key) = map.next_key_seed(Key(self))? {
            terms = terms | map.next_value_seed(of_key)? | self.if_filled();
        }
        Ok(terms)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Terms, A::Error> {
        let of_element = match self {
            Keys(_) => self,
            Self::Skip | Filled(_) | Number(_) | Text(_) => Self::Skip,
        };
        let mut terms = Terms::default();
        while let Some(found) = list.next_element_seed(of_element)? {
            terms = terms | found | self.if_filled();
        }
        Ok(terms)
    }

    fn visit_str<E>(self, text: &str) -> Result<Terms, E> {
        let Text(known) = self else { return Ok(Terms::default()) };
        Ok(known.iter().find(|(of, _)| *of == text).map_or_else(Terms::default, |(_, term)| (*term).into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Terms, E> {
        let Number(term) = self else { return Ok(Terms::default()) };
        Ok(if number == 0 { Terms::default() } else { term.into() })
    }

    fn visit_i64<E>(self, _: i64) -> Result<Terms, E> {
        Ok(Terms::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<Terms, E> {
        Ok(Terms::default())
    }

    fn visit_bool<E>(self, _: bool) -> Result<Terms, E> {
        Ok(Terms::default())
    }

    fn visit_unit<E>(self) -> Result<Terms, E> {
        Ok(Terms::default())
    }
}

impl Reading {
    /// The term of what is not empty.
    fn if_filled(self) -> Terms {
        match self {
            Filled(term) => term.into(),
            Self::Skip | Number(_) | Text(_) | Keys(_) => Terms::default(),
        }
    }
}

/// Finds how the value of a key is read.
struct Key(Reading);

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Reading;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Reading, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Reading;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Reading, E> {
        let Keys(known) = self.0 else { return Ok(Reading::Skip) };
        Ok(known.iter().find(|(of, _)| *of == key).map_or(Reading::Skip, |(_, reading)| *reading))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::subsequence};
    use serde_json::{Value, json};

    use super::*;
    use crate::context::Pod;

    fn read(spec: &Value) -> Terms {
        let pod = json!({ "metadata": { "uid": "a" }, "spec": spec });
        // From text, as the watch does: keys and texts are borrowed or not, by what is in them.
        serde_json::from_str::<Pod<true>>(&pod.to_string()).unwrap().terms()
    }

    /// Adds a term to a spec, as users write it.
    fn add(spec: &mut Value, term: Term) {
        let mut push = |list: &str, element: Value| {
            let list = &mut spec[list];
            if list.is_null() {
                *list = json!([]);
            }
            list.as_array_mut().unwrap().push(element);
        };
        let of_pods =
            json!([{ "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "web" } } }]);
        let of_nodes = json!({ "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "zone", "operator": "Exists" }] }] });
        match term {
            Term::NodeSelector => spec["nodeSelector"] = json!({ "disk": "ssd" }),
            Term::RequiredNodeAffinity => spec["affinity"]["nodeAffinity"][REQUIRED] = of_nodes,
            Term::PreferredNodeAffinity => {
                spec["affinity"]["nodeAffinity"][PREFERRED] = json!([{ "weight": 1 }]);
            }
            Term::RequiredPodAffinity => spec["affinity"]["podAffinity"][REQUIRED] = of_pods,
            Term::PreferredPodAffinity => spec["affinity"]["podAffinity"][PREFERRED] = of_pods,
            Term::RequiredPodAntiAffinity => spec["affinity"]["podAntiAffinity"][REQUIRED] = of_pods,
            Term::PreferredPodAntiAffinity => spec["affinity"]["podAntiAffinity"][PREFERRED] = of_pods,
            Term::HardSpread => push(
                "topologySpreadConstraints",
                json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule" }),
            ),
            Term::SoftSpread => push(
                "topologySpreadConstraints",
                json!({ "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway" }),
            ),
            Term::VolumeClaims => {
                push("volumes", json!({ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }));
            }
            Term::InlineDisks => {
                push("volumes", json!({ "name": "disk", "rbd": { "monitors": ["a"], "image": "b" } }));
            }
            Term::HostPorts => {
                push("containers", json!({ "ports": [{ "containerPort": 80 }, { "hostPort": 80 }] }));
            }
            Term::ResourceClaims => {
                push("resourceClaims", json!({ "name": "gpu", "resourceClaimName": "g" }));
            }
        }
    }

    #[test]
    fn each_kind_of_term_is_read_from_a_spec() {
        for term in Term::ALL {
            let mut spec = json!({ "containers": [{ "name": "main", "image": "pause" }] });
            add(&mut spec, term);
            assert_eq!(read(&spec), term.into(), "{spec}");
        }
        let volume = |source: &str| json!({ "volumes": [{ "name": "a", source: { "b": "c" } }] });
        assert_eq!(read(&volume("ephemeral")), Term::VolumeClaims.into());
        for disk in ["awsElasticBlockStore", "gcePersistentDisk", "iscsi"] {
            assert_eq!(read(&volume(disk)), Term::InlineDisks.into());
        }
        let init = json!({ "initContainers": [{ "ports": [{ "hostPort": 53 }] }] });
        assert_eq!(read(&init), Term::HostPorts.into());
    }

    #[test]
    fn what_is_empty_or_of_no_plugin_is_no_term() {
        for spec in [
            json!({}),
            json!({ "nodeSelector": {}, "affinity": {}, "topologySpreadConstraints": [], "volumes": [], "resourceClaims": [] }),
            json!({ "nodeSelector": null, "affinity": null, "volumes": null, "containers": null }),
            json!({ "affinity": { "podAffinity": {}, "podAntiAffinity": { REQUIRED: [], PREFERRED: null } } }),
            json!({ "volumes": [{ "configMap": { "name": "a" } }, { "emptyDir": {} }, { "persistentVolumeClaim": null }] }),
            json!({ "containers": [{ "ports": [{ "containerPort": 80, "hostPort": 0 }] }] }),
            json!({ "topologySpreadConstraints": [{ "whenUnsatisfiable": "Never" }] }),
            json!({ "tolerations": [{ "operator": "Exists" }], "hostNetwork": true, "priority": 1 }),
        ] {
            assert!(read(&spec).is_empty(), "{spec}");
        }
    }

    #[test]
    fn a_spec_of_any_size_is_two_bytes() {
        let many = |element: Value| vec![element; 20_000];
        let spec = json!({
            "volumes": many(json!({ "persistentVolumeClaim": { "claimName": "x".repeat(100) } })),
            "containers": many(json!({ "ports": [{ "hostPort": 1 }], "env": [{ "name": "a", "value": "b" }] })),
        });
        assert_eq!(read(&spec), Terms::of(&[Term::VolumeClaims, Term::HostPorts]));
        assert_eq!(size_of::<Terms>(), 2);
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let keys = [
            "nodeAffinity",
            "podAffinity",
            REQUIRED,
            PREFERRED,
            "whenUnsatisfiable",
            "ports",
            "hostPort",
            "rbd",
            "ephemeral",
            "other",
        ];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
            Just(Value::from("DoNotSchedule")),
        ];
        leaf.prop_recursive(5, 64, 6, move |inner| {
            prop_oneof![
                vec(inner.clone(), 0..6).prop_map(Value::from),
                vec((prop::sample::select(keys.to_vec()), inner), 0..6).prop_map(|entries| {
                    entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_terms_together_are_read(terms in subsequence(Term::ALL.to_vec(), 0..=Term::ALL.len())) {
            let mut spec = json!({});
            terms.iter().for_each(|term| add(&mut spec, *term));
            prop_assert_eq!(read(&spec), Terms::of(&terms));
        }

        #[test]
        fn no_value_hides_the_pod_or_makes_it_panic(values in vec(any_value(), 7)) {
            let fields =
                ["nodeSelector", "affinity", "topologySpreadConstraints", "volumes", "containers", "initContainers", "resourceClaims"];
            let spec: Value = fields.iter().zip(values).map(|(key, value)| ((*key).to_owned(), value)).collect();
            let terms = read(&spec);
            let pod = json!({ "metadata": {}, "spec": spec });
            prop_assert_eq!(serde_json::from_value::<Pod<true>>(pod).unwrap().terms(), terms);
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,64}", at in any::<prop::sample::Index>()) {
            let mut spec = json!({});
            Term::ALL.into_iter().for_each(|term| add(&mut spec, term));
            let mut json = json!({ "metadata": {}, "spec": spec }).to_string();
            let at = at.index(json.len());
            json.replace_range(at..at, &text);
            let _ = serde_json::from_str::<Pod<true>>(&json);
            let _ = serde_json::from_str::<Pod<true>>(&json[..at]);
        }
    }
}
