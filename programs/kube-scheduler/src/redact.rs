//! Decides which values to redact.

use std::sync::Arc;

use gotrace::{decode::Listed, values::Datum};

use crate::{Values, attempt::moved, values::Value};

/// How a value is redacted.
enum Name {
    /// Not redacted.
    No,
    /// The name of an object of this kind, or free text from a plugin (`message`).
    Of(&'static str),
    /// A metric label: kept for the queue's metric, redacted for others.
    Label,
}

fn name(value: Value) -> Name {
    match value {
        Value::PodName | Value::GroupName | Value::VictimNames => Name::Of("pod"),
        Value::PodNamespace | Value::GroupNamespace => Name::Of("namespace"),
        Value::PodUid => Name::Of("uid"),
        Value::Profile => Name::Of("profile"),
        Value::NodeName | Value::PreemptionNode | Value::PlacementName | Value::Scores | Value::Statuses => {
            Name::Of("node")
        }
        Value::StatusReason | Value::Message => Name::Of("message"),
        Value::ExtenderUrl => Name::Of("extender"),
        Value::Queue | Value::QueueEvent => Name::Label,
        Value::CycleState
        | Value::Pod
        | Value::QueuedPodInfo
        | Value::Attempts
        | Value::QueueTimestamp
        | Value::StatusCode
        | Value::StatusPlugin
        | Value::Plugin
        | Value::Gate
        | Value::FirstAttempt
        | Value::BackoffExpiration
        | Value::BackoffExpirationSeconds
        | Value::Gated
        | Value::Labels
        | Value::HintLength
        | Value::EvaluatedNodes
        | Value::FeasibleNodes
        | Value::RestrictedTo
        | Value::Victims
        | Value::GroupSize
        | Value::ConditionReason
        | Value::ExtenderVerb
        | Value::Ignorable
        | Value::Nodes
        | Value::ApiCall
        | Value::PreemptionCandidate
        | Value::StartedNs
        | Value::Panics => Name::No,
    }
}

fn replace_shared(
    kind: &'static str,
    shared: &mut Arc<str>,
    replace: &mut dyn FnMut(&'static str, &mut String),
) {
    let mut text = shared.to_string();
    replace(kind, &mut text);
    *shared = text.into();
}

pub(crate) fn redact(values: &mut Values, replace: &mut dyn FnMut(&'static str, &mut String)) {
    let of_queue = moved(values).is_some();
    for (value, datum) in values.iter_mut() {
        let kind = match name(value) {
            Name::Of(kind) => kind,
            Name::Label if !of_queue => "label",
            Name::Label | Name::No => continue,
        };
        match datum {
            Datum::Text(text) => replace(kind, text),
            Datum::Texts(texts) => texts.iter_mut().flatten().for_each(|text| replace(kind, text)),
            Datum::Top(top) => {
                for element in &mut top.best {
                    replace(kind, &mut element.label);
                    // The names of extenders are URLs.
                    for (name, _) in element.parts.iter_mut().filter(|(name, _)| name.contains("://")) {
                        replace_shared("extender", name, replace);
                    }
                }
            }
            Datum::Entries(entries) => {
                for Listed { texts, keys, .. } in &mut entries.listed {
                    keys.iter_mut().for_each(|key| replace_shared(kind, key, replace));
                    texts.iter_mut().for_each(|text| replace_shared("message", text, replace));
                }
            }
            Datum::Number(_) | Datum::Flag(_) | Datum::Name(_) => {}
        }
    }
}
