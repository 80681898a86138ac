//! Which span each probed function becomes: a row each.

use spans::{
    Cycle, Phase, SpanKind,
    names::{PLACEMENT, POD_BINDING, POD_STATUS_PATCH, PREEMPT_POD, TRIAL},
};

use crate::plan::Function;

/// How a call is shown.
pub(super) struct Kind {
    pub(super) function: Function,
    /// Name of the span; for a call of a plugin or an extender the extension point.
    pub(super) name: &'static str,
    /// The call that it is a part of; `None` for what hangs under the root.
    pub(super) parent: Option<Function>,
    /// What the span shows.
    pub(super) shows: SpanKind,
}

const fn under_root(function: Function, name: &'static str, shows: SpanKind) -> Kind {
    Kind { function, name, parent: None, shows }
}

const fn phase_under_root(function: Function, phase: Phase) -> Kind {
    under_root(function, phase.name(), SpanKind::Phase(phase))
}

const fn phase(function: Function, phase: Phase, part: Function) -> Kind {
    Kind { function, name: phase.name(), parent: Some(part), shows: SpanKind::Phase(phase) }
}

const fn plugin(function: Function, point: &'static str, phase: Function) -> Kind {
    Kind { function, name: point, parent: Some(phase), shows: SpanKind::Plugin }
}

const fn late(function: Function, name: &'static str, part: Function, shows: SpanKind) -> Kind {
    Kind { function, name, parent: Some(part), shows }
}

const fn extender(function: Function, point: &'static str, part: Function) -> Kind {
    Kind { function, name: point, parent: Some(part), shows: SpanKind::Extender }
}

const KINDS: [Kind; 41] = [
    // Of a group, whose Pods have spans of their own.
    phase_under_root(Function::PlacementGenerate, Phase::PlacementGenerate),
    under_root(Function::PlacementTrial, PLACEMENT, SpanKind::Placement),
    phase(Function::PlacementFeasible, Phase::PlacementFeasible, Function::PlacementTrial),
    phase_under_root(Function::PlacementScore, Phase::PlacementScore),
    phase_under_root(Function::PodGroupPostFilter, Phase::PodGroupPostFilter),
    // Of a Pod of a group, which has no scheduling cycle of its own.
    under_root(Function::PodGroupMember, TRIAL, SpanKind::Trial),
    Kind {
        function: Function::SchedulingCycle,
        name: Cycle::Scheduling.name(),
        parent: Some(Function::PodGroupMember),
        shows: SpanKind::Cycle(Cycle::Scheduling),
    },
    phase(Function::Snapshot, Phase::Snapshot, Function::SchedulingCycle),
    phase(Function::PreFilter, Phase::PreFilter, Function::SchedulingCycle),
    plugin(Function::PreFilterPlugin, "preFilter", Function::PreFilter),
    phase(Function::Filter, Phase::Filter, Function::SchedulingCycle),
    // The phase, which the scheduler times by itself, is over.
    extender(Function::ExtenderFilter, "filter", Function::SchedulingCycle),
    phase(Function::PostFilter, Phase::PostFilter, Function::SchedulingCycle),
    plugin(Function::PostFilterPlugin, "postFilter", Function::PostFilter),
    late(Function::PreemptPod, PREEMPT_POD, Function::PostFilterPlugin, SpanKind::Victim),
    extender(Function::ExtenderPreemption, "processPreemption", Function::PostFilterPlugin),
    phase(Function::PreScore, Phase::PreScore, Function::SchedulingCycle),
    plugin(Function::PreScorePlugin, "preScore", Function::PreScore),
    phase(Function::Score, Phase::Score, Function::SchedulingCycle),
    plugin(Function::NormalizeScorePlugin, "normalizeScore", Function::Score),
    extender(Function::ExtenderPrioritize, "prioritize", Function::SchedulingCycle),
    phase(Function::Reserve, Phase::Reserve, Function::SchedulingCycle),
    plugin(Function::ReservePlugin, "reserve", Function::Reserve),
    // In the scheduling cycle when `Permit` or `Reserve` fails; later between the binding cycle and the handling of its
    // failure.
    phase(Function::Unreserve, Phase::Unreserve, Function::SchedulingCycle),
    plugin(Function::UnreservePlugin, "unreserve", Function::Unreserve),
    phase(Function::Permit, Phase::Permit, Function::SchedulingCycle),
    plugin(Function::PermitPlugin, "permit", Function::Permit),
    under_root(Function::BindingCycle, Cycle::Binding.name(), SpanKind::Cycle(Cycle::Binding)),
    phase(Function::PreBindPreFlight, Phase::PreBindPreFlight, Function::BindingCycle),
    plugin(Function::PreBindPreFlightPlugin, "preBindPreFlight", Function::PreBindPreFlight),
    phase(Function::WaitOnPermit, Phase::WaitOnPermit, Function::BindingCycle),
    phase(Function::PreBind, Phase::PreBind, Function::BindingCycle),
    plugin(Function::PreBindPlugin, "preBind", Function::PreBind),
    phase(Function::Bind, Phase::Bind, Function::BindingCycle),
    plugin(Function::BindPlugin, "bind", Function::Bind),
    late(Function::PodBindingCall, POD_BINDING, Function::BindPlugin, SpanKind::ApiCall),
    late(Function::PodStatusPatchCall, POD_STATUS_PATCH, Function::HandleFailure, SpanKind::ApiCall),
    // In place of the phase.
    extender(Function::ExtenderBind, "bind", Function::BindingCycle),
    phase(Function::PostBind, Phase::PostBind, Function::BindingCycle),
    plugin(Function::PostBindPlugin, "postBind", Function::PostBind),
    // KEP-5927 has no span for it, but it takes time: it asks the API server to set the Pod's condition.
    phase_under_root(Function::HandleFailure, Phase::HandleSchedulingFailure),
];

/// How calls of a function are shown; `None` if they are not.
pub(super) fn kind(function: Function) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.function == function)
}

impl Kind {
    /// Whether it is done for the attempt and may outlast it.
    pub(super) fn is_late(&self) -> bool {
        matches!(self.shows, SpanKind::ApiCall | SpanKind::Victim)
    }

    /// The functions that it is a part of, the next one first.
    pub(super) fn ancestors(&self) -> impl Iterator<Item = Function> {
        std::iter::successors(self.parent, |function| kind(*function)?.parent)
    }
}
