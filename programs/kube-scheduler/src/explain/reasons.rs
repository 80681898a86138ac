//! Known messages with which plugins reject Nodes, and remedies.

/// A known rejection message of an in-tree plugin.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Known {
    /// Substring that identifies the message.
    words: &'static str,
    /// Name of the plugin.
    pub(crate) plugin: &'static str,
    /// A change that would let the Pod fit.
    pub(crate) remedy: &'static str,
}

const fn known(words: &'static str, plugin: &'static str, remedy: &'static str) -> Known {
    Known { words, plugin, remedy }
}

/// Messages of Kubernetes 1.28 to 1.37.
/// <https://github.com/kubernetes/kubernetes/tree/v1.36.4/pkg/scheduler/framework/plugins>
const KNOWN: [Known; 19] = [
    known("Insufficient ", "NodeResourcesFit", "room on a Node, a larger Node, or smaller requests"),
    known("Too many pods", "NodeResourcesFit", "fewer Pods on a Node, or another Node"),
    known("untolerated taint", "TaintToleration", "a toleration in the Pod, or Nodes without the taint"),
    known("Pod's node affinity", "NodeAffinity", "a Node with the labels that the Pod asks for"),
    known("were unschedulable", "NodeUnschedulable", "`kubectl uncordon` of a Node"),
    known("the requested node name", "NodeName", "the Node that `spec.nodeName` names"),
    known("free ports", "NodePorts", "a Node with the Pod's host ports free"),
    known("match pod affinity rules", "InterPodAffinity", "the Pods that it wants to be with"),
    known("anti-affinity rules", "InterPodAffinity", "a Node without the Pods that it must be apart from"),
    known("topology spread", "PodTopologySpread", "a Node in a domain with fewer of these Pods"),
    known(
        "unbound immediate PersistentVolumeClaims",
        "VolumeBinding",
        "the binding of its PersistentVolumeClaims",
    ),
    known("persistentvolumeclaim ", "VolumeBinding", "the PersistentVolumeClaim that it names"),
    known("persistent volumes to bind", "VolumeBinding", "a PersistentVolume for its claim"),
    known("volume node affinity conflict", "VolumeBinding", "a Node from which its volume can be reached"),
    known("enough free storage", "VolumeBinding", "more storage"),
    known("max volume count", "NodeVolumeLimits", "fewer volumes on a Node, or another Node"),
    known("available volume zone", "VolumeZone", "a Node in the zone of its volume"),
    known("conflicting volume", "VolumeRestrictions", "the end of the Pod that uses its volume"),
    known("allocate all claims", "DynamicResources", "free devices for its ResourceClaims"),
];

/// A reason that some Nodes were rejected.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reason<'a> {
    /// Number of Nodes; `None` if the message has no number.
    pub(crate) nodes: Option<u64>,
    /// Text of the reason.
    pub(crate) words: &'a str,
    /// The matching known message.
    pub(crate) known: Option<&'static Known>,
}

/// Splits `0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. preemption: …` into its
/// reasons. Another message is a single reason.
pub(crate) fn of(message: &str) -> Vec<Reason<'_>> {
    let all = message.split_once("nodes are available: ").map_or(message, |(_, all)| all);
    // The results of preemption follow the reasons.
    let end =
        [". preemption:", ". no new claims", ", preemption:"].iter().filter_map(|end| all.find(end)).min();
    let all = end.map_or(all, |end| &all[..end]).trim_end_matches('.');
    let mut parts = Vec::new();
    let mut rest = all;
    // A comma ends a reason only if a number follows.
    while !rest.is_empty() {
        let end = rest.match_indices(", ").map(|(at, _)| at).find(|at| counted(&rest[at + 2..]).is_some());
        let (part, after) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 2..]));
        let (nodes, words) = counted(part).map_or((None, part), |(nodes, words)| (Some(nodes), words));
        parts.push(Reason { nodes, words, known: KNOWN.iter().find(|known| words.contains(known.words)) });
        rest = after;
    }
    parts
}

/// Splits `3 Insufficient cpu` into number and text.
fn counted(text: &str) -> Option<(u64, &str)> {
    let (number, words) = text.split_once(' ')?;
    Some((number.parse().ok()?, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(message: &str) -> Vec<(Option<u64>, &str, &str)> {
        let plugin = |reason: &Reason<'_>| reason.known.map_or("", |known| known.plugin);
        of(message).iter().map(|reason| (reason.nodes, reason.words, plugin(reason))).collect()
    }

    #[test]
    fn maps_each_part_of_a_message_to_its_plugin() {
        let message = "0/23 nodes are available: 1 node(s) had untolerated taint {a: b, 2 c}, 20 Insufficient cpu, 2 my own \
                       words. no new claims to deallocate, preemption: 0/23 nodes are available: 23 No preemption victims \
                       found for incoming pod.";
        assert_eq!(
            parts(message),
            [
                // A comma and a number inside a reason look like the start of the next one.
                (Some(1), "node(s) had untolerated taint {a: b", "TaintToleration"),
                (Some(2), "c}", ""),
                (Some(20), "Insufficient cpu", "NodeResourcesFit"),
                (Some(2), "my own words", ""),
            ]
        );
    }

    #[test]
    fn other_messages_are_a_single_reason() {
        assert_eq!(
            parts(
                "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 no."
            ),
            [(None, "pod has unbound immediate PersistentVolumeClaims", "VolumeBinding")]
        );
        assert_eq!(
            parts("running Bind plugin: no, not today"),
            [(None, "running Bind plugin: no, not today", "")]
        );
        assert_eq!(parts(""), []);
    }
}
