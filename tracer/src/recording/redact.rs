//! Names replaced by pseudonyms.

use std::{borrow::Cow, collections::HashMap, path::PathBuf};

use super::Line;
use crate::{
    attempt::moved,
    pipeline::Found,
    record::{Event, Values},
};

/// Replaces names by pseudonyms, which are stable within a file.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// By kind and name.
    known: HashMap<(Kind, String), usize>,
    /// How many of a kind there are.
    count: HashMap<Kind, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Pod,
    Namespace,
    Uid,
    Node,
    Profile,
    Extender,
    /// What quotes whatever a plugin likes.
    Message,
    /// Of a metric that is not the queue's.
    Label,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Namespace => "namespace",
            Self::Uid => "uid",
            Self::Node => "node",
            Self::Profile => "profile",
            Self::Extender => "extender",
            Self::Message => "message",
            Self::Label => "label",
        }
    }
}

impl Redactor {
    pub(super) fn line<'a>(&mut self, line: Line<'a>) -> Line<'a> {
        match line {
            Line::Found(found) => {
                let executable = PathBuf::from(found.executable.file_name().unwrap_or_default());
                Line::Found(Cow::Owned(Found { executable, ..found.into_owned() }))
            }
            Line::Event(event) => {
                let Event { values, .. } = &*event;
                let values = self.values(values.clone());
                Line::Event(Cow::Owned(Event { values, ..event.into_owned() }))
            }
            Line::Header(_) | Line::Clocks(_) | Line::Gone { .. } | Line::End(_) => line,
        }
    }

    fn values(&mut self, mut values: Values) -> Values {
        let others = if moved(&values).is_none() { Some(Kind::Label) } else { None };
        // A new value does not compile until it is decided whether it is a name.
        let Values {
            cycle_state: _,
            pod: _,
            queued_pod_info: _,
            pod_name,
            pod_namespace,
            pod_uid,
            profile,
            attempts: _,
            queue_timestamp: _,
            node_name,
            status_code: _,
            status_reason,
            status_plugin: _,
            plugin: _,
            first_attempt: _,
            queue,
            queue_event,
            labels: _,
            hint_length: _,
            scores,
            // It names plugins alone.
            statuses: _,
            evaluated_nodes: _,
            feasible_nodes: _,
            restricted_to: _,
            message,
            preemption_node,
            victims: _,
            victim_names,
            group_name,
            group_namespace,
            group_size: _,
            placement_name,
            condition_reason: _,
            extender_url,
            extender_verb: _,
            ignorable: _,
            nodes: _,
            api_call: _,
            preemption_candidate: _,
            started_ns: _,
            panics: _,
        } = &mut values;
        for (kind, name) in [
            (Some(Kind::Pod), pod_name),
            (Some(Kind::Namespace), pod_namespace),
            (Some(Kind::Uid), pod_uid),
            (Some(Kind::Profile), profile),
            (Some(Kind::Node), node_name),
            (Some(Kind::Message), status_reason),
            (others, queue),
            (others, queue_event),
            (Some(Kind::Message), message),
            (Some(Kind::Node), preemption_node),
            (Some(Kind::Pod), group_name),
            (Some(Kind::Namespace), group_namespace),
            (Some(Kind::Node), placement_name),
            (Some(Kind::Extender), extender_url),
        ] {
            if let (Some(kind), Some(name)) = (kind, name) {
                self.replace(kind, name);
            }
        }
        for name in victim_names.iter_mut().flatten() {
            self.replace(Kind::Pod, name);
        }
        for candidate in scores.iter_mut().flat_map(|scores| &mut scores.best) {
            self.replace(Kind::Node, &mut candidate.node);
            // Extenders are named by their URLs.
            for (name, _) in candidate.scores.iter_mut().filter(|(name, _)| name.contains("://")) {
                let mut url = name.to_string();
                self.replace(Kind::Extender, &mut url);
                *name = url.into();
            }
        }
        values
    }

    /// What is empty has nothing to hide, and is a statement.
    fn replace(&mut self, kind: Kind, name: &mut String) {
        if name.is_empty() {
            return;
        }
        let count = self.count.entry(kind).or_default();
        let number = *self.known.entry((kind, std::mem::take(name))).or_insert_with(|| {
            *count += 1;
            *count
        });
        *name = format!("{}-{number}", kind.name());
    }
}
