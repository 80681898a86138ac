//! Which span each probed function becomes: a row each.

use spans::names::PREEMPT_POD;

use crate::plan::Function;

/// How a call is shown.
pub(super) struct Kind {
    pub(super) function: Function,
    /// Name of the span; for a call of a plugin or an extender the extension point.
    pub(super) name: &'static str,
    /// The call that it is a part of; `None` for what hangs under the root.
    pub(super) parent: Option<Function>,
    pub(super) of: Of,
}

/// Whose part it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    Scheduler,
    /// One plugin's part of a phase.
    Plugin,
    Extender,
    /// What is done for the attempt and may outlast it.
    Late,
}

const fn under_root(function: Function, name: &'static str) -> Kind {
    Kind { function, name, parent: None, of: Of::Scheduler }
}

const fn phase(function: Function, name: &'static str, cycle: Function) -> Kind {
    Kind { function, name, parent: Some(cycle), of: Of::Scheduler }
}

const fn plugin(function: Function, name: &'static str, phase: Function) -> Kind {
    Kind { function, name, parent: Some(phase), of: Of::Plugin }
}

const fn late(function: Function, name: &'static str, part: Function) -> Kind {
    Kind { function, name, parent: Some(part), of: Of::Late }
}

const fn extender(function: Function, name: &'static str, part: Function) -> Kind {
    Kind { function, name, parent: Some(part), of: Of::Extender }
}

const KINDS: [Kind; 41] = [
    // Of a group, whose Pods have spans of their own.
    under_root(Function::PlacementGenerate, "placementGenerate"),
    under_root(Function::PlacementTrial, "placement"),
    phase(Function::PlacementFeasible, "placementFeasible", Function::PlacementTrial),
    under_root(Function::PlacementScore, "placementScore"),
    under_root(Function::PodGroupPostFilter, "podGroupPostFilter"),
    // Of a Pod of a group, which has no scheduling cycle of its own.
    under_root(Function::PodGroupMember, "trial"),
    phase(Function::SchedulingCycle, "schedulingCycle", Function::PodGroupMember),
    phase(Function::Snapshot, "snapshot", Function::SchedulingCycle),
    phase(Function::PreFilter, "preFilter", Function::SchedulingCycle),
    plugin(Function::PreFilterPlugin, "preFilter", Function::PreFilter),
    phase(Function::Filter, "filter", Function::SchedulingCycle),
    // The phase, which the scheduler times by itself, is over.
    extender(Function::ExtenderFilter, "filter", Function::SchedulingCycle),
    phase(Function::PostFilter, "postFilter", Function::SchedulingCycle),
    plugin(Function::PostFilterPlugin, "postFilter", Function::PostFilter),
    late(Function::PreemptPod, PREEMPT_POD, Function::PostFilterPlugin),
    extender(Function::ExtenderPreemption, "processPreemption", Function::PostFilterPlugin),
    phase(Function::PreScore, "preScore", Function::SchedulingCycle),
    plugin(Function::PreScorePlugin, "preScore", Function::PreScore),
    phase(Function::Score, "score", Function::SchedulingCycle),
    plugin(Function::NormalizeScorePlugin, "normalizeScore", Function::Score),
    extender(Function::ExtenderPrioritize, "prioritize", Function::SchedulingCycle),
    phase(Function::Reserve, "reserve", Function::SchedulingCycle),
    plugin(Function::ReservePlugin, "reserve", Function::Reserve),
    // In the scheduling cycle when `Permit` or `Reserve` fails; later between the binding cycle and the handling of its
    // failure.
    phase(Function::Unreserve, "unreserve", Function::SchedulingCycle),
    plugin(Function::UnreservePlugin, "unreserve", Function::Unreserve),
    phase(Function::Permit, "permit", Function::SchedulingCycle),
    plugin(Function::PermitPlugin, "permit", Function::Permit),
    under_root(Function::BindingCycle, "bindingCycle"),
    phase(Function::PreBindPreFlight, "preBindPreFlight", Function::BindingCycle),
    plugin(Function::PreBindPreFlightPlugin, "preBindPreFlight", Function::PreBindPreFlight),
    phase(Function::WaitOnPermit, "waitOnPermit", Function::BindingCycle),
    phase(Function::PreBind, "preBind", Function::BindingCycle),
    plugin(Function::PreBindPlugin, "preBind", Function::PreBind),
    phase(Function::Bind, "bind", Function::BindingCycle),
    plugin(Function::BindPlugin, "bind", Function::Bind),
    late(Function::PodBindingCall, "api call: pod_binding", Function::BindPlugin),
    late(Function::PodStatusPatchCall, "api call: pod_status_patch", Function::HandleFailure),
    // In place of the phase.
    extender(Function::ExtenderBind, "bind", Function::BindingCycle),
    phase(Function::PostBind, "postBind", Function::BindingCycle),
    plugin(Function::PostBindPlugin, "postBind", Function::PostBind),
    // KEP-5927 has no span for it, but it takes time: it asks the API server to set the Pod's condition.
    under_root(Function::HandleFailure, "handleSchedulingFailure"),
];

/// How calls of a function are shown; `None` if they are not.
pub(super) fn kind(function: Function) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.function == function)
}

impl Kind {
    /// The functions that it is a part of, the next one first.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = Function> {
        std::iter::successors(self.parent, |function| kind(*function)?.parent)
    }
}
