//! Pod groups: each Pod's attempt is below its group's, and the numbers equal the scheduler's counts. With a scheduler of 1.37 also
//! groups of groups.

use anyhow::{Context as _, Result, ensure};
use harness::{
    api::{Api, NodeSize, ZONE, is_bound, is_unschedulable, pod},
    figures::{Comparison, Count},
    spans::Span,
    stage::Stage,
};
use serde_json::{Value, json};

use crate::checks::{nothing_lost, text};

/// By default, 1.36 takes Pods out of the backoff queue while the active queue is empty, and tries a group that does not fit 2,600 times a
/// second: more than the limit of records, so that the numbers could not be equal.
pub(crate) const GATES: &str = "SchedulerPopFromBackoffQ=false";
/// Zones that a group may be restricted to, with the same number of Nodes each.
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const NODES_PER_ZONE: usize = 4;

/// A group of Pods.
struct Group {
    name: &'static str,
    /// The number of Pods that must fit for any to be bound.
    min: usize,
    /// Whether all must be in one zone.
    in_one_zone: bool,
    /// The CPUs that its Pods request; a Node has 32.
    cpu: &'static [&'static str],
    /// The number of Pods tried in an attempt, and the number bound in the end.
    trials: usize,
    bound: usize,
}

const GROUPS: [Group; 5] = [
    Group { name: "fits", min: 3, in_one_zone: false, cpu: &["1", "1", "1"], trials: 1, bound: 3 },
    Group { name: "large", min: 2, in_one_zone: false, cpu: &["64", "64"], trials: 1, bound: 0 },
    Group { name: "zonal", min: 2, in_one_zone: true, cpu: &["2", "2"], trials: ZONES.len(), bound: 2 },
    Group { name: "nowhere", min: 2, in_one_zone: true, cpu: &["64", "64"], trials: ZONES.len(), bound: 0 },
    Group { name: "mixed", min: 2, in_one_zone: false, cpu: &["1", "64", "1"], trials: 1, bound: 2 },
];
/// A group of groups, all of which must fit for any Pod to be bound.
struct GroupOfGroups {
    name: &'static str,
    /// The CPUs that the Pods of each group request.
    groups: [&'static [&'static str]; 2],
    fits: bool,
}

const GROUPS_OF_GROUPS: [GroupOfGroups; 2] = [
    GroupOfGroups { name: "pair", groups: [&["1", "1"], &["1", "1", "1"]], fits: true },
    GroupOfGroups { name: "torn", groups: [&["1", "1"], &["64"]], fits: false },
];

impl GroupOfGroups {
    fn size(&self) -> usize {
        self.groups.iter().map(|cpu| cpu.len()).sum()
    }

    fn group(&self, number: usize) -> String {
        format!("{}-{number}", self.name)
    }

    fn has(&self, pod: &Value) -> bool {
        (0..self.groups.len()).any(|number| group_of(pod) == self.group(number))
    }
}

/// The API of groups in 1.37, and in 1.36.
const GROUP_APIS: [&str; 2] = ["scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha2"];
/// The API of groups of groups, since 1.37.
const GROUPS_OF_GROUPS_API: &str = "scheduling.k8s.io/v1alpha3";

/// Pods without a group.
const ALONE: usize = 20;

pub(super) fn run(stage: &mut Stage) -> Result<()> {
    let api = stage.cluster.api()?;
    create_zones(&api)?;
    let schedspan = stage.trace()?;
    let comparison = Comparison::begin(&stage.cluster)?;
    for number in 0..ALONE {
        api.create_pod("default", &pod(&format!("alone-{number}"), "10m"))?;
    }
    for Group { name, min, in_one_zone, cpu, .. } in &GROUPS {
        create_group(&api, name, *min, *in_one_zone, cpu)?;
    }
    let has_groups_of_groups = api.get(&format!("/apis/{GROUPS_OF_GROUPS_API}")).is_ok();
    let groups_of_groups = if has_groups_of_groups { &GROUPS_OF_GROUPS[..] } else { &[] };
    for group in groups_of_groups {
        create_group_of_groups(&api, group)?;
    }
    let done = |pods: &[Value]| {
        pods.iter().all(|pod| is_bound(pod) || is_unschedulable(pod))
            && GROUPS.iter().all(|Group { name, bound, .. }| {
                pods.iter().filter(|pod| group_of(pod) == *name && is_bound(pod)).count() == *bound
            })
            && groups_of_groups.iter().all(|group| {
                let bound = pods.iter().filter(|pod| group.has(pod) && is_bound(pod)).count();
                bound == if group.fits { group.size() } else { 0 }
            })
    };
    api.wait_for_pods("groups to be bound or found unschedulable", done)?;
    let pods = api.pods("default")?;
    // They would be tried again.
    for pod in pods.iter().filter(|pod| !is_bound(pod)) {
        api.delete_pod("default", text(pod, "/metadata/name"))?;
    }
    let figures = comparison.end()?;

    println!("{:<52} {:>9} {:>9}", "", "spans", "scheduler");
    let mut differ = 0;
    for ([name, result, profile], Count { schedspan, scheduler }) in figures.counts() {
        println!("{:<52} {schedspan:>9} {scheduler:>9}", format!("{name} {result} {profile}"));
        differ += usize::from(schedspan != scheduler);
    }
    // Losses would explain differences.
    nothing_lost(&schedspan.metrics()?)?;
    ensure!(differ == 0, "{differ} counts differ");
    for group in &GROUPS {
        check(group, &figures.spans, &pods).with_context(|| format!("group {}", group.name))?;
    }
    for group in groups_of_groups {
        check_group_of_groups(group, &figures.spans, &pods)
            .with_context(|| format!("group of groups {}", group.name))?;
    }
    println!("         {} groups, and {} groups of groups", GROUPS.len(), groups_of_groups.len());
    Ok(())
}

/// Nodes in zones.
pub(crate) fn create_zones(api: &Api) -> Result<()> {
    for zone in ZONES {
        for number in 1..=NODES_PER_ZONE {
            let size = NodeSize { zone: Some(zone), ..NodeSize::default() };
            api.create_node(&format!("{zone}-{number}"), size)?;
        }
    }
    Ok(())
}

/// Creates a group of Pods, of which at least `min` or none are bound.
pub(crate) fn create_group(api: &Api, name: &str, min: usize, in_one_zone: bool, cpu: &[&str]) -> Result<()> {
    let mut spec = json!({ "schedulingPolicy": { "gang": { "minCount": min } } });
    if in_one_zone {
        spec["schedulingConstraints"] = json!({ "topology": [{ "key": ZONE }] });
    }
    create_group_with(api, name, &spec, cpu)
}

fn create_group_with(api: &Api, name: &str, spec: &Value, cpu: &[&str]) -> Result<()> {
    let known = GROUP_APIS.into_iter().find(|group| api.get(&format!("/apis/{group}")).is_ok());
    let groups = known.context("the API server has no groups of Pods")?;
    let group = json!({ "metadata": { "name": name }, "spec": spec });
    api.post(&format!("/apis/{groups}/namespaces/default/podgroups"), &group)?;
    for (number, cpu) in cpu.iter().enumerate() {
        let mut pod = pod(&format!("{name}-{number}"), cpu);
        pod["spec"]["schedulingGroup"] = json!({ "podGroupName": name });
        api.create_pod("default", &pod)?;
    }
    Ok(())
}

/// Creates a group of groups, then its groups and their Pods: the scheduler waits until all are there.
fn create_group_of_groups(api: &Api, group: &GroupOfGroups) -> Result<()> {
    let GroupOfGroups { name, groups, .. } = group;
    // The API server wants the name of a workload, and does not look whether there is one.
    let from = |template: &str| json!({ "workloadName": name, "templateName": template });
    let whole = json!({
        "metadata": { "name": name },
        "spec": {
            "workloadRef": from("whole"),
            "schedulingPolicy": { "gang": { "minGroupCount": groups.len() } },
        },
    });
    api.post(&format!("/apis/{GROUPS_OF_GROUPS_API}/namespaces/default/compositepodgroups"), &whole)?;
    for (number, cpu) in groups.iter().enumerate() {
        let spec = json!({
            "parentCompositePodGroupName": name,
            "workloadRef": from("part"),
            "schedulingPolicy": { "gang": { "minCount": cpu.len() } },
        });
        create_group_with(api, &group.group(number), &spec, cpu)?;
    }
    Ok(())
}

fn group_of(pod: &Value) -> &str {
    text(pod, "/spec/schedulingGroup/podGroupName")
}

/// The first attempt with all Pods of a group, and the attempts of its Pods.
fn check(group: &Group, spans: &[Span], pods: &[Value]) -> Result<()> {
    let of_group = |span: &&Span| span.attribute("k8s.scheduler.pod_group.name") == group.name;
    let root = spans
        .iter()
        .filter(|span| span.name == "SchedulePodGroup")
        .filter(of_group)
        .find(|span| span.attribute("k8s.scheduler.pod_group.size") == group.cpu.len().to_string())
        .context("no attempt of it was traced")?;
    let result = if group.bound > 0 { "Success" } else { "Unschedulable" };
    let reported =
        ["k8s.scheduler.result", "k8s.scheduler.pod_group.size", "k8s.scheduler.pod_group.scheduled"]
            .map(|key| root.attribute(key));
    let (size, bound) = (group.cpu.len(), group.bound);
    ensure!(
        reported == [result.to_owned(), size.to_string(), bound.to_string()],
        "its attempt says {reported:?}"
    );
    let members: Vec<_> = spans.iter().filter(|span| span.parent_span_id == root.span_id).collect();
    let placements = members.iter().filter(|span| span.name == "placement").count();
    ensure!(placements == group.trials, "{placements} placements instead of {}", group.trials);
    let members: Vec<_> = members.into_iter().filter(|span| span.name == "SchedulePod").collect();
    ensure!(members.len() == size, "{} attempts of Pods instead of {size}", members.len());
    for member in members {
        ensure!(root.holds(member) && member.trace_id == root.trace_id, "{} is outside of it", member.pod());
        let pod = pods.iter().find(|pod| text(pod, "/metadata/name") == member.pod());
        let node = text(pod.context("an attempt of no Pod")?, "/spec/nodeName");
        ensure!(
            member.attribute("k8s.scheduler.selected_node") == node,
            "{} was bound to `{node}`",
            member.pod()
        );
        let trials: Vec<_> = spans
            .iter()
            .filter(|span| span.parent_span_id == member.span_id && span.name == "trial")
            .collect();
        ensure!(trials.len() <= group.trials, "{} was tried {} times", member.pod(), trials.len());
        let chosen: Vec<_> =
            trials.iter().filter(|trial| trial.attribute("k8s.scheduler.trial.chosen") == "true").collect();
        ensure!(
            chosen.len() == usize::from(!node.is_empty()),
            "{} trials of {} are chosen",
            chosen.len(),
            member.pod()
        );
        for chosen in chosen.iter().filter(|_| group.in_one_zone) {
            let placement = chosen.attribute("k8s.scheduler.placement");
            // The names of Nodes begin with their zone.
            let zone = ZONES.iter().find(|zone| placement.ends_with(*zone)).context(placement.clone())?;
            ensure!(node.starts_with(zone), "{} is on {node}, and was chosen in {placement}", member.pod());
        }
    }
    Ok(())
}

/// The first attempt with all Pods of a group of groups: these are below it, whichever of its groups they are of.
fn check_group_of_groups(group: &GroupOfGroups, spans: &[Span], pods: &[Value]) -> Result<()> {
    let size = group.size().to_string();
    let root = spans
        .iter()
        .filter(|span| span.name == "SchedulePodGroup")
        .filter(|span| span.attribute("k8s.scheduler.pod_group.name") == group.name)
        .find(|span| span.attribute("k8s.scheduler.pod_group.size") == size)
        .context("no attempt of all its Pods was traced")?;
    let (result, bound) = if group.fits { ("Success", size.as_str()) } else { ("Unschedulable", "0") };
    let said = ["k8s.scheduler.result", "k8s.scheduler.pod_group.scheduled"].map(|key| root.attribute(key));
    ensure!(said == [result, bound], "its attempt says {said:?}");
    let below = |name: &str| {
        let is = |span: &&Span| span.parent_span_id == root.span_id && span.name == name;
        spans.iter().filter(is).collect::<Vec<_>>()
    };
    // A group that is not needed any more is not tried.
    let placements = below("placement").len();
    let tried = if group.fits { group.groups.len() } else { 1 };
    ensure!((tried..=group.groups.len()).contains(&placements), "{placements} placements");
    let members = below("SchedulePod");
    ensure!(members.len() == group.size(), "{} attempts of Pods", members.len());
    for member in members {
        ensure!(root.holds(member) && member.trace_id == root.trace_id, "{} is outside of it", member.pod());
        let pod = pods.iter().find(|pod| text(pod, "/metadata/name") == member.pod());
        let pod = pod.filter(|pod| group.has(pod)).context("an attempt of no Pod of its groups")?;
        let (node, said) = (text(pod, "/spec/nodeName"), member.attribute("k8s.scheduler.selected_node"));
        ensure!(said == node, "{} was bound to `{node}`, not `{said}`", member.pod());
    }
    Ok(())
}
