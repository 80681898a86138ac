//! Decides which values to redact.

use gotrace::values::Datum;

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
        Value::NodeName | Value::PreemptionNode | Value::PlacementName | Value::Scores => Name::Of("node"),
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
        // Contains plugin names only.
        | Value::Statuses
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
                        let mut url = name.to_string();
                        replace("extender", &mut url);
                        *name = url.into();
                    }
                }
            }
            Datum::Number(_) | Datum::Flag(_) | Datum::Name(_) | Datum::Entries(_) => {}
        }
    }
}
