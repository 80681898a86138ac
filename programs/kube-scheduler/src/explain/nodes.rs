//! The Nodes that an attempt did not fit on, by name.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use spans::{NameList, Names, Trace, attributes};

use super::{string, words::count};

/// The Nodes that plugins rejected in one attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedNodes {
    /// The Nodes by plugin and reasons, the largest group first.
    pub groups: Vec<RejectedGroup>,
    /// Number of rejected Nodes that are in no group: of many, only the first ones are read.
    pub left_out: u64,
    /// The plugin that rejected all Nodes but these, without looking at each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others: Option<String>,
}

/// Nodes that one plugin rejected for the same reasons.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedGroup {
    /// The plugin; `None` if it is not known.
    pub plugin: Option<Arc<str>>,
    /// `Unschedulable`, or `UnschedulableAndUnresolvable` if preemption does not help.
    pub result: String,
    /// The plugin's reasons, four at most.
    pub reasons: Vec<Arc<str>>,
    /// Names of the Nodes, in alphabetical order.
    pub nodes: Vec<Arc<str>>,
}

impl RejectedNodes {
    /// Those of a trace; `None` if none was read.
    pub(crate) fn of(trace: &Trace) -> Option<Self> {
        let Names { total, lists } = trace.names.as_deref()?;
        let group = |NameList { by, result, reasons, names }: &NameList| RejectedGroup {
            plugin: by.clone(),
            result: result.clone(),
            reasons: reasons.clone(),
            nodes: names.clone(),
        };
        let named: usize = lists.iter().map(|list| list.names.len()).sum();
        (named > 0).then(|| Self {
            groups: lists.iter().map(group).collect(),
            left_out: total.saturating_sub(named as u64),
            others: string(trace.root(), attributes::REJECTED_OTHERS),
        })
    }

    /// A line for each group, followed by one with its names.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { groups, left_out, others } = self;
        let mut lines = Vec::new();
        for RejectedGroup { plugin, result, reasons, nodes } in groups {
            let plugin = plugin.as_deref().unwrap_or("a plugin that is not known");
            let why = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
            lines.push(format!("{}, {plugin}{why} ({result})", count(nodes.len() as u64, "Node")));
            lines.push(nodes.join(" "));
        }
        if *left_out > 0 {
            lines.push(format!(
                "{}, rejected as well: their names are not known",
                count(*left_out, "more Node")
            ));
        }
        lines.extend(others.iter().map(|plugin| format!("all other Nodes, {plugin}")));
        lines
    }
}
