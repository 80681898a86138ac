//! Pod groups: an attempt for the group, and within it one for each of its Pods.

use std::sync::Arc;

use super::{
    super::{Attempt, Code, Outcome, Pod, PodGroup, Subject},
    Building, Goroutine, HashMap, MAX_ATTEMPTS, MAX_CALLS, Process, Progress,
};
use crate::{
    Event, Values,
    table::{Function, Stage},
    values::Value,
};

/// Reasons in the condition of a group that fits, and of one that does not; other reasons are errors.
/// <https://github.com/kubernetes/kubernetes/blob/v1.36.4/pkg/scheduler/schedule_one_podgroup.go>,
/// `submitPodGroupAlgorithmResult`
const SCHEDULED: &str = "Scheduled";
const UNSCHEDULABLE: &str = "Unschedulable";

/// Relation of an attempt to a group.
#[derive(Debug, Default)]
pub(super) enum Membership {
    #[default]
    Alone,
    Member {
        /// ID of the group's attempt.
        group: u64,
        /// Key of this attempt in `members`.
        key: String,
        /// `CycleState` address of each trial; 0 while unknown.
        trials: Vec<u64>,
    },
    Group {
        /// Open attempts by the UID of their Pods.
        members: HashMap<String, u64>,
        /// The scheduling loop has left the group.
        over: bool,
        /// The placement to try next.
        placement: Option<Arc<str>>,
        /// It consists of groups: its Pods are counted as they come.
        of_groups: bool,
    },
}

impl Process {
    /// Begins the attempt of a group. Up to 1.36 a Pod is popped, and the scheduler collects the other Pods
    /// of its group.
    pub(super) fn begin_group(&mut self, event: Event) {
        let Event { target, time_ns, goroutine: number, mut values, .. } = event;
        let fresh = |building: &Building| building.stage == Progress::Popped && building.may_be_of_group;
        let current = self.goroutines.get(&number).and_then(|goroutine| goroutine.attempt);
        let popped = current.filter(|id| self.attempts.get(id).is_some_and(fresh));
        let full = self.attempts.len() >= self.room(MAX_ATTEMPTS);
        if popped.is_none() || full {
            self.leave_attempt(number, time_ns);
        }
        if full {
            self.books.no_room(1);
            return;
        }
        let start_ns = popped
            .and_then(|id| self.attempts.get(&id))
            .map_or(time_ns, |building| building.attempt.start_ns);
        let group = Arc::new(PodGroup {
            name: values.take_text(Value::GroupName).unwrap_or_default(),
            namespace: values.take_text(Value::GroupNamespace).unwrap_or_default(),
            start_ns,
        });
        let mut queued = self.take_queued(values.number(Value::QueuedPodInfo));
        queued.events += 1;
        let mut attempt = Attempt {
            pod: Pod { name: group.name.clone(), namespace: group.namespace.clone(), ..Pod::default() },
            subject: Subject::Group {
                group: Arc::clone(&group),
                size: values.number(Value::GroupSize),
                scheduled: 0,
            },
            start_ns,
            ..queued.attempt(target, time_ns)
        };
        attempt.previous = self.pending.remove(&*attempt.identity());
        attempt.cut = self.cuts.of(&attempt);
        let id = self.next_id;
        self.next_id += 1;
        let mut members = HashMap::default();
        if let Some((member, building)) = popped.and_then(|id| Some((id, self.attempts.get_mut(&id)?))) {
            let key = key(&building.attempt.pod.uid, member);
            attempt.pod.profile.clone_from(&building.attempt.pod.profile);
            building.attempt.subject = Subject::Member(group);
            building.part = Membership::Member { group: id, key: key.clone(), trials: Vec::new() };
            members.insert(key, member);
        }
        let of_groups = values.number(Value::GroupSize) == Some(0);
        let part = Membership::Group { members, over: false, placement: None, of_groups };
        let building = Building { stage: Progress::Scheduling, part, ..Building::new(attempt, number) };
        self.attempts.insert(id, building);
        let goroutine = self.goroutines.entry(number).or_default();
        (goroutine.attempt, goroutine.last_ns) = (Some(id), time_ns);
    }

    /// Ends the group's part of the scheduling loop.
    pub(super) fn end_group(&mut self, event: &Event) {
        let current = self.goroutines.get(&event.goroutine).and_then(|goroutine| goroutine.attempt);
        let Some(id) = current.filter(|id| self.is_group(*id)) else {
            self.books.stats.orphan_facts += 1;
            self.books.account.orphaned += 1;
            return;
        };
        if let Some(building) = self.attempts.get_mut(&id) {
            building.seen(event.time_ns);
            building.attempt.events += 1;
        }
        self.leave_group(event.goroutine, id, event.time_ns);
    }

    /// The scheduling loop leaves the group.
    pub(super) fn leave_group(&mut self, number: u64, id: u64, now_ns: u64) {
        if let Some(mut goroutine) = self.goroutines.remove(&number) {
            self.unwind(&mut goroutine, 0, now_ns);
            self.give_up(&mut goroutine);
        }
        let Some(Building { attempt, part: Membership::Group { members, over, .. }, .. }) =
            self.attempts.get_mut(&id)
        else {
            return;
        };
        *over = true;
        let failed = matches!(attempt.outcome, Outcome::Failed { .. });
        let mut members: Vec<u64> = members.values().copied().collect();
        members.sort_unstable();
        if failed {
            self.will_be_tried_again(id);
        }
        for member in members {
            // Pods that are being deleted, for example, and failure handling that never returned.
            let over = |building: &Building| {
                !building.binding && [Progress::Popped, Progress::Failing].contains(&building.stage)
            };
            if self.attempts.get(&member).is_some_and(over) {
                self.abandon(member);
            }
        }
        self.end_group_with_its_last(id);
    }

    pub(super) fn is_group(&self, id: u64) -> bool {
        matches!(self.attempts.get(&id), Some(Building { part: Membership::Group { .. }, .. }))
    }

    /// The attempt that a call belongs to, if it begins while a group is being scheduled.
    pub(super) fn owner_in_group(&mut self, group: u64, goroutine: &Goroutine, event: &Event) -> u64 {
        let Event { function, values, .. } = event;
        if matches!(function, Function::PodGroupMember | Function::HandleFailure)
            && let Some(member) = self.member(group, event)
        {
            return member;
        }
        // A trial has its own state, whose address may have belonged to an earlier one.
        let trial = goroutine.open.iter().rev().find(|open| open.function == Function::PodGroupMember);
        if let Some(owner) = trial.and_then(|open| open.owner) {
            return owner;
        }
        let known = |index: &HashMap<u64, u64>, address: Option<u64>| index.get(&address?).copied();
        let named = known(&self.by_state, values.number(Value::CycleState))
            .or_else(|| known(&self.by_pod, values.number(Value::Pod)));
        let of_group = |id: &u64| matches!(self.attempts.get(id), Some(Building { part: Membership::Member { group: of, .. }, .. }) if *of == group);
        named.filter(of_group).or_else(|| goroutine.open.last()?.owner).unwrap_or(group)
    }

    /// The attempt of a Pod of a group. It begins with the first trial, or with the failure of an untried
    /// Pod.
    fn member(&mut self, id: u64, event: &Event) -> Option<u64> {
        let Event { target, time_ns, goroutine, values, .. } = event;
        let uid = values.text(Value::PodUid).unwrap_or_default();
        let Membership::Group { members, .. } = &self.attempts.get(&id)?.part else { return None };
        if let Some(member) = members.get(uid) {
            return Some(*member);
        }
        if self.attempts.len() >= self.room(MAX_ATTEMPTS) {
            self.books.no_room(0);
            return None;
        }
        let member = self.next_id;
        self.next_id += 1;
        let queued = self.take_queued(values.number(Value::QueuedPodInfo));
        let mut attempt = self.attempt_of_pod(*target, *time_ns, values.clone(), queued);
        let Building { attempt: Attempt { subject, pod, .. }, part, .. } = self.attempts.get_mut(&id)?;
        let (Subject::Group { group, size, .. }, Membership::Group { members, of_groups, .. }) =
            (subject, part)
        else {
            return None;
        };
        let key = key(uid, member);
        members.insert(key.clone(), member);
        if *of_groups {
            *size = Some(size.unwrap_or_default() + 1);
        }
        // At the failure of an untried Pod not all values are read; the rest comes from the group.
        match values.text(Value::Profile) {
            Some(profile) => profile.clone_into(&mut pod.profile),
            None => attempt.pod.profile.clone_from(&pod.profile),
        }
        if values.text(Value::PodNamespace).is_none() {
            attempt.pod.namespace.clone_from(&group.namespace);
        }
        attempt.subject = Subject::Member(Arc::clone(group));
        self.by_uid.insert(attempt.pod.uid.clone(), member);
        let part = Membership::Member { group: id, key, trials: Vec::new() };
        self.attempts.insert(member, Building { part, ..Building::new(attempt, *goroutine) });
        Some(member)
    }

    /// Ends a Pod's part in its group's attempt, which ends with its last Pod.
    pub(super) fn left(&mut self, part: &Membership, end_ns: u64, bound: bool) {
        let Membership::Member { group, key, .. } = part else { return };
        let Some(whole) = self.attempts.get_mut(group) else { return };
        whole.seen(end_ns);
        if let (Membership::Group { members, .. }, Subject::Group { scheduled, .. }) =
            (&mut whole.part, &mut whole.attempt.subject)
        {
            members.remove(key);
            *scheduled += u64::from(bound);
        }
        self.end_group_with_its_last(*group);
    }

    /// Abandons a group's attempt and the selected attempts of its Pods.
    pub(super) fn abandon_members(&mut self, id: u64, which: impl Fn(&Building) -> bool) {
        let Some(Building { attempt, part: Membership::Group { members, .. }, .. }) =
            self.attempts.get_mut(&id)
        else {
            return;
        };
        attempt.incomplete = true;
        let mut members: Vec<u64> = members.values().copied().collect();
        members.sort_unstable();
        for member in members {
            if self.attempts.get(&member).is_some_and(&which) {
                self.abandon(member);
            }
        }
    }

    fn end_group_with_its_last(&mut self, id: u64) {
        let Some(Building { part: Membership::Group { members, over: true, .. }, last_ns, .. }) =
            self.attempts.get(&id)
        else {
            return;
        };
        if members.is_empty() {
            let last = *last_ns;
            self.finish(id, last);
        }
    }
}

impl Building {
    /// Records the placement that the scheduler tries next.
    pub(super) fn take_placement_name(&mut self, values: &Values) {
        if let Membership::Group { placement, .. } = &mut self.part {
            *placement = values.text(Value::PlacementName).filter(|name| !name.is_empty()).map(Arc::from);
        }
    }

    /// Records the outcome of a group's attempt. Each group of a group of groups has a condition, in any order: the whole fits if any
    /// of them does, since those that fit are refused if the whole does not; and one error is the whole's.
    pub(super) fn take_condition(&mut self, mut values: Values) {
        if !matches!(self.part, Membership::Group { .. }) {
            return;
        }
        let code = match values.text(Value::ConditionReason) {
            Some(SCHEDULED) => return self.attempt.outcome = Outcome::Scheduled,
            Some(UNSCHEDULABLE) => Code::UNSCHEDULABLE,
            Some(_) | None => Code::ERROR,
        };
        let stays = match self.attempt.outcome {
            Outcome::Scheduled => true,
            Outcome::Failed { code: before, .. } => before == Some(Code::ERROR),
            Outcome::Unknown => false,
        };
        if stays {
            return;
        }
        let reason = values.take_text(Value::Message).unwrap_or_default();
        self.attempt.outcome = Outcome::Failed { code: Some(code), reason, plugin: String::new() };
    }

    /// The placement that all Pods of the group are tried on.
    pub(super) fn take_placement(&mut self) -> Option<Arc<str>> {
        if let Membership::Group { placement, .. } = &mut self.part { placement.take() } else { None }
    }

    /// Records the trial of a Pod of a group, by its `CycleState`; only one trial's is bound.
    pub(super) fn tried(&mut self, function: Function, state: Option<u64>) {
        let Membership::Member { trials, .. } = &mut self.part else { return };
        match (function.about().stage(), state) {
            (Some(Stage::Member), _) => {
                if trials.len() < MAX_CALLS {
                    trials.push(0);
                }
            }
            (Some(Stage::BindingCycle), Some(state)) => {
                self.attempt.chosen_trial = trials.iter().position(|trial| *trial == state);
            }
            (
                Some(Stage::PlacementTrial | Stage::SchedulingCycle | Stage::HandleFailure) | None,
                Some(state),
            ) => {
                if let Some(trial @ 0) = trials.last_mut() {
                    *trial = state;
                }
            }
            (_, None) => {}
        }
    }
}

/// Key of a Pod in its group. Without a UID the attempt's ID makes it unique.
fn key(uid: &str, id: u64) -> String {
    if uid.is_empty() { format!("?{id}") } else { uid.to_owned() }
}
