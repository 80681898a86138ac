//! Panics of plugins that end the scheduler.

use std::sync::Arc;

use gotrace::Role;

use super::{
    event,
    scenarios::{Fate, play, scene},
    status,
};
use crate::{Event, Values, table::Function, values::Value};

#[test]
fn a_panic_in_a_plugin_ends_the_phase_that_was_entered_once_and_the_plugin_is_named() {
    let phases =
        [(Function::PreBind, Function::PreBindPlugin), (Function::PostBind, Function::PostBindPlugin)];
    for (phase, plugin) in phases {
        let mut one = scene(1, Fate::Bound, 8);
        let entered = |event: &Event| (event.function, event.role) == (phase, Role::Entry);
        let at = one.binding.iter().position(entered).expect("it is bound");
        one.binding.truncate(at + 1);
        // No plugin has returned before: the order in which the phase calls them is not known.
        let named = Values::default().with(Value::Plugin, Some(Arc::<str>::from("Trouble")));
        one.binding.push(event(101, plugin, Role::Entry, 120, named));
        one.binding.push(event(101, phase, Role::Metric, 200, status(0).with(Value::Panics, true)));
        let (attempts, stats) = play([one]);
        let of =
            |function| attempts[0].calls.iter().filter(|call| call.function == function).collect::<Vec<_>>();
        // The plugin, its phase and the binding cycle.
        assert_eq!((of(phase).len(), stats.unwound_calls), (1, 3));
        let [call] = of(plugin)[..] else { panic!("{:?}", attempts[0].calls) };
        assert_eq!((call.returned, call.plugin.as_deref()), (false, Some("Trouble")));
    }
}
